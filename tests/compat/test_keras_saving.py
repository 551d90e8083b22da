"""How scripts of TensorFlow save and go on with models of Keras, as its tutorials write it."""

import os

import numpy as np

import paceline.compat.tf as tf


def test_weights_of_the_last_epoch_and_whole_models_are_found_again(tmp_path, capsys):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    rng = np.random.default_rng(0)
    images, labels = rng.random((16, 6, 6, 1), np.float32), rng.integers(0, 3, 16)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(8)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Conv2D(2, 3, activation="relu", input_shape=(6, 6, 1)),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(3),
            ]
        )
        model.compile(loss=loss, optimizer=tf.keras.optimizers.Adam(), metrics=["accuracy"])

    class PrintLR(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            print(f"rate of epoch {epoch + 1}: {model.optimizer.lr.numpy():g}")

    folder = str(tmp_path / "training_checkpoints")
    callbacks = [
        tf.keras.callbacks.TensorBoard(log_dir=str(tmp_path / "logs")),
        tf.keras.callbacks.ModelCheckpoint(
            filepath=os.path.join(folder, "ckpt_{epoch}"), save_weights_only=True
        ),
        tf.keras.callbacks.LearningRateScheduler(lambda epoch: 1e-3 if epoch < 1 else 1e-4),
        PrintLR(),
    ]
    model.fit(data, epochs=2, callbacks=callbacks, verbose=0)
    assert "rate of epoch 2: 0.0001" in capsys.readouterr().out
    expected = model.evaluate(data, verbose=0)

    model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    assert tf.train.latest_checkpoint(folder) == os.path.join(folder, "ckpt_2")
    model.load_weights(tf.train.latest_checkpoint(folder))
    assert model.evaluate(data, verbose=0) == expected

    path = f"{tmp_path}/saved_model/"
    model.save(path, save_format="tf")
    alone = tf.keras.models.load_model(path)
    np.testing.assert_allclose(alone.evaluate(data, verbose=0), expected, rtol=1e-6)
    with strategy.scope():
        again = tf.keras.models.load_model(path)
    assert again.evaluate(data, verbose=0) == expected
