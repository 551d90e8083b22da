"""B1.export: what is exported gives, where it is loaded, what the Estimator would predict."""

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import paceline as pl
from paceline.checkpoint import CheckpointError
from paceline.estimator import export
from paceline.inputs import FixedLenFeature, VarLenFeature, encode_example

from . import served
from .served import RECEIVER_FN, X, Y, input_fn

PARAMS = {"units": 4}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained")
    config = pl.RunConfig(tf_random_seed=1)
    return pl.Estimator(served.model_fn, path, config, PARAMS).train(input_fn)


@pytest.fixture(scope="module")
def path(trained, tmp_path_factory):
    return trained.export_saved_model(tmp_path_factory.mktemp("exports"), RECEIVER_FN)


class Params:
    """Hyperparameters in a class of the user's own."""

    def __init__(self, **values):
        self.values = values

    def __getitem__(self, name):
        return self.values[name]


def predicted(estimator, key="y", **options):
    return np.stack([row[key] for row in estimator.predict(input_fn, **options)])


def copied(path, to, **changes):
    """A copy of an export with a changed signature, which is under no checksum.

    So it is like an export of a version before the checksums of signatures.
    """
    to.mkdir()
    for file in Path(path).iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    found = json.loads((to / "signature.json").read_text())
    (to / "signature.json").write_text(json.dumps({**found, **changes}))
    manifest = json.loads((to / "manifest.json").read_text())
    del manifest["files"], manifest["sha256"]
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (to / "manifest.json").write_text(json.dumps(manifest))
    return to


def test_b1_export_is_a_directory_named_by_the_time_that_other_programs_can_read(path, trained):
    assert len(os.path.basename(path)) == 10
    weights = load_file(os.path.join(path, "weights.safetensors"))
    assert weights["dense/kernel"].shape == (3, 4)
    assert not [name for name in weights if "adam" in name.lower()], "what serves needs no slots"
    found = json.loads(Path(path, "signature.json").read_text())
    assert found["model_fn"].endswith("served:model_fn")
    assert found["params"] == PARAMS
    mode = found["modes"]["infer"]
    assert mode["inputs"] == {"x": {"shape": [None, 3], "dtype": "float32"}}
    y = {"shape": [None, 1], "dtype": "float32"}
    assert mode["signatures"] == {
        "serving_default": {"method_name": "tensorflow/serving/predict", "outputs": {"y": y}},
        "half": {"method_name": "tensorflow/serving/regress", "outputs": {"outputs": y}},
    }


def test_b1_export_loaded_answers_as_predict_does(path, trained):
    loaded = pl.estimator.load(path)
    expected = predicted(trained)
    assert loaded.step == 6
    assert list(loaded(x=X)) == ["y"]
    np.testing.assert_array_equal(loaded({"x": X})["y"], expected)
    np.testing.assert_array_equal(loaded(X.tolist())["y"], expected)
    np.testing.assert_array_equal(loaded.signatures["half"](x=X)["outputs"], expected / 2)


def test_b1_export_is_loaded_by_a_process_that_knows_nothing_else(path, trained, tmp_path):
    module = served.__name__
    program = (
        f"import numpy as np, paceline as pl\n"
        f"x = np.load({str(tmp_path / 'x.npy')!r})\n"
        f"np.save({str(tmp_path / 'y.npy')!r}, pl.estimator.load({path!r})(x=x)['y'])\n"
    )
    np.save(tmp_path / "x.npy", X)
    root = str(Path(served.__file__).parents[module.count(".")])
    environment = {**os.environ, "PYTHONPATH": root}
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root, env=environment)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), predicted(trained))


def test_b1_export_serves_many_threads_at_once(path, trained):
    loaded = pl.estimator.load(path)
    expected = predicted(trained)
    start = threading.Barrier(4)

    def ask(row):
        start.wait()
        return [loaded(x=X[row : row + 1])["y"][0] for _ in range(10)]

    with ThreadPoolExecutor(4) as threads:
        for row, answers in enumerate(threads.map(ask, range(4))):
            for answer in answers:
                np.testing.assert_allclose(answer, expected[row], rtol=1e-6)


def test_b1_paths_may_be_bytes_as_tensorflows_are(trained, tmp_path):
    checkpoint = os.fsencode(trained.latest_checkpoint())
    path = trained.export_saved_model(
        os.fsencode(tmp_path), RECEIVER_FN, checkpoint_path=checkpoint
    )
    assert os.path.dirname(path) == str(tmp_path)
    assert pl.estimator.load(os.fsencode(path)).step == 6
    np.testing.assert_array_equal(
        predicted(trained, checkpoint_path=checkpoint), predicted(trained)
    )
    directory = os.fsencode(tmp_path / "warm")
    source = pl.estimator.WarmStartSettings(checkpoint, [".*"])
    warm = pl.Estimator(served.model_fn, directory, None, PARAMS, warm_start_from=source)
    np.testing.assert_array_equal(predicted(warm), predicted(trained))


def test_b1_export_takes_the_checkpoint_that_it_is_given(trained, tmp_path):
    other = pl.Estimator(served.model_fn, tmp_path / "model", params=PARAMS)
    other.train(input_fn, steps=2).train(input_fn, steps=1)
    first = str(tmp_path / "model" / "model.ckpt-2")
    loaded = pl.estimator.load(
        other.export_saved_model(tmp_path / "e", RECEIVER_FN, checkpoint_path=first)
    )
    assert loaded.step == 2
    np.testing.assert_array_equal(loaded(X)["y"], predicted(other, checkpoint_path=first))


def test_b1_export_holds_what_an_answer_needs_whatever_was_done_before(path, trained, tmp_path):
    trained.evaluate(input_fn)
    again = trained.export_saved_model(tmp_path, RECEIVER_FN)
    assert load_file(f"{again}/weights.safetensors").keys() == (
        load_file(f"{path}/weights.safetensors").keys()
    )


def test_b1_export_needs_a_checkpoint_or_what_it_starts_warm_from(trained, path, tmp_path):
    fresh = pl.Estimator(served.model_fn, tmp_path / "a", params=PARAMS)
    with pytest.raises(ValueError, match=r"there is no checkpoint in .* train first"):
        fresh.export_saved_model(tmp_path / "e", RECEIVER_FN)
    assert not (tmp_path / "e").exists()
    warm = pl.Estimator(
        served.model_fn, tmp_path / "b", params=PARAMS, warm_start_from=trained.model_dir
    )
    assert pl.estimator.load(warm.export_saved_model(tmp_path / "e", RECEIVER_FN)).step == 0


def test_ck_13_an_export_is_where_training_goes_on_from_on_two_replicas(path, tmp_path):
    config = pl.RunConfig(train_distribute=pl.MirroredStrategy(["CPU:0", "CPU:1"]))
    settings = pl.estimator.WarmStartSettings(path, ["dense", "batch_normalization"])
    estimator = pl.Estimator(
        served.model_fn, tmp_path / "model", config, PARAMS, warm_start_from=settings
    )
    estimator.train(input_fn, max_steps=1)
    first = pl.checkpoint.load(tmp_path / "model" / "model.ckpt-0")
    weights = load_file(os.path.join(path, "weights.safetensors"))
    for name, value in weights.items():
        np.testing.assert_array_equal(first.read(name), value, err_msg=name)
    assert pl.estimator.load(estimator.export_saved_model(tmp_path / "e", RECEIVER_FN)).step == 1


def test_b1_export_all_saves_the_weights_once_for_several_modes(trained, tmp_path):
    supervised = export.build_raw_supervised_input_receiver_fn({"x": X[:1]}, Y[:1])
    receivers = {"train": supervised, "eval": supervised, "infer": RECEIVER_FN}
    path = trained.experimental_export_all_saved_models(tmp_path, receivers)
    np.testing.assert_array_equal(pl.estimator.load(path)(X)["y"], predicted(trained))
    evaluated = pl.estimator.load(path, mode="eval")(x=X, label=Y)
    expected = trained.evaluate(lambda: pl.Dataset.from_tensors(({"x": X}, Y)))["loss"]
    assert evaluated.keys() == {"loss", "predictions/y", "predictions/sign"}
    np.testing.assert_allclose(evaluated["loss"], expected, rtol=1e-6)
    assert pl.estimator.load(path, mode="train").signatures.keys() == {"train"}
    with pytest.raises(ValueError, match=r"exported for mode\(s\) train, eval, infer, not for 'x'"):
        pl.estimator.load(path, mode="x")


def test_b1_export_copies_assets(trained, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("yes\nno\n")
    path = trained.export_saved_model(tmp_path / "e", RECEIVER_FN, {"vocabularies/w.txt": words})
    assert Path(path, "assets.extra/vocabularies/w.txt").read_text() == "yes\nno\n"
    for assets, problem in [({"a": "missing"}, "no file"), ({"../a": words}, "relative path")]:
        with pytest.raises(ValueError, match=problem):
            trained.export_saved_model(tmp_path / "e", RECEIVER_FN, assets)
    assert len(pl.checkpoint.list_exports(tmp_path / "e")) == 1


def test_b1_export_two_of_one_second_have_two_names_and_the_newest_is_loaded(trained, tmp_path):
    paths = [trained.export_saved_model(tmp_path, RECEIVER_FN) for _ in range(3)]
    assert sorted(set(paths)) == paths == pl.checkpoint.list_exports(tmp_path)
    assert pl.estimator.load(tmp_path).path == paths[-1]


def test_b1_export_that_fails_leaves_nothing_to_be_seen(tmp_path):
    estimator = pl.Estimator(served.failing_model_fn, tmp_path / "model")
    estimator.train(input_fn_without_labels, steps=1)
    with pytest.raises(ArithmeticError) as caught:
        estimator.export_saved_model(tmp_path / "e", RECEIVER_FN)
    assert "describe the inputs by a batch" in caught.value.__notes__[0]
    assert pl.checkpoint.list_exports(tmp_path / "e") == []
    by_batch = export.build_raw_serving_input_receiver_fn({"x": X[:2]})
    loaded = pl.estimator.load(estimator.export_saved_model(tmp_path / "e", by_batch))
    np.testing.assert_array_equal(
        loaded(X)["output"], np.stack([*estimator.predict(input_fn_without_labels)])
    )


def input_fn_without_labels():
    return pl.Dataset.from_tensor_slices({"x": X}).batch(8)


def test_b1_export_of_a_function_nobody_can_import_says_so_and_load_asks_for_it(
    tmp_path, trained, caplog
):
    def model_fn(features, labels, mode, params):
        return served.model_fn(features, labels, mode, params)

    estimator = pl.Estimator(model_fn, trained.model_dir, params=PARAMS)
    with caplog.at_level(logging.WARNING, logger="paceline"):
        path = estimator.export_saved_model(tmp_path, RECEIVER_FN)
    assert "load(path, model_fn=...)" in caplog.messages[-1]
    with pytest.raises(ValueError, match=r"pass it: load\(path, model_fn=\.\.\.\)"):
        pl.estimator.load(path)
    loaded = pl.estimator.load(path, model_fn=estimator.model_fn)
    np.testing.assert_array_equal(loaded(X)["y"], predicted(trained))


@pytest.mark.parametrize(
    ("params", "missing"),
    [
        ({"units": np.int64(4)}, {"units": 4}),
        ({"units": 4, "pair": (1, 2)}, {"pair": (1, 2)}),
        ({"units": 4, "columns": [pl.feature_column.numeric_column("x")]}, {"columns": []}),
        (Params(units=4), Params(units=4)),
        ({"units": 4, 3: 4}, {"units": 4, 3: 4}),
    ],
)
def test_params_that_are_no_json_are_passed_when_an_export_is_loaded(
    trained, tmp_path, params, missing
):
    estimator = pl.Estimator(served.model_fn, trained.model_dir, params=params)
    path = estimator.export_saved_model(tmp_path, RECEIVER_FN)
    np.testing.assert_array_equal(
        pl.estimator.load(path, params=missing)(X)["y"], predicted(trained)
    )
    with pytest.raises(ValueError, match=r"params must be those .* got None; pass what"):
        pl.estimator.load(path)


def test_an_export_names_the_params_that_it_does_not_hold(trained, tmp_path, caplog):
    estimator = pl.Estimator(served.model_fn, trained.model_dir, params={**PARAMS, "mixed": {1, 2}})
    estimator.export_saved_model(tmp_path, RECEIVER_FN)
    assert "params ('mixed'), which JSON" in caplog.text
    assert "load(path, params={...})" in caplog.text


@pytest.mark.parametrize("params", [{"units": 4}, {"other": 4}, 3])
def test_params_that_an_export_holds_or_does_not_know_are_refused(path, params):
    with pytest.raises((ValueError, TypeError), match=r"params must be those .*\(none\), got"):
        pl.estimator.load(path, params=params)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"params": {"units": 5}}, ValueError, r"'dense/kernel' of model_fn has shape \(3, 5\)"),
        ({"model_fn": f"{served.__name__}:failing_model_fn", "params": None}, ValueError, "'w'"),
        ({"model_fn": "no.such:thing"}, ValueError, "put its module on the import path"),
        ({"format_version": 2}, CheckpointError, "load it with the version that wrote it"),
        ({"modes": 3}, CheckpointError, "is damaged"),
    ],
)
def test_load_refuses_what_does_not_fit_and_says_what(path, tmp_path, changes, error, words):
    with pytest.raises(error, match=words):
        pl.estimator.load(copied(path, tmp_path / "other", **changes))


def test_load_takes_exports_of_before_signatures_had_checksums(path, tmp_path):
    assert pl.estimator.load(copied(path, tmp_path / "other"))(X).keys() == {"y"}


def test_load_refuses_a_signature_that_was_changed(path, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(path, other)
    text = (other / "signature.json").read_text()
    (other / "signature.json").write_text(text.replace('"y"', '"z"'))
    with pytest.raises(CheckpointError, match=r"signature\.json': it does not fit its checksum"):
        pl.estimator.load(other)


SIDE_EFFECT = "def model_fn(features, mode): ...\nraise SystemExit('imported')\n"


@pytest.mark.parametrize(
    "named",
    [
        "os:system",
        "posix:system",
        "builtins:exec",
        "subprocess:check_output",
        "this:x",
        "..os:system",
        ":system",
        "",
        "tests.estimator.served:np.savez",
        "tests.estimator.served:export.ServingInputReceiver",
        "tests.estimator.served:model_fn.__globals__.clear",
        "__main__.other:model_fn",
    ],
)
@pytest.mark.parametrize("allowed", [None, ["tests"], ["os", "posix", "builtins", "this"]])
def test_load_calls_no_function_but_those_that_a_module_of_models_defines(
    path, tmp_path, named, allowed, capsys
):
    other = copied(path, tmp_path / "other", model_fn=named)
    with pytest.raises(ValueError, match="is not found: "):
        pl.estimator.load(other, allowed=allowed)
    modes = json.loads((other / "signature.json").read_text())["modes"]
    modes["infer"]["features"] = {"function": named}
    other = copied(path, tmp_path / "receiver", modes=modes)
    with pytest.raises(ValueError, match=r"is not called|cannot be imported|which is not run"):
        pl.estimator.load(other, served.model_fn, allowed=allowed)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("allowed", "is_loaded"),
    [
        (None, True),
        (["tests"], True),
        (["other", "tests.estimator.served"], True),
        ([], False),
        (["other", "tests.estimator.serve"], False),
    ],
)
def test_load_imports_nothing_but_from_allowed_modules(path, allowed, is_loaded):
    refusal = pytest.raises(ValueError, match=r"pass load\(path, allowed=")
    with nullcontext() if is_loaded else refusal:
        assert pl.estimator.load(path, allowed=allowed)(X).keys() == {"y"}


def test_a_module_that_is_not_allowed_is_not_imported(path, tmp_path, monkeypatch):
    (tmp_path / "side_effect.py").write_text(SIDE_EFFECT)
    monkeypatch.syspath_prepend(tmp_path)
    other = copied(path, tmp_path / "other", model_fn="side_effect:model_fn")
    with pytest.raises(ValueError, match=r"pass load\(path, allowed=\('side_effect',\)\)"):
        pl.estimator.load(other, allowed=["tests"])
    with pytest.raises(TypeError, match="allowed must be a sequence of modules"):
        pl.estimator.load(other, allowed="tests")


SCRIPT = """
import numpy as np, paceline as pl
from paceline.estimator import export

def model_fn(features, mode):
    w = pl.get_variable("w", (3, 1))
    return pl.EstimatorSpec(mode, features["x"] @ w, np.mean(features["x"] @ w), [])

if __name__ == "__main__":
    import sys
    if sys.argv[1] == "export":
        estimator = pl.Estimator(model_fn, "model")
        x = np.ones((2, 3), np.float32)
        estimator.train(lambda: pl.Dataset.from_tensor_slices({"x": x}).batch(2), steps=1)
        receiver_fn = export.build_raw_serving_input_receiver_fn({"x": pl.TensorSpec([None, 3])})
        estimator.export_saved_model("exports", receiver_fn)
    print(pl.estimator.load("exports").step)
"""


def test_a_script_loads_what_it_has_exported_and_another_one_does_not(tmp_path):
    def run(script, *arguments):
        (tmp_path / script).write_text(SCRIPT)
        command = [sys.executable, script, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert run("train.py", "export").stdout == "0\n"
    assert run("train.py", "load").stdout == "0\n"
    refusal = run("other.py", "load").stderr
    assert "model_fn is a function of the script train.py, which is not run" in refusal
    assert "load(path, model_fn=...)" in refusal


def test_load_refuses_weights_that_nothing_takes(path, tmp_path):
    def smaller(features, mode):
        return pl.EstimatorSpec(mode, predictions=features["x"] @ pl.get_variable("w", (3, 1)))

    estimator = pl.Estimator(served.failing_model_fn, tmp_path / "model")
    estimator.train(input_fn_without_labels, steps=1)
    by_batch = export.build_raw_serving_input_receiver_fn({"x": X[:2]})
    path = estimator.export_saved_model(tmp_path / "e", by_batch)
    assert pl.estimator.load(path, model_fn=smaller)(X)["output"].shape == (48, 1)
    with pytest.raises(ValueError, match="nothing in model_fn takes w from"):
        pl.estimator.load(
            path, model_fn=lambda features, mode: pl.EstimatorSpec(mode, features["x"])
        )


def test_load_refuses_damaged_weights_and_what_is_no_export(path, tmp_path):
    damaged = copied(path, tmp_path / "damaged")
    weights = damaged / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match="do not fit its checksum"):
        pl.estimator.load(damaged)
    weights.write_bytes(content[:-4])
    with pytest.raises(CheckpointError, match="bytes and the manifest says"):
        pl.estimator.load(damaged)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        pl.estimator.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, r"takes the input\(s\) x; got none"),
        ({"x": X, "z": X}, r"takes the input\(s\) x; got x, z"),
        ({"x": X[:, :2]}, r"shape \(any, 3\); got float32 of shape \(48, 2\)"),
        ({"x": X[0]}, r"got float32 of shape \(3,\)"),
        ({"x": X.astype(complex)}, "got complex128"),
        ({"x": [["a", "b", "c"]]}, "got <U1"),
    ],
)
def test_a_loaded_model_says_what_it_takes(path, inputs, words):
    with pytest.raises(ValueError, match=words):
        pl.estimator.load(path)(inputs)


def test_a_function_makes_features_of_the_inputs(trained, tmp_path):
    half = {"half": pl.TensorSpec([None, 3])}
    path = trained.export_saved_model(
        tmp_path, lambda: export.ServingInputReceiver(served.doubled, half)
    )
    np.testing.assert_array_equal(pl.estimator.load(path)(half=X / 2)["y"], predicted(trained))
    with pytest.raises(ValueError, match="cannot be imported by who loads"):
        trained.export_saved_model(
            tmp_path, lambda: export.ServingInputReceiver(lambda inputs: inputs, half)
        )


def test_b1_export_refuses_an_example_that_no_signature_should_hold(trained, tmp_path):
    wide = pl.TensorSpec.from_batch(np.zeros((1, 3 << 20), np.float32))
    receiver_fn = lambda: export.ServingInputReceiver(served.first_three, {"half": wide})  # noqa: E731
    with pytest.raises(ValueError, match="describe large inputs by TensorSpec"):
        trained.export_saved_model(tmp_path, receiver_fn)
    assert pl.checkpoint.list_exports(tmp_path) == []


def test_b1_export_parses_serialized_examples(tmp_path):
    forms = {"word": FixedLenFeature((1,), str, "no"), "many": VarLenFeature(np.int64)}
    estimator = pl.Estimator(served.words_model_fn, tmp_path / "model")
    batch = {"word": np.array([["yes"], ["no"]]), "many": np.array([[1, 2], [3, -1]])}
    data = lambda: pl.Dataset.from_tensors(batch)  # noqa: E731
    estimator.train(data, steps=1)
    receiver_fn = export.build_parsing_serving_input_receiver_fn(forms)
    loaded = pl.estimator.load(estimator.export_saved_model(tmp_path / "e", receiver_fn))
    messages = [encode_example({"word": "yes", "many": [1, 2]}), encode_example({"many": [3]})]
    answer = loaded(examples=messages)
    assert answer["scores"].tolist() == [*estimator.predict(data)] == [4.5, 3.5]
    assert answer["classes"].tolist() == [["known"], ["unknown"]]
    assert loaded.signatures["c"].outputs["classes"].dtype == "str"


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda: export.ServingInputReceiver({"x": pl.TensorSpec([3])}),
            ValueError,
            "begins with None",
        ),
        (lambda: pl.TensorSpec.from_batch(np.zeros(0)), ValueError, "at least one example"),
        (lambda: export.ServingInputReceiver({}), TypeError, "the inputs of a receiver"),
        (
            lambda: export.ServingInputReceiver(
                {"x": pl.TensorSpec([None])}, {"x": pl.TensorSpec([None])}
            ),
            ValueError,
            "the same objects as in receiver_tensors",
        ),
        (lambda: export.TensorServingInputReceiver({}), TypeError, "one TensorSpec"),
        (
            lambda: export.build_raw_serving_input_receiver_fn({"x": X}, 3),
            ValueError,
            "batches of any size",
        ),
        (
            lambda: export.build_raw_supervised_input_receiver_fn({"x": X}, {"x": Y}),
            ValueError,
            "share the name",
        ),
        (
            lambda: export.build_parsing_serving_input_receiver_fn({"x": 3}),
            TypeError,
            "FixedLenFeature or VarLenFeature",
        ),
    ],
)
def test_a_receiver_says_what_it_is_made_of(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_b1_export_goes_to_a_url_as_well(trained, request):
    base = f"memory://{request.node.name}"
    path = trained.export_saved_model(base, RECEIVER_FN, {"a.py": served.__file__})
    np.testing.assert_array_equal(pl.estimator.load(base)(X)["y"], predicted(trained))
    assert pl.checkpoint.list_exports(base) == [path]
