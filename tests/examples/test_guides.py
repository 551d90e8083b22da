"""The guides in docs/: their code runs, and their lists are whole."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.nn import activations, layers, losses, metrics, optimizers
from paceline.nn.optimizers import schedules

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def run_guide(tmp_path, monkeypatch):
    """`run_guide(name)`: what the Python blocks of a guide define; with names counted anew."""
    monkeypatch.chdir(tmp_path)

    def run(name: str) -> dict[str, Any]:
        names: dict[str, Any] = {}
        blocks = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text("utf-8"), re.DOTALL)
        assert blocks
        for number, block in enumerate(blocks):
            exec(compile(block, f"block {number} of docs/{name}", "exec"), names)
        return names

    yield run
    pl.set_seed(None)


def test_the_guide_to_hooks_stops_when_the_loss_is_good(run_guide, capsys):
    names = run_guide("hooks.md")
    assert names["good"].num_good == 3
    assert "good enough: [" in capsys.readouterr().out
    found = names["estimator"].get_variable_value("dense/kernel")
    np.testing.assert_allclose(found, [[1.0], [-2.0], [0.5]], atol=0.05)


def test_the_loop_of_one_s_own_learns(run_guide):
    names = run_guide("custom_loops.md")
    assert float(names["accuracy"].result()) > 0.9
    assert float(names["loss"]) < 0.2
    assert int(names["optimizer"].iterations) == 90


def test_the_guide_to_fit_learns(run_guide):
    names = run_guide("fit.md")
    assert names["accuracy"] > 0.9
    assert names["history"].history["val_accuracy"][-1] > 0.85
    assert names["probabilities"].shape == (3, 2)
    assert names["errors"][-1] < 0.1 * names["errors"][0]


def test_the_guide_to_premade_models_shows_columns_and_heads(run_guide, capsys):
    names = run_guide("premade.md")
    assert "(2, 12)" in capsys.readouterr().out
    assert names["rents"].evaluate(names["homes"])["average_loss"] < 0.05
    assert names["iris"].evaluate(names["input_fn"])["accuracy"] > 0.9


def test_the_guide_to_exports_serves_what_it_has_trained(run_guide, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    blocks = (DOCS / "export.md").read_text("utf-8").split("```python\n")
    (tmp_path / "digits_model.py").write_text(blocks[1].partition("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    names = run_guide("export.md")
    np.testing.assert_array_equal(names["digit"], names["model"](names["batch"])["digit"])
    scores = names["model"].signatures["classify"](names["batch"])["scores"]
    np.testing.assert_array_equal(scores.argmax(-1), names["digit"])
    assert len(names["result"].exports) == 3


def test_the_verbs_of_a_communicator_do_what_the_guide_says(run_guide):
    names = run_guide("collectives.md")
    assert (names["gradients"] == 1).all()  # alone
    for rank, (largest, total, shapes, first, part) in enumerate(names["results"]):
        assert largest.tolist() == [2, 3, 4, 5, 6, 7]
        assert total.tolist() == [3, 6, 9, 12, 15, 18]
        assert shapes == [(1, 2), (2, 2), (3, 2)]
        assert first.tolist() == [20]
        assert part.tolist() == [3] * (3 if rank == 0 else 2)


def test_es_28_the_model_that_came_from_tensorflow_learns(run_guide):
    names = run_guide("migration.md")
    assert names["estimator"].evaluate(names["input_fn"], steps=8)["mae"] < 0.1
    # ES-28: the tutorial of several workers, whose loss is the mean over the batch.
    assert names["result"].global_step == 20
    assert names["result"].metrics["loss"] < 2.3


def test_es_26_the_guide_maps_every_name_of_tf_estimator():
    """Those of TensorFlow 2.15, with `export` and `experimental`."""
    rows = re.findall(r"^\| (.*?) \| .*? \|$", (DOCS / "migration.md").read_text("utf-8"), re.M)
    mapped = {name.rpartition(".")[2] for row in rows for name in re.findall(r"[\w.]+", row)}
    missing = [name for name in TF_ESTIMATOR_NAMES.split() if name not in mapped]
    assert not missing


TF_ESTIMATOR_NAMES = """
BaselineClassifier BaselineEstimator BaselineRegressor BestExporter BinaryClassHead
CheckpointSaverHook CheckpointSaverListener DNNClassifier DNNEstimator DNNLinearCombinedClassifier
DNNLinearCombinedEstimator DNNLinearCombinedRegressor DNNRegressor Estimator EstimatorSpec EvalSpec
Exporter FeedFnHook FinalExporter FinalOpsHook GlobalStepWaiterHook Head LatestExporter
LinearClassifier LinearEstimator LinearRegressor LoggingTensorHook LogisticRegressionHead ModeKeys
MultiClassHead MultiHead MultiLabelHead NanLossDuringTrainingError NanTensorHook
PoissonRegressionHead ProfilerHook RegressionHead RunConfig SecondOrStepTimer SessionRunArgs
SessionRunContext SessionRunHook SessionRunValues StepCounterHook StopAtStepHook SummarySaverHook
TrainSpec VocabInfo WarmStartSettings add_metrics classifier_parse_example_spec
regressor_parse_example_spec train_and_evaluate ClassificationOutput EvalOutput ExportOutput
PredictOutput RegressionOutput ServingInputReceiver TensorServingInputReceiver
build_parsing_serving_input_receiver_fn build_raw_serving_input_receiver_fn InMemoryEvaluatorHook
KMeans LinearSDCA RNNClassifier RNNEstimator build_raw_supervised_input_receiver_fn call_logit_fn
dnn_logit_fn_builder linear_logit_fn_builder make_early_stopping_hook
make_stop_at_checkpoint_step_hook stop_if_higher_hook stop_if_lower_hook stop_if_no_decrease_hook
stop_if_no_increase_hook
"""


def test_each_name_of_the_migration_table_exists():
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", (DOCS / "migration.md").read_text("utf-8"), re.M)
    found = 0
    for _, ours in rows:
        for names in re.findall(r"`(paceline\.[^`]*)`", ours):
            first, *others = names.split(", ")
            package, _, _ = first.rpartition(".")
            for name in [first, *(o if "paceline." in o else f"{package}.{o}" for o in others)]:
                pkgutil.resolve_name(name)
                found += 1
    assert found > 25


@pytest.mark.parametrize(
    ("module", "besides"),
    [
        (layers, {"LayerOptions", "Shape", "noting_inference_calls"}),
        (losses, {"get", "Loss"}),
        (metrics, {"get"}),
        (activations, {"get"}),
        (schedules, {"get", "LearningRateSchedule", "Constant"}),
        (optimizers, {"get", "Optimizer", "schedules"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_list_of_layers_and_metrics_is_whole(module, besides):
    text = (DOCS / "nn.md").read_text("utf-8")
    names = getattr(module, "__all__", None) or [
        n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__
    ]
    classes = {n for n in names if n[0].isupper() or module is activations} - besides
    if module is optimizers:
        classes -= {"StepResult", "TrainOp"}
    assert not [n for n in classes if f"`{n}`" not in text and f"`{_snake(n)}`" not in text]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def test_a_predictor_answers_as_the_guide_says(run_guide, capsys):
    names = run_guide("estimator.md")
    printed = capsys.readouterr().out
    assert "model.ckpt-50" in printed
    assert "ms for 16 examples" in printed  # what `explain` says
    np.testing.assert_allclose(names["served"].get_variable_value("dense/kernel"), 2, atol=0.1)
    assert names["estimator"].evaluate(names["input_fn"])["mae"] < 1


def test_the_guide_to_what_a_run_shows_leaves_what_it_says(run_guide):
    run_guide("observability.md")
    left = {path.name.partition(".")[0] for path in Path("runs/shown").iterdir()}
    assert left >= {"events", "history", "report", "timeline-20"}
    curve = pl.observe.Run.read("runs/shown").curve("loss")
    assert [step for step, _ in curve] == [10, 20, 30, 40, 50]


def test_the_guide_to_callbacks_trains_and_lists_them_all(run_guide, capsys):
    names = run_guide("callbacks.md")
    assert names["model"].count_params() == 49
    assert "3/3 - " in capsys.readouterr().out
    listed = re.findall(r"^\| `(\w+)` \|", (DOCS / "callbacks.md").read_text("utf-8"), re.MULTILINE)
    assert {*listed, "CallbackList"} == set(names["callbacks"].__all__)
