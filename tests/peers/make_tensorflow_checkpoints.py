"""Writes small TensorFlow checkpoints, and what TensorFlow reads in them, with TensorFlow 2.15.

pip install tensorflow-cpu==2.15.1
python tests/peers/make_tensorflow_checkpoints.py
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

HERE = Path(__file__).parent / "tensorflow_checkpoints"
v1 = tf.compat.v1


def input_fn():
    features = {
        "a": np.arange(8, dtype=np.float32) / 8,
        "w": np.array(list("xyzxyzxy")),
    }
    labels = (np.arange(8) % 3).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((features, labels)).batch(4).repeat()


def estimator(directory):
    word = tf.feature_column.categorical_column_with_vocabulary_list("w", ["x", "y", "z"])
    model = tf.estimator.DNNClassifier(
        hidden_units=[4, 3],
        feature_columns=[
            tf.feature_column.numeric_column("a"),
            tf.feature_column.embedding_column(word, 2),
        ],
        n_classes=3,
        model_dir=directory,
        config=tf.estimator.RunConfig(tf_random_seed=7),
    )
    model.train(input_fn, steps=3)
    return f"{directory}/model.ckpt-3"


def partitioned(directory):
    """Slices of a variable, text, and dtypes."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable(
            "rows",
            [10, 3],
            initializer=v1.random_uniform_initializer(seed=3),
            partitioner=v1.fixed_size_partitioner(3),
        )
        v1.get_variable(
            "columns",
            [2, 300],
            initializer=v1.random_uniform_initializer(seed=4),
            partitioner=v1.fixed_size_partitioner(2, axis=1),
        )
        v1.get_variable("words", initializer=tf.constant([b"a", b"", b"long word"]))
        v1.get_variable("flags", initializer=tf.constant([True, False]))
        v1.get_variable("half", initializer=tf.constant([1.5, 2], tf.float16))
        v1.get_variable("scalar", initializer=tf.constant(7, tf.int64))
        session.run(v1.global_variables_initializer())
        return v1.train.Saver().save(session, f"{directory}/model.ckpt", global_step=12)


def keras(directory):
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(4, activation="relu", input_shape=(3,), name="hidden"),
            tf.keras.layers.BatchNormalization(name="norm"),
            tf.keras.layers.Dense(2, name="out"),
        ]
    )
    model.compile("adam", "mse")
    model.fit(np.ones((4, 3), np.float32), np.ones((4, 2), np.float32), verbose=0)
    model.save_weights(f"{directory}/weights")
    return f"{directory}/weights"


def main():
    tf.keras.utils.set_random_seed(7)
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    for write in (estimator, partitioned, keras):
        with tempfile.TemporaryDirectory() as directory:
            prefix = write(directory)
            name = write.__name__
            for suffix in (".index", ".data-00000-of-00001"):
                shutil.copy(prefix + suffix, HERE / (name + suffix))
            reader = tf.train.load_checkpoint(prefix)
            np.savez_compressed(
                HERE / f"{name}.npz",
                **{
                    key.replace("/", "|"): np.asarray(reader.get_tensor(key))
                    for key in reader.get_variable_to_shape_map()
                    if key not in ("words", "_CHECKPOINTABLE_OBJECT_GRAPH")
                },
            )


if __name__ == "__main__":
    main()
