"""Train a convolutional network on handwritten digits, evaluate it, use it.

    python examples/digits.py                        # scikit-learn's 8×8 digits, no download
    python examples/digits.py --data-dir mnist/      # MNIST's IDX files, plain or gzipped

    paceline launch --workers 2 --evaluator examples/digits.py --replicas 1
    paceline launch --workers 2 --ps 1 examples/digits.py --replicas 1
    mpirun -n 2 python -m mpi4py examples/digits.py --replicas 1

The same script is one process with two replicas, or one of several workers, or a parameter server,
or the evaluator beside them. The network is that of TensorFlow's tutorial "Multi-worker training
with Estimator". Run again, it goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

import paceline as pl
from paceline.nn import Sequential, layers, losses, metrics, optimizers

IMAGE = "█▓▒░ "[::-1]


def model_fn(features, labels, mode, params):
    """Two small dense layers on top of one convolution: logits of the ten digits."""
    model = Sequential(
        [
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    logits = model(features, training=mode == pl.ModeKeys.TRAIN)
    if mode == pl.ModeKeys.PREDICT:
        return pl.EstimatorSpec(mode, predictions={"digit": np.argmax(logits, axis=-1)})

    loss = np.mean(losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
    if mode == pl.ModeKeys.EVAL:
        accuracy = metrics.SparseCategoricalAccuracy()
        accuracy.update_state(labels, logits)
        return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})

    optimizer = optimizers.Adam(params["learning_rate"])
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))


def load(data_dir):
    """(images (n, height, width, 1) float32 in [0, 1], labels (n,) int64) of all splits."""
    splits = pl.inputs.load("digits", data_dir=data_dir, as_supervised=True).values()
    pairs = [next(iter(split.batch(split.cardinality()))) for split in splits]
    images, labels = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    return images / np.float32(images.max()), labels


def draw(images, predicted, labels):
    """Draw images in the terminal, four side by side, with predicted digits below."""
    step = max(1, images.shape[1] // 14)
    shades = (images[:, ::step, ::step, 0] * (len(IMAGE) - 1)).round().astype(int)
    width = 2 * shades.shape[2]
    marks = [f"{p}" if p == t else f"{p} (is {t})" for p, t in zip(predicted, labels, strict=True)]
    for first in range(0, len(images), 4):
        four = slice(first, first + 4)
        for y in range(shades.shape[1]):
            print("   ".join("".join(IMAGE[s] * 2 for s in line) for line in shades[four, y]))
        print("   ".join(mark.center(width) for mark in marks[four]))


def write_png(path, images, predicted):
    """The same as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(images), figsize=(1.4 * len(images), 1.8))
    for axis, image, digit in zip(axes, images, predicted, strict=True):
        axis.imshow(image[..., 0], cmap="gray_r")
        axis.set_title(str(digit))
        axis.axis("off")
    figure.savefig(path, bbox_inches="tight")
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model-dir", default="runs/digits", help="where checkpoints go")
    parser.add_argument("--data-dir", help="a folder with MNIST's IDX files")
    parser.add_argument("--steps", type=int, default=600, help="the global step to train to")
    parser.add_argument("--batch-size", type=int, default=32, help="examples per replica and step")
    parser.add_argument(
        "--replicas", type=int, default=2, help="replicas per worker, one thread each"
    )
    parser.add_argument("--bind-host", help="where to listen, if not at this task's own address")
    parser.add_argument("--png", default="digits.png", help="where the picture goes")
    args = parser.parse_args()

    images, labels = load(args.data_dir)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = np.split(order, [len(images) * 4 // 5])

    def train_input_fn(input_context):
        dataset = pl.Dataset.from_tensor_slices((images[train], labels[train]))
        mine = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        return mine.shuffle(len(train)).repeat().batch(args.batch_size)

    def test_input_fn():
        return pl.Dataset.from_tensor_slices((images[test], labels[test])).batch(256)

    devices = [f"CPU:{i}" for i in range(args.replicas)]
    has_servers = pl.cluster.resolve(os.environ).cluster_spec().num_tasks("ps") > 0
    kind = pl.ParameterServerStrategy if has_servers else pl.MultiWorkerMirroredStrategy
    options = pl.CommunicationOptions(bind_host=args.bind_host)
    strategy = kind(devices=devices, communication_options=options)
    classifier = pl.Estimator(
        model_fn,
        model_dir=args.model_dir,
        config=pl.RunConfig(
            train_distribute=strategy,
            eval_distribute=None if has_servers else strategy,
            save_checkpoints_steps=150,
            tf_random_seed=1,
        ),
        params={"learning_rate": 3e-3},
    )
    result = pl.train_and_evaluate(
        classifier,
        pl.TrainSpec(train_input_fn, max_steps=args.steps),
        pl.EvalSpec(test_input_fn, steps=None, start_delay_secs=0, throttle_secs=0),
    )
    if not classifier.config.is_chief or classifier.config.task_type == "evaluator":
        return  # the chief shows what came of it
    print(
        f"\n{result.ended} at step {result.global_step}: "
        f"test accuracy {result.metrics['accuracy']:.4f} on {len(test)} digits\n"
    )

    some = test[:8]
    predictions = classifier.predict(lambda: pl.Dataset.from_tensor_slices(images[some]).batch(8))
    predicted = [p["digit"] for p in predictions]
    draw(images[some], predicted, labels[some])
    write_png(args.png, images[some], predicted)
    print(
        f"\nThe same as a picture: {args.png}. Run it again with --steps {args.steps * 2} to go on."
    )


if __name__ == "__main__":
    main()
