"""Two networks against each other, in a loop of one's own: a generative adversarial network.

    python examples/gan.py                       # one process, MirroredStrategy
    python examples/gan.py --devices CPU:0 CPU:1 # several devices, or GPU:0 GPU:1
    paceline launch --workers 2 examples/gan.py  # MultiWorkerMirroredStrategy

A generator turns noise into points, a discriminator tells them from real ones, and each has an
optimizer of its own (Goodfellow et al. 2014, "Generative adversarial nets"), which make their steps
in turn: `--steps-of-discriminator` for each one of the generator. The real points lie on a ring of
radius 2; in 1000 rounds, some seconds, the generator's points are on average within 0.2 of it, and
in each quarter of it are at least 15 % of them. A picture in characters shows where.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

import paceline as pl
from paceline import nn
from paceline.nn import Sequential, layers, losses, optimizers

RADIUS, NOISE_WIDTH, BATCH = 2.0, 2, 128


def real_points():
    """Endless (real point, noise): all that is random comes with the batch, as on any replica."""

    def draw(index):
        rng = np.random.default_rng(int(index))
        angle, distance = rng.uniform(0, 2 * np.pi), rng.normal(RADIUS, 0.05)
        point = distance * np.array([np.cos(angle), np.sin(angle)])
        return point.astype(np.float32), rng.normal(size=NOISE_WIDTH).astype(np.float32)

    return pl.Dataset.range(1 << 40).map(draw).batch(BATCH)


def make_strategy(devices):
    """That of one process, or of the workers that a launcher has started."""
    num_workers = pl.cluster.resolve(os.environ).cluster_spec().num_tasks("worker")
    kind = pl.MultiWorkerMirroredStrategy if num_workers > 1 else pl.MirroredStrategy
    return kind(devices=devices)


def network(num_inputs, num_outputs):
    hidden = [layers.Dense(32, "leaky_relu") for _ in range(2)]
    return Sequential([nn.Input((num_inputs,)), *hidden, layers.Dense(num_outputs)])


class Game:
    """The two networks and how each makes a step."""

    def __init__(self):
        self.generator, self.discriminator = network(NOISE_WIDTH, 2), network(2, 1)
        self.generators = optimizers.Adam(1e-3, beta_1=0.5)
        self.discriminators = optimizers.Adam(4e-3, beta_1=0.5)
        self.cross_entropy = losses.BinaryCrossentropy(
            from_logits=True, reduction=losses.Reduction.NONE
        )

    def loss(self, points, are_real):
        """How far the discriminator is from calling these points real, or made up."""
        verdicts = self.discriminator(points)
        each = self.cross_entropy(np.full(verdicts.shape, are_real, np.float32), verdicts)
        return nn.compute_average_loss(each, global_batch_size=BATCH)

    def discriminate(self, real, noise):
        with pl.GradientTape() as tape:
            loss = self.loss(real, 1) + self.loss(pl.stop_gradient(self.generator(noise)), 0)
        self.apply(tape, loss, self.discriminator, self.discriminators)

    def generate(self, real, noise):
        with pl.GradientTape() as tape:
            loss = self.loss(self.generator(noise), 1)
        self.apply(tape, loss, self.generator, self.generators)

    def apply(self, tape, loss, network, optimizer):
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))


def picture(points):
    """Where the points are, from -3 to 3, as 13 lines."""
    counts, _, _ = np.histogram2d(points[:, 1], points[:, 0], (13, 37), ((-3, 3), (-3, 3)))
    shades = np.array(list(" .:*#"))[np.minimum(counts, 4).astype(int)]
    return "\n".join("".join(row).rstrip() for row in shades[::-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", nargs="+", default=["CPU:0"], help="of each worker")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--steps-of-discriminator", type=int, default=1)
    args = parser.parse_args()
    pl.set_seed(1)
    strategy = make_strategy(args.devices)
    with strategy.scope():
        game = Game()
    batches = iter(strategy.experimental_distribute_dataset(real_points()))
    for _ in range(args.rounds):
        for _ in range(args.steps_of_discriminator):
            strategy.run(game.discriminate, next(batches))
        strategy.run(game.generate, next(batches))
    if strategy.extended.job.is_chief:
        noise = np.random.default_rng(0).normal(size=(500, NOISE_WIDTH)).astype(np.float32)
        points = game.generator(noise).numpy()
        away = np.abs(np.linalg.norm(points, axis=1) - RADIUS).mean()
        print(picture(points))
        quarters = np.histogram(np.arctan2(*points.T), 4, (-np.pi, np.pi))[0] / len(points)
        print(
            f"on average {away:.3f} away from the ring, in each quarter {min(quarters):.0%} or more"
        )


if __name__ == "__main__":
    main()
