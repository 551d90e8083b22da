"""B7: what exporters export, when, and in which process of a job."""

import json
import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import list_exports
from paceline.estimator import (
    BestExporter,
    Exporter,
    FinalExporter,
    LatestExporter,
    Preempted,
    SessionRunHook,
    train_and_evaluate,
)
from paceline.estimator.evaluator import ContinuousEvaluation, EndMarker, write_end_marker

from . import served
from .served import RECEIVER_FN, X, input_fn
from .test_any_strategy_to_any import KINDS
from .test_evaluator import World

PARAMS = {"units": 4}


class Noting(Exporter):
    """Exports nothing, and notes what it is told."""

    name = "noting"

    def __init__(self):
        self.calls = []

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        step = int(checkpoint_path.rpartition("-")[2])
        assert eval_result["global_step"] == step
        assert export_path == os.path.join(estimator.model_dir, "export", "noting")
        self.calls.append((step, is_the_final_export))


def estimator_in(path, **options):
    config = pl.RunConfig(tf_random_seed=1, save_checkpoints_steps=2, **options)
    return pl.Estimator(served.model_fn, path, config, PARAMS)


def eval_spec(*exporters):
    return pl.EvalSpec(input_fn, exporters=exporters, throttle_secs=0, start_delay_secs=0)


def steps_of(estimator, name):
    paths = list_exports(os.path.join(estimator.model_dir, "export", name))
    return [pl.estimator.load(path).step for path in paths]


def test_b7_exporters_are_called_after_each_evaluation_and_know_the_last_one(tmp_path):
    estimator, noting = estimator_in(tmp_path), Noting()
    exporters = [noting, LatestExporter("latest", RECEIVER_FN), FinalExporter("final", RECEIVER_FN)]
    found = train_and_evaluate(estimator, pl.TrainSpec(input_fn, 5), eval_spec(*exporters))
    assert noting.calls == [(2, False), (4, False), (5, True)]
    assert steps_of(estimator, "latest") == [2, 4, 5]
    assert steps_of(estimator, "final") == [5]
    ends = [list_exports(tmp_path / "export" / name)[-1] for name in ("latest", "final")]
    assert list(found.exports) == ends
    loaded = pl.estimator.load(found.exports[-1])
    expected = np.stack([row["y"] for row in estimator.predict(input_fn)])
    np.testing.assert_array_equal(loaded(X)["y"], expected)


@pytest.mark.parametrize("max_steps", [4, None], ids=["at max_steps", "at the end of the data"])
def test_b7_final_comes_also_where_the_last_step_was_evaluated_before_it_was_the_last(
    tmp_path, max_steps
):
    estimator, noting = estimator_in(tmp_path), Noting()
    exporters = [noting, LatestExporter("latest", RECEIVER_FN), FinalExporter("final", RECEIVER_FN)]
    train_and_evaluate(estimator, pl.TrainSpec(input_fn, max_steps), eval_spec(*exporters))
    last = max_steps or 6
    assert noting.calls == [*((step, False) for step in range(2, last + 1, 2)), (last, True)]
    assert steps_of(estimator, "latest") == [*range(2, last + 1, 2)], "the last one is there once"
    assert steps_of(estimator, "final") == [last]


def test_b7_latest_keeps_the_newest(tmp_path):
    estimator = estimator_in(tmp_path)
    exporter = LatestExporter("latest", RECEIVER_FN, exports_to_keep=2)
    train_and_evaluate(estimator, pl.TrainSpec(input_fn, 6), eval_spec(exporter))
    assert steps_of(estimator, "latest") == [4, 6]


def test_b7_final_is_exported_by_a_run_that_has_nothing_left_to_train(tmp_path):
    estimator = estimator_in(tmp_path)
    train_and_evaluate(estimator, pl.TrainSpec(input_fn, 2), eval_spec())
    exporter = FinalExporter("final", RECEIVER_FN)
    found = train_and_evaluate(estimator, pl.TrainSpec(input_fn, 2), eval_spec(exporter))
    assert steps_of(estimator, "final") == [2]
    assert found.exports == tuple(list_exports(tmp_path / "export" / "final"))


class Losses:
    """An Estimator whose losses are given: what `BestExporter` sees of one."""

    model_dir = ""
    params: dict = {}  # noqa: RUF012

    def __init__(self, trained):
        self._trained = trained

    def export_saved_model(self, *arguments):
        *others, _checkpoint_path = arguments
        return self._trained.export_saved_model(*others)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return estimator_in(tmp_path_factory.mktemp("trained")).train(input_fn, steps=1)


def exported_losses(exporter, trained, base, losses):
    """Those whose evaluation was exported."""
    source = Losses(trained)
    return [
        loss
        for loss in losses
        if exporter.export(source, str(base), "model.ckpt-1", {"loss": loss, "n": 1}, False)
    ]


def test_d_15_b12_best_exporter_exports_what_is_better_also_after_a_restart(trained, tmp_path):
    def best(**options):
        return BestExporter("best", RECEIVER_FN, **options)

    assert exported_losses(best(), trained, tmp_path, [3.0, 4.0, 2.0, 2.0]) == [3.0, 2.0]
    # TensorFlow's exports the first evaluation after a restart, whatever it is.
    assert exported_losses(best(), trained, tmp_path, [5.0, 2.5, 1.0, 3.0]) == [1.0]
    assert len(list_exports(tmp_path)) == 3
    assert json.loads((tmp_path / "best_eval_result.json").read_text()) == {"loss": 1.0, "n": 1}
    assert exported_losses(best(exports_to_keep=1), trained, tmp_path, [0.5]) == [0.5]
    assert len(list_exports(tmp_path)) == 1


def test_b7_best_compares_as_it_is_told_and_begins_anew_where_all_exports_are_gone(
    trained, tmp_path
):
    def larger(best_eval_result, current_eval_result):
        return current_eval_result["loss"] > best_eval_result["loss"]

    exporter = BestExporter("best", RECEIVER_FN, compare_fn=larger)
    assert exported_losses(exporter, trained, tmp_path, [1.0, 0.5, 2.0]) == [1.0, 2.0]
    for path in map(Path, list_exports(tmp_path)):
        path.rename(tmp_path / f"away-{path.name}")
    assert exported_losses(exporter, trained, tmp_path, [0.1]) == [0.1]


def test_b7_best_takes_a_loss_that_is_no_number_for_the_worst(trained, tmp_path):
    nan = float("nan")
    exporter = BestExporter("best", RECEIVER_FN)
    found = exported_losses(exporter, trained, tmp_path, [nan, 1.0, nan])
    assert str(found) == "[nan, 1.0]"


def test_b7_a_damaged_record_of_the_best_is_named(trained, tmp_path):
    exporter = BestExporter("best", RECEIVER_FN)
    exported_losses(exporter, trained, tmp_path, [1.0])
    (tmp_path / "best_eval_result.json").write_text("{")
    with pytest.raises(ValueError, match=r"best_eval_result.json in .* is damaged .* delete it"):
        exported_losses(exporter, trained, tmp_path, [0.5])


def test_d_15_best_survives_a_restart_of_the_run(tmp_path):
    spec = eval_spec(BestExporter("best", RECEIVER_FN))
    train_and_evaluate(estimator_in(tmp_path), pl.TrainSpec(input_fn, 4), spec)
    before = steps_of(estimator_in(tmp_path), "best")
    again = eval_spec(BestExporter("best", RECEIVER_FN))
    train_and_evaluate(estimator_in(tmp_path), pl.TrainSpec(input_fn, 4), again)
    assert steps_of(estimator_in(tmp_path), "best") == before


class Ends(SessionRunHook):
    """Ends the run after its third step: for good, or to be continued."""

    def __init__(self, for_good):
        self._for_good = for_good

    def before_run(self, run_context):
        if run_context.session.global_step == 2:
            run_context.session.wants_end = not self._for_good

    def after_run(self, run_context, run_values):
        if run_context.session.global_step == 3 and self._for_good:
            run_context.request_stop()


def test_b7_a_run_that_a_hook_ends_has_a_final_export_and_one_to_be_continued_has_none(tmp_path):
    def run(name, for_good):
        estimator, noting = estimator_in(tmp_path / name), Noting()
        with nullcontext() if for_good else pytest.raises(Preempted):
            train_and_evaluate(
                estimator, pl.TrainSpec(input_fn, 6, hooks=[Ends(for_good)]), eval_spec(noting)
            )
        return noting.calls

    assert run("ended", for_good=True) == [(2, False), (3, True)]
    assert all(not is_final for _, is_final in run("preempted", for_good=False))


@pytest.mark.parametrize("kind", KINDS)
def test_b7_b1_export_one_process_of_a_job_exports_under_every_strategy(
    kind, on_workers, server_job, tmp_path
):
    found = {}

    def work(strategy, index):
        estimator = estimator_in(tmp_path / "model", train_distribute=strategy)
        noting = Noting()
        exporters = eval_spec(noting, FinalExporter("final", RECEIVER_FN))
        result = train_and_evaluate(estimator, pl.TrainSpec(input_fn, 3), exporters)
        found[index] = noting.calls, result.exports

    KINDS[kind].run(on_workers, server_job, work, str(tmp_path))
    [path] = list_exports(tmp_path / "model" / "export" / "final")
    assert [calls for calls, _ in found.values() if calls] == [[(2, False), (3, True)]]
    assert all(exports == (path,) for _, exports in found.values())
    estimator = estimator_in(tmp_path / "model")
    expected = np.stack([row["y"] for row in estimator.predict(input_fn)])
    np.testing.assert_array_equal(pl.estimator.load(path)(X)["y"], expected)


def test_b7_an_evaluator_beside_the_job_exports_and_the_last_one_is_final(tmp_path):
    estimator, noting = estimator_in(tmp_path), Noting()
    spec = eval_spec(noting, FinalExporter("final", RECEIVER_FN))
    world = World(
        [
            (5, lambda: estimator.train(input_fn, steps=2)),
            (9, lambda: write_end_marker(str(tmp_path), EndMarker(4, "the data ended"))),
        ]
    )
    estimator.train(input_fn, steps=2)
    evaluation = ContinuousEvaluation(estimator, spec, None, world.clock, world.sleep)
    evaluation.run()
    assert noting.calls == [(2, False), (4, False), (4, True)]
    assert evaluation.exports == tuple(list_exports(tmp_path / "export" / "final"))


def test_b7_who_is_not_the_one_to_export_does_not(tmp_path, monkeypatch):
    tf_config = {
        "cluster": {"chief": ["localhost:1"], "evaluator": ["localhost:2"]},
        "task": {"type": "chief", "index": 0},
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps(tf_config))
    noting = Noting()
    found = train_and_evaluate(estimator_in(tmp_path), pl.TrainSpec(input_fn, 3), eval_spec(noting))
    assert noting.calls == []
    assert found.exports == ()


def test_b7_params_that_cannot_be_written_do_not_stop_a_run(tmp_path):
    units = {"units": np.int64(4)}
    estimator = pl.Estimator(served.model_fn, tmp_path, params=units)
    exporter = FinalExporter("final", RECEIVER_FN)
    found = train_and_evaluate(estimator, pl.TrainSpec(input_fn, 3), eval_spec(exporter))
    assert pl.estimator.load(found.exports[-1], params=units).step == 3


def test_b7_one_exporter_needs_no_list():
    exporter = Noting()
    assert pl.EvalSpec(input_fn, exporters=exporter).exporters == (exporter,)


class Nameless(Noting):
    name = ""


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: pl.EvalSpec(input_fn, exporters=[3]), TypeError, "one is 3"),
        (lambda: pl.EvalSpec(input_fn, exporters=[Noting(), Noting()]), ValueError, "of its own"),
        (lambda: pl.EvalSpec(input_fn, exporters=Nameless()), ValueError, "not empty"),
        (lambda: LatestExporter("a", RECEIVER_FN, exports_to_keep=0), ValueError, "must be > 0"),
        (lambda: FinalExporter("a", None), TypeError, "needs a serving_input_receiver_fn"),
        (
            lambda: BestExporter("a", RECEIVER_FN, compare_fn=lambda best, current: True),
            ValueError,
            r"\(best_eval_result, current_eval_result\), it takes \(best, current\)",
        ),
    ],
)
def test_b7_an_exporter_says_what_it_needs(make, error, words):
    with pytest.raises(error, match=words):
        make()
