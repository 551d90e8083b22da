"""MB-22: a GAN, whose two models have an optimizer each and take unequal numbers of steps."""

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Sequential, layers, optimizers
from paceline.strategies import VariableStore

ROUNDS, DISCRIMINATOR_STEPS, GLOBAL_BATCH = 6, 5, 8


def mlp(name, *sizes):
    return Sequential(
        [
            layers.Dense(size, activation=activation, dtype="float64", name=f"{name}{index}")
            for index, (size, activation) in enumerate(zip(sizes, ["tanh", None], strict=True))
        ]
    )


def softplus(x):
    return np.log1p(np.exp(x))


def train_gan(strategy):
    """The weights of both models, and how many steps each optimizer has made."""
    with VariableStore(seed=4).building():
        return _trained(strategy)


def _trained(strategy):
    with strategy.scope():
        generator, discriminator = mlp("generator", 6, 2), mlp("discriminator", 8, 1)
        of_generator, of_discriminator = optimizers.Adam(0.02), optimizers.SGD(0.1, momentum=0.5)

    def discriminator_loss(real, noise):
        return softplus(-discriminator(real)) + softplus(discriminator(generator(noise)))

    def generator_loss(real, noise):
        return softplus(-discriminator(generator(noise)))

    def make_step(loss_of, model, optimizer):
        @pl.function
        def step(batch):
            with pl.GradientTape() as tape:
                loss = loss_of(*batch).sum() / GLOBAL_BATCH
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        return step

    step_of_discriminator = make_step(discriminator_loss, discriminator, of_discriminator)
    step_of_generator = make_step(generator_loss, generator, of_generator)
    rng = np.random.default_rng(1)
    num_batches = ROUNDS * (DISCRIMINATOR_STEPS + 1)
    real = rng.normal(2.0, 0.5, (num_batches * GLOBAL_BATCH - 3, 2))  # the last batch is uneven
    data = pl.Dataset.from_tensor_slices((real, rng.normal(size=(len(real), 3))))
    batches = iter(strategy.experimental_distribute_dataset(data.batch(GLOBAL_BATCH)))
    for _ in range(ROUNDS):
        for _ in range(DISCRIMINATOR_STEPS):
            strategy.run(step_of_discriminator, (next(batches),))
        strategy.run(step_of_generator, (next(batches),))
    weights = [v.numpy() for model in (generator, discriminator) for v in model.variables]
    return weights, [int(o.iterations.numpy()) for o in (of_generator, of_discriminator)]


@pytest.fixture(scope="module")
def of_one_process():
    return train_gan(pl.OneDeviceStrategy("CPU:0"))


def assert_equal(found, expected):
    weights, steps = found
    assert steps == expected[1] == [ROUNDS, ROUNDS * DISCRIMINATOR_STEPS]
    for one, other in zip(weights, expected[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_mb_22_replicas_train_a_gan_as_one_process_does(every_strategy, of_one_process):
    assert_equal(train_gan(every_strategy), of_one_process)


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_mb_22_two_workers_train_a_gan_as_one_process_does(
    on_workers, num_replicas, of_one_process
):
    for found in on_workers(2, num_replicas, lambda strategy, _: train_gan(strategy)):
        assert_equal(found, of_one_process)
