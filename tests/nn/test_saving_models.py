"""Saving and loading models: whole and their weights, under any strategy (ST-08, CK-13)."""

import os
from contextlib import nullcontext

import numpy as np
import pytest

from paceline import checkpoint
from paceline.autodiff import GradientTape
from paceline.checkpoint import CheckpointError
from paceline.nn import (
    Input,
    Model,
    Sequential,
    compute_average_loss,
    layers,
    load_model,
    losses,
    metrics,
    optimizers,
)
from paceline.nn.callbacks import ModelCheckpoint
from paceline.nn.optimizers import schedules
from paceline.strategies import (
    CentralStorageStrategy,
    MirroredStrategy,
    OneDeviceStrategy,
    VariableStore,
)

RNG = np.random.default_rng(0)
BATCHES = [
    (RNG.normal(size=(4, 3)).astype(np.float32), RNG.normal(size=(4, 2)).astype(np.float32))
    for _ in range(6)
]
STRATEGIES = {
    "one": lambda: OneDeviceStrategy("CPU:0"),
    "mirrored": lambda: MirroredStrategy(["CPU:0", "CPU:1"]),
    "central": lambda: CentralStorageStrategy(["CPU:0", "CPU:1"]),
}


def sequential():
    return Sequential(
        [
            Input((3,)),
            layers.Dense(4, "relu"),
            layers.BatchNormalization(synchronized=True),
            layers.Dense(2),
        ]
    )


def graph():
    inputs = Input((3,))
    hidden = layers.Dense(4, "relu")(inputs)
    return Model(
        inputs, layers.Dense(2)(layers.BatchNormalization(synchronized=True)(hidden) * 2.0)
    )


class Written(Model):
    def __init__(self, units=4):
        super().__init__()
        self.hidden = layers.Dense(units, "relu")
        self.rest = [layers.BatchNormalization(synchronized=True), layers.Dense(2)]

    def call(self, inputs, training=False):
        return self.rest[1](self.rest[0](self.hidden(inputs), training=training))


CUSTOM = {"Written": Written}
MODELS = {"sequential": sequential, "graph": graph, "of one's own": Written}


def compiled(make):
    model = make()
    rate = schedules.ExponentialDecay(0.1, 2, 0.5)
    optimizer = optimizers.SGD(rate, momentum=0.9, clipnorm=1.0)
    model.compile(optimizer, losses.Huber(delta=2.0), ["mse", metrics.AUC(num_thresholds=5)])
    return model


def train(model, strategy, batches):
    """Steps with the model's own optimizer, in which each replica has its part of a batch."""
    num_replicas = strategy.num_replicas_in_sync
    parts = [[np.split(array, num_replicas) for array in batch] for batch in batches]

    def step(given):
        x, y = given
        with GradientTape() as tape:
            errors = np.mean(np.square(model(x, training=True) - y), axis=1)
            loss = compute_average_loss(errors, global_batch_size=len(x) * num_replicas)
        weights = model.trainable_weights
        model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    with strategy.scope():
        for x, y in parts:
            values = strategy.experimental_distribute_values_from_function(
                lambda c, x=x, y=y: (x[c.replica_id_in_sync_group], y[c.replica_id_in_sync_group])
            )
            strategy.run(step, (values,))


def weights_of(model):
    return [*model.get_weights(), *(v.numpy() for v in model.optimizer.existing_variables)]


@pytest.fixture(scope="module")
def uninterrupted():
    """The weights and the optimizer's state after six steps of one replica, by model."""
    found = {}
    for name, make in MODELS.items():
        with VariableStore(seed=1).building():
            model = compiled(make)
            train(model, STRATEGIES["one"](), BATCHES)
            found[name] = weights_of(model)
    return found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("before", "after", "in_scope"),
    [
        ("one", "one", False),
        ("one", "mirrored", True),
        ("mirrored", "central", False),
        ("central", "one", True),
    ],
)
def test_ck_13_a_saved_model_goes_on_under_any_strategy_as_if_it_had_not_been_saved(
    tmp_path, uninterrupted, name, before, after, in_scope
):
    first, second = STRATEGIES[before](), STRATEGIES[after]()
    with first.scope():
        model = compiled(MODELS[name])
    train(model, first, BATCHES[:3])
    with first.scope() if in_scope else nullcontext():
        model.save(tmp_path / "m")
    with second.scope():
        again = load_model(tmp_path / "m", custom_objects=CUSTOM)
    train(again, second, BATCHES[3:])
    found = weights_of(again)
    assert len(found) == len(uninterrupted[name]) > 12
    for ours, expected in zip(found, uninterrupted[name], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_st_08_saved_outside_and_loaded_inside_a_scope_a_model_predicts_the_same(tmp_path, make):
    model = compiled(make)
    expected = model(BATCHES[0][0]).numpy()
    model.save(tmp_path / "m")
    with STRATEGIES["mirrored"]().scope():
        again = load_model(tmp_path / "m", custom_objects=CUSTOM)
        np.testing.assert_array_equal(again(BATCHES[0][0]).numpy(), expected)
    assert [w.num_copies for w in again.weights] == [2] * len(again.weights)


def test_what_the_model_was_compiled_with_comes_back_and_can_be_left_away(tmp_path):
    model = compiled(sequential)
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.get_compile_config()["loss"]["config"]["delta"] == 2.0
    assert again.get_compile_config()["metrics"] == model.get_compile_config()["metrics"]
    assert again.optimizer.get_config() == model.optimizer.get_config()
    assert not load_model(tmp_path / "m", compile=False).is_compiled
    model.save(tmp_path / "n", include_optimizer=False)
    assert not load_model(tmp_path / "n").is_compiled


def test_what_was_loaded_and_not_used_is_saved_again_with_all_that_is_still_to_be_created(tmp_path):
    strategy = STRATEGIES["one"]()
    model = compiled(Written)
    train(model, strategy, BATCHES[:2])
    model.save(tmp_path / "m")
    load_model(tmp_path / "m", custom_objects=CUSTOM).save(tmp_path / "n")
    again = load_model(tmp_path / "n", custom_objects=CUSTOM)
    for one in (model, again):
        train(one, strategy, BATCHES[2:3])
    for ours, expected in zip(weights_of(again), weights_of(model), strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("whole", [True, False], ids=["a saved model", "weights"])
def test_weights_go_into_a_model_alike_built_or_not(tmp_path, whole):
    model = compiled(Written)
    expected = model(BATCHES[0][0]).numpy()
    (model.save if whole else model.save_weights)(tmp_path / "ckpt_1")
    for is_built in (True, False):
        other = Written()
        if is_built:
            other(BATCHES[0][0])
        other.load_weights(tmp_path / "ckpt_1")
        np.testing.assert_array_equal(other(BATCHES[0][0]).numpy(), expected)


def test_of_a_directory_of_several_the_newest_weights_are_loaded(tmp_path):
    model = sequential()
    for epoch, value in ((2, 5.0), (1, 7.0)):
        model.set_weights([np.full(w.shape, value) for w in model.weights])
        model.save_weights(tmp_path / f"ckpt_{epoch}")
    model.set_weights([np.zeros(w.shape) for w in model.weights])
    model.load_weights(tmp_path)
    assert model.get_weights()[0][0, 0] == 7.0


def test_a_checkpoint_of_a_run_gives_weights_of_the_same_names(tmp_path):
    model = sequential()
    values = {w.name: np.full(w.shape, 3.0, np.float32) for w in model.weights}
    path = checkpoint.save(tmp_path, 5, {**values, "global_step": np.int64(5)})
    model.load_weights(path)
    assert model.get_weights()[0][0, 0] == 3.0


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: Sequential([Input((3,)), layers.Dense(4)]), "has 2 layers .* saved one has 4"),
        (lambda: Sequential([Input((3,)), layers.Dense(4), layers.BatchNormalization(),
                             layers.Dense(3)]), r"kernel' has shape \(4, 3\), and \(4, 2\) in it"),
        (lambda: Sequential([Input((3,)), layers.Dense(4), layers.BatchNormalization(scale=False),
                             layers.Dense(2)]), "gamma' is not in the model"),
    ],
    ids=["fewer layers", "another shape", "fewer weights"],
)  # fmt: skip
def test_weights_that_do_not_fit_change_nothing(tmp_path, other, message):
    sequential().save_weights(tmp_path / "w")
    model = other()
    before = model.get_weights()
    with pytest.raises(ValueError, match=message):
        model.load_weights(tmp_path / "w")
    for ours, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_what_cannot_be_written_down_is_said_before_anything_is_written(tmp_path):
    model = Sequential([Input((3,)), layers.Dense(1, activation=lambda x: x)])
    with pytest.raises(TypeError, match=r"activation of Dense.*has no name"):
        model.save(tmp_path / "m")
    model = sequential()
    model.compile("sgd", loss=lambda y, p: np.mean(y - p, axis=1))
    with pytest.raises(TypeError, match="has no name"):
        model.save(tmp_path / "m")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("ending", [".h5", ".weights.h5", ".hdf5"])
def test_names_of_hdf5_files_are_refused_and_a_name_like_keras_is_a_directory(tmp_path, ending):
    model = sequential()
    with pytest.raises(ValueError, match=r"saves models as directories.*\.keras"):
        model.save(tmp_path / f"m{ending}")
    with pytest.raises(ValueError, match="saves models as directories"):
        model.load_weights(tmp_path / f"m{ending}")
    model.save(tmp_path / "m.keras")
    assert load_model(tmp_path / "m.keras").count_params() == model.count_params()


def test_a_file_of_keras_and_a_missing_path_are_told_apart(tmp_path):
    (tmp_path / "m.keras").write_bytes(b"PK")
    with pytest.raises(CheckpointError, match=r"is a file.*set_weights"):
        load_model(tmp_path / "m.keras")
    with pytest.raises(CheckpointError, match="does not exist"):
        load_model(tmp_path / "n")
    sequential().save_weights(tmp_path / "w")
    with pytest.raises(CheckpointError, match="holds weights and no model"):
        load_model(tmp_path / "w")
    with pytest.raises(CheckpointError, match="overwrite=True"):
        sequential().save(tmp_path / "w", overwrite=False)


def test_on_several_workers_the_chief_writes_and_all_know_how_it_ended(tmp_path, on_workers):
    def work(strategy, index):
        with strategy.scope():
            model = compiled(sequential)
            model.save(tmp_path / "m")
            model.save(tmp_path / ("a" if index == 0 else "b"))
            with pytest.raises(CheckpointError, match="was not saved by paceline"):
                model.save(tmp_path)
            return load_model(tmp_path / "m").get_weights()

    both = on_workers(2, 1, work)
    for ours, theirs in zip(*both, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for name in ("a", "b"):
        assert load_model(tmp_path / name).count_params() > 0


def test_layers_of_the_same_name_take_weights_from_a_model_with_others(tmp_path):
    def model_of(*last):
        return Sequential([Input((3,)), layers.Dense(4, name="body"), *last])

    with VariableStore(seed=5).building():
        saved = model_of(layers.Dense(2, name="head"))
        saved.save_weights(tmp_path / "w")
    model = model_of(layers.Dense(1, name="middle"), layers.Dense(5, name="head"))
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"'head/kernel' has shape \(1, 5\), and \(4, 2\) in it"):
        model.load_weights(tmp_path / "w", by_name=True)
    model.load_weights(tmp_path / "w", by_name=True, skip_mismatch=True)
    np.testing.assert_array_equal(model.get_weights()[0], saved.get_weights()[0])
    for ours, theirs in zip(model.get_weights()[2:], before[2:], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("path", ["model", "./model", "model.keras", "saved_model/"])
def test_a_model_may_be_saved_in_the_current_directory(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    model = Sequential([Input((3,)), layers.Dense(2)])
    model.compile("sgd", "mse")
    for _ in range(2):  # the second replaces the first
        model.save(path)
    np.testing.assert_array_equal(load_model(path).get_weights()[0], model.get_weights()[0])
    model.save_weights("w")
    model.load_weights("w")
    best = ModelCheckpoint("best.keras", monitor="loss")
    model.fit(*BATCHES[0], verbose=0, callbacks=[best])
    assert load_model("best.keras").count_params() == model.count_params()
    visible = {name for name in os.listdir() if not name.startswith(".")}
    assert visible == {os.path.normpath(path), "w", "best.keras"}


def named():
    return Sequential([Input((3,)), layers.Dense(4, name="first"), layers.Dense(2, name="last")])


def test_a_model_loaded_in_the_process_that_saved_it_has_the_names_that_it_was_saved_with(tmp_path):
    model = named()
    model.compile("sgd", "mse")
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert [layer.name for layer in loaded.layers] == ["first", "last"]
    for ours, theirs in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_weights_by_name_are_those_of_the_layers_of_that_name_in_any_model_of_the_process(tmp_path):
    Sequential([Input((3,)), layers.Dense(4, name="first")])  # has the name of the variables
    saved = named()
    saved.save_weights(tmp_path / "weights")
    other = Sequential([Input((3,)), layers.Dense(4, name="first"), layers.Dense(3, name="new")])
    new = other.layers[1].get_weights()
    other.load_weights(tmp_path / "weights", by_name=True)
    np.testing.assert_array_equal(other.get_weights()[0], saved.get_weights()[0])
    np.testing.assert_array_equal(other.get_weights()[2], new[0])


@pytest.mark.parametrize("name", ["model", "model.keras", "./model", "model/"])
def test_a_model_is_saved_under_a_name_in_the_current_directory(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = named()
    model.compile("sgd", "mse")
    for _ in range(2):  # the second replaces the first
        model.save(filepath=name)
    loaded = load_model(filepath=name)
    loaded.save_weights(filepath="weights")
    loaded.set_weights([np.zeros_like(weight) for weight in loaded.get_weights()])
    loaded.load_weights(filepath="weights")
    for ours, theirs in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_options_of_tensorflow_are_refused_where_they_ask_for_something(tmp_path):
    model = named()
    model.save_weights(tmp_path / "weights", options=None)
    with pytest.raises(ValueError, match="options must be None"):
        model.save_weights(tmp_path / "weights", options="a device")
