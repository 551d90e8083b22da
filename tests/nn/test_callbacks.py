"""Callbacks of `fit`: what they decide, write and print, also on replicas and workers."""

import csv
import os
import re

import numpy as np
import pytest

from paceline.inputs import Dataset
from paceline.nn import Input, Sequential, layers, load_model, optimizers
from paceline.nn.callbacks import (
    BackupAndRestore,
    Callback,
    CSVLogger,
    EarlyStopping,
    LambdaCallback,
    LearningRateScheduler,
    ModelCheckpoint,
    ReduceLROnPlateau,
    TensorBoard,
    TerminateOnNaN,
)
from paceline.nn.callbacks.progress_bar import last_line, moving_line, short_line
from paceline.strategies import MirroredStrategy, set_seed

RNG = np.random.default_rng(0)
X = RNG.normal(size=(18, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5]], np.float32)).astype(np.float32)


@pytest.fixture(autouse=True)
def store():
    """Models of their own, made outside any model_fn as users of `fit` make them."""
    set_seed(1)
    yield
    set_seed(None)


def model_of(rate=0.05, dropout=0.0):
    model = Sequential(
        [Input((3,)), layers.Dense(4, "tanh"), layers.Dropout(dropout), layers.Dense(1)]
    )
    model.compile(optimizers.SGD(rate, momentum=0.9), "mse", ["mae"])
    return model


def fit(model, *callbacks, epochs=3, **options):
    return model.fit(
        X, Y, batch_size=4, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks, **options
    )


class Says(Callback):
    """Puts figures into the logs of each epoch, for callbacks behind it."""

    def __init__(self, **figures):
        super().__init__()
        self.figures = figures

    def on_epoch_end(self, epoch, logs=None):
        logs.update({name: values[epoch] for name, values in self.figures.items()})


@pytest.mark.parametrize(
    ("options", "values", "num_epochs"),
    [
        ({}, [3, 2, 1, 2, 1], 4),
        ({"patience": 2}, [3, 2, 4, 3, 1], 4),
        ({"patience": 2}, [3, 2, 4, 1, 2], 5),
        ({"mode": "max", "patience": 1}, [1, 2, 3, 2, 9], 4),
        ({"min_delta": 0.5, "patience": 1}, [3, 2.8, 2.7, 1, 1], 2),
        ({"baseline": 2.0, "patience": 2}, [5, 4, 3, 1, 1], 2),
        ({"start_from_epoch": 3}, [1, 2, 3, 4, 5], 5),
        ({"patience": 1}, [float("nan")] * 5, 2),
    ],
)
def test_training_stops_where_a_figure_has_stopped_becoming_better(options, values, num_epochs):
    stop = EarlyStopping("figure", **options)
    history = fit(model_of(), Says(figure=values), stop, epochs=5)
    assert len(history.history["loss"]) == num_epochs


def test_the_best_weights_come_back_and_it_is_said(capsys):
    weights = []
    note = LambdaCallback(on_epoch_end=lambda epoch, logs: weights.append(model.get_weights()))
    stop = EarlyStopping("figure", patience=2, restore_best_weights=True, verbose=1)
    model = model_of()
    fit(model, Says(figure=[3, 1, 2, 2, 2]), note, stop, epochs=5)
    for ours, best in zip(model.get_weights(), weights[1], strict=True):
        np.testing.assert_array_equal(ours, best)
    told = capsys.readouterr().out
    assert "from the end of the best epoch: 2." in told
    assert "Epoch 4: early stopping" in told


def test_a_figure_that_is_not_there_is_warned_of_with_those_that_are(caplog):
    fit(model_of(), EarlyStopping("val_los"), epochs=2)
    assert "goes by 'val_los', which is not in the logs" in caplog.text
    assert "loss, mae" in caplog.text


def test_a_loss_that_is_no_number_ends_training_after_its_batch(capsys):
    seen = []
    note = LambdaCallback(on_batch_end=lambda batch, logs: seen.append(logs["loss"]))
    bad = np.where(np.arange(18)[:, None] == 9, np.nan, Y).astype(np.float32)
    model = model_of()
    model.fit(
        X, bad, batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=[note, TerminateOnNaN()]
    )
    assert len(seen) == 3
    assert "Batch 2: Invalid loss" in capsys.readouterr().out


@pytest.mark.parametrize(
    "schedule",
    [lambda epoch: 0.1 / (epoch + 1), lambda epoch, rate: 0.1 if epoch == 0 else rate / 2],
    ids=["of the epoch", "of the epoch and the rate"],
)
def test_a_scheduler_sets_the_rate_before_each_epoch(schedule):
    model = model_of()
    history = fit(model, LearningRateScheduler(schedule), epochs=2)
    np.testing.assert_allclose(history.history["lr"], [0.1, 0.05])
    assert float(model.optimizer.learning_rate) == pytest.approx(0.05)


def test_a_rate_that_is_none_is_refused_by_the_callback_that_gave_it():
    with pytest.raises(ValueError, match="LearningRateScheduler: a learning rate must be"):
        fit(model_of(), LearningRateScheduler(lambda epoch: None))


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({"patience": 1, "factor": 0.5}, [0.05, 0.05, 0.05, 0.025, 0.0125]),
        ({"patience": 1, "factor": 0.5, "cooldown": 2}, [0.05, 0.05, 0.05, 0.025, 0.025]),
        ({"patience": 1, "factor": 0.1, "min_lr": 0.02}, [0.05, 0.05, 0.05, 0.02, 0.02]),
        ({"patience": 9}, [0.05] * 5),
    ],
)
def test_the_rate_is_lowered_on_a_plateau(options, rates):
    history = fit(
        model_of(), Says(figure=[3, 2, 2, 2, 2]), ReduceLROnPlateau("figure", **options), epochs=5
    )
    np.testing.assert_allclose(history.history["lr"], rates)


def test_a_checkpoint_is_saved_after_each_epoch_by_its_figures(tmp_path, capsys):
    model = model_of()
    path = tmp_path / "ckpt-{epoch:02d}-{figure:.2f}"
    fit(model, Says(figure=[3, 1, 2]), ModelCheckpoint(path, "figure", verbose=1))
    names = sorted(name for name in os.listdir(tmp_path) if not name.startswith("."))
    assert names == ["ckpt-01-3.00", "ckpt-02-1.00", "ckpt-03-2.00"]
    again = load_model(tmp_path / names[-1])
    for ours, theirs in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert "Epoch 1: saving model to" in capsys.readouterr().out


def test_only_the_best_is_saved(tmp_path):
    weights = []
    note = LambdaCallback(on_epoch_end=lambda epoch, logs: weights.append(model.get_weights()))
    model = model_of()
    best = ModelCheckpoint(tmp_path / "w", "figure", save_best_only=True, save_weights_only=True)
    fit(model, Says(figure=[3, 1, 2]), note, best)
    model.load_weights(tmp_path / "w")
    for ours, theirs in zip(model.get_weights(), weights[1], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert best.best == 1


def test_a_checkpoint_is_saved_after_so_many_batches_across_epochs(tmp_path):
    fit(model_of(), ModelCheckpoint(tmp_path / "{epoch}-{batch}-{loss:.0f}", save_freq=4), epochs=2)
    names = sorted(name[:3] for name in os.listdir(tmp_path) if not name.startswith("."))
    assert names == ["1-4", "2-3"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelCheckpoint("m.h5"), "HDF5"),
        (lambda: ModelCheckpoint("m", save_freq=0), "save_freq must be 'epoch' or"),
        (lambda: ModelCheckpoint("m", mode="least"), "mode must be one of"),
        (lambda: ReduceLROnPlateau(factor=1.0), "factor must be"),
        (lambda: TensorBoard(update_freq="step"), "update_freq must be"),
        (lambda: BackupAndRestore("m", save_freq="batch"), "save_freq must be"),
    ],
)
def test_arguments_that_mean_nothing_are_refused_at_once(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_function_of_an_event_that_there_is_not_is_refused():
    with pytest.raises(TypeError, match=r"no 'on_epoch_finish'; there are .*on_epoch_end"):
        LambdaCallback(on_epoch_finish=print)


def test_a_path_of_figures_that_are_not_there_says_which_are():
    with pytest.raises(ValueError, match=r"cannot be filled in .*there are epoch, loss, mae"):
        fit(model_of(), ModelCheckpoint("never/{val_loss}"))


def test_the_logs_are_a_table_of_one_line_an_epoch_and_can_be_gone_on_with(tmp_path):
    path = tmp_path / "logs" / "log.csv"
    history = fit(model_of(), CSVLogger(path), epochs=2)
    fit(model_of(), CSVLogger(path, append=True), epochs=1)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1", "0"]
    assert [float(row["loss"]) for row in rows[:2]] == pytest.approx(history.history["loss"])


def test_figures_of_training_and_validation_are_in_event_files_of_their_own(tmp_path):
    board = TensorBoard(tmp_path, histogram_freq=1, update_freq=2)
    fit(model_of(), board, epochs=2, validation_data=(X, Y))
    assert sorted(os.listdir(tmp_path)) == ["train", "validation"]
    for name, expected in (
        ("train", {"epoch_loss", "epoch_mae", "epoch_learning_rate", "batch_loss", "batch_mae"}),
        ("validation", {"epoch_loss", "epoch_mae"}),
    ):
        (file,) = (tmp_path / name).iterdir()
        content = file.read_bytes()
        found = set(map(bytes.decode, re.findall(rb"(?:epoch|batch)_[a-z_]+[a-z]", content)))
        assert found == expected
        assert (b"/kernel/histogram" in content) == (name == "train")


def weights_after(num_epochs, *callbacks, model=None, **options):
    model = model_of(dropout=0.3) if model is None else model
    model.fit(X, Y, batch_size=4, epochs=num_epochs, verbose=0, callbacks=callbacks, **options)
    return [*model.get_weights(), *(v.numpy() for v in model.optimizer.variables)]


class Fails(Callback):
    """Ends the run in the midst of it, as a crash does."""

    def __init__(self, epoch, batch, error=KeyboardInterrupt):
        super().__init__()
        self.at, self.epoch, self.error = (epoch, batch), 0, error

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            raise self.error


@pytest.mark.parametrize("save_freq", ["epoch", 2])
@pytest.mark.parametrize("at", [(1, 0), (1, 3), (2, 4)], ids=str)
@pytest.mark.parametrize("num_replicas", [1, 2])
def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not_been(
    tmp_path, save_freq, at, num_replicas
):
    def run(*callbacks):
        set_seed(3)
        strategy = MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
        with strategy.scope():
            return weights_after(4, *callbacks, model=model_of(dropout=0.3))

    expected = run()
    with pytest.raises(KeyboardInterrupt):
        run(BackupAndRestore(tmp_path / "b", save_freq), Fails(*at))
    made = []
    note = LambdaCallback(on_batch_end=lambda batch, logs: made.append(batch))
    found = run(BackupAndRestore(tmp_path / "b", save_freq), note)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    epoch, done = at[0], at[0] * 5 + at[1]
    saved = max(epoch * 5, done // 2 * 2) if save_freq == 2 else epoch * 5
    assert len(made) == 20 - saved
    assert not (tmp_path / "b" / "backup").exists()


def test_a_callback_that_fails_names_itself():
    class Broken(Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise RuntimeError("no")

    with pytest.raises(RuntimeError) as caught:
        fit(model_of(), Broken())
    assert "Raised by callback Broken in on_epoch_end" in "".join(caught.value.__notes__)


def on_two(on_workers, work):
    """What `work(model, index)` gives on each of two workers that train one model."""

    def on_one(strategy, index):
        with strategy.scope():
            return work(model_of(), index)

    return on_workers(2, 1, on_one)


def test_all_workers_stop_after_the_same_epoch_and_the_chief_alone_writes_and_prints(
    tmp_path, on_workers, capsys
):
    def work(model, index):
        history = model.fit(
            X,
            Y,
            batch_size=4,
            epochs=5,
            verbose=2,
            shuffle=False,
            validation_data=(X[:3], Y[:3]),  # which ends in the midst of a step
            callbacks=[
                Says(figure=[3, 1, 2, 2, 2]),
                ModelCheckpoint(tmp_path / "{epoch}-{val_loss:.3f}"),
                CSVLogger(tmp_path / "log.csv"),
                TensorBoard(tmp_path / "board", histogram_freq=1),
                ReduceLROnPlateau("figure", patience=1, factor=0.5),
                EarlyStopping("figure", patience=2, restore_best_weights=True, verbose=1),
            ],
        )
        return history.history, model.get_weights()

    (logs, weights), (others_logs, others_weights) = on_two(on_workers, work)
    assert logs == others_logs
    assert len(logs["loss"]) == 4
    for ours, theirs in zip(weights, others_weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert logs["lr"] == [0.05, 0.05, 0.05, 0.025]
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("Epoch")] == [
        "Epoch 1/5", "Epoch 2/5", "Epoch 3/5", "Epoch 4/5", "Epoch 4: early stopping",
    ]  # fmt: skip
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 5
    assert len([name for name in os.listdir(tmp_path) if re.match(r"\d-", name)]) == 4
    assert len(list((tmp_path / "board" / "train").iterdir())) == 1


def test_a_loss_that_is_no_number_on_one_worker_stops_all_after_that_batch(on_workers):
    def work(model, index):
        made = []
        note = LambdaCallback(on_batch_end=lambda batch, logs: made.append(batch))
        bad = np.where(np.arange(18)[:, None] == 9, np.nan, Y).astype(np.float32)
        stop = TerminateOnNaN()
        model.fit(X, bad, batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=[note, stop])
        return made

    assert on_two(on_workers, work) == [[0, 1, 2], [0, 1, 2]]


def test_one_worker_that_wants_to_stop_ends_training_for_all(on_workers):
    def work(model, index):
        made = []

        def stop(batch, logs):
            made.append(batch)
            model.stop_training = index == 1 and batch == 1

        model.fit(
            X, Y, batch_size=4, epochs=3, verbose=0, callbacks=[LambdaCallback(on_batch_end=stop)]
        )
        return made

    assert on_two(on_workers, work) == [[0, 1], [0, 1]]


@pytest.mark.parametrize("num_after", [1, 2])
@pytest.mark.parametrize("save_freq", ["epoch", 2])
def test_workers_that_were_interrupted_go_on_as_many_or_as_fewer(
    tmp_path, on_workers, save_freq, num_after
):
    def run(*callbacks, num_workers=2):
        def work(strategy, index):
            with strategy.scope():
                model = model_of()
                weights = [np.full(w.shape, 0.1, np.float32) for w in model.weights]
                model.set_weights(weights)
                data = Dataset.from_tensor_slices((X, Y)).shuffle(18, seed=7).batch(4)
                made = [make() for make in callbacks]
                model.fit(data, epochs=4, verbose=0, callbacks=made)
                return [*model.get_weights(), *(v.numpy() for v in model.optimizer.variables)]

        return on_workers(num_workers, 1, work)

    expected = run()

    def backup():
        return BackupAndRestore(tmp_path / "b", save_freq)

    with pytest.raises(RuntimeError, match="crash"):
        run(backup, lambda: Fails(2, 3, RuntimeError("crash")))
    found = run(backup, num_workers=num_after)
    for ours, theirs in zip(found[0], expected[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0 if num_after == 2 else 1e-4)


EPOCH = r"5/5 \[={30}\] - \ds \d+(ms|us|s)/step - loss: \d\.\d{4} - mae: \d\.\d{4}"


@pytest.mark.parametrize(
    ("verbose", "lines"),
    [
        (0, []),
        (1, [r"Epoch 1/2", EPOCH, r"Epoch 2/2", EPOCH]),
        (2, [r"Epoch 1/2", r"5/5 - \ds - loss: .* - mae: .*/epoch - .*/step"] * 2),
        ("auto", [r"Epoch 1/2", r"5/5 - \ds - loss: .* - mae: .*/epoch - .*/step"] * 2),
    ],
)
def test_ob_04_where_there_is_no_terminal_an_epoch_is_a_line(capsys, verbose, lines):
    model_of().fit(X, Y, batch_size=4, epochs=2, verbose=verbose)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(lines)
    for line, pattern in zip(printed, lines, strict=True):
        assert re.fullmatch(pattern.replace("1/2", "[12]/2"), line)


def test_ob_04_evaluations_and_predictions_have_a_line_outside_of_fit_only(capsys):
    model = model_of()
    model.fit(X, Y, batch_size=4, verbose=1, validation_data=(X, Y))
    (line,) = capsys.readouterr().out.splitlines()
    assert re.search(r"val_loss: .* - val_mae: ", line)
    model.evaluate(X, Y, batch_size=4, verbose=1)
    model.predict(X, batch_size=4, verbose=2)
    evaluated, predicted = capsys.readouterr().out.splitlines()
    assert re.fullmatch(EPOCH, evaluated)
    assert re.fullmatch(r"5/5 - 0s - \d+(ms|us)/step", predicted)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            moving_line(3, 10, 2.0, {"loss": 0.5}),
            " 3/10 [========>.....................] - ETA: 14s - loss: 0.5000",
        ),
        (moving_line(7, None, 2.0, {"loss": 1e-5}), "      7/Unknown - loss: 1.0000e-05"),
        (moving_line(1, 999, 9.0, {}), f"  1/999 [{'.' * 30}] - ETA: 2:29:42"),
        (last_line(10, 10, 0.02, 0.002, {}), f"10/10 [{'=' * 30}] - 0s 2ms/step"),
        (short_line(10, 65.0, 6.5, {}, True), "10/10 - 65s - 65s/epoch - 6s/step"),
        (short_line(1, 0.0, 2e-5, {}, False), "1/1 - 0s - 20us/step"),
    ],
)
def test_ob_04_lines_look_as_keras_prints_them(line, expected):
    assert line == expected


def test_ob_04_on_a_terminal_a_bar_moves_and_only_its_drawing_reads_figures(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    model_of().fit(X, Y, batch_size=4, epochs=1)
    printed = capsys.readouterr().out
    assert printed.startswith("1/5 [=====>")
    assert printed.count("\r") >= 1
    assert re.fullmatch(EPOCH, printed.rpartition("\r")[2].rstrip())


def test_hooks_may_ask_for_logs_without_a_default():
    seen = []
    hooks = [
        f"on_{part}_{end}" for part in ("train", "test", "predict") for end in ("begin", "end")
    ]
    numbered = [
        f"on_{part}_{end}"
        for part in ("epoch", "train_batch", "test_batch", "predict_batch")
        for end in ("begin", "end")
    ]

    def noting(name, num_arguments):
        def hook(self, *given):
            assert len(given) == num_arguments
            assert isinstance(given[-1], dict)
            seen.append(name)

        return hook

    methods = {name: noting(name, 1) for name in hooks}
    methods |= {name: noting(name, 2) for name in numbered}
    strict = type("Strict", (Callback,), methods)()
    model = model_of()
    fit(model, strict, epochs=1, validation_data=(X, Y))
    model.predict(X, verbose=0, callbacks=[strict])
    assert set(seen) == {*hooks, *numbered}


def test_an_evaluation_ends_after_the_batch_in_which_it_is_stopped():
    class Stop(Callback):
        batches = 0

        def on_test_batch_end(self, batch, logs=None):
            self.batches += 1
            self.model.stop_evaluating = batch == 1

    stop = Stop()
    model = model_of()
    endless = Dataset.from_tensor_slices((X, Y)).batch(2).repeat()
    for _ in range(2):
        model.evaluate(endless, verbose=0, callbacks=[stop])
    assert stop.batches == 4


@pytest.mark.parametrize("weights_only", [False, True])
def test_callbacks_write_under_names_in_the_current_directory(weights_only, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = model_of()
    fit(
        model,
        ModelCheckpoint("best.keras", save_best_only=True, save_weights_only=weights_only),
        BackupAndRestore("backup", delete_checkpoint=False),
        CSVLogger("log.csv"),
        TensorBoard("logs"),
        validation_data=(X, Y),
    )
    assert {"backup", "best.keras", "log.csv", "logs"} <= {*os.listdir()}
    other = model_of()
    other.load_weights("best.keras")
