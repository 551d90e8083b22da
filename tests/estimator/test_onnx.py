"""ONNX: what the file computes elsewhere is what the model does here."""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import DNNClassifier, LinearRegressor, export, export_onnx
from paceline.estimator.feature_column import numeric_column

from . import exported_models

pytestmark = pytest.mark.host  # where an exported model is followed
onnxruntime = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
IMAGES = {"image": RNG.random((16, 8, 8, 1), np.float32)}
WORDS = {
    "word": RNG.integers(0, 20, (16, 3)),
    "numbers": RNG.random((16, 2)).astype(np.float32),
}
NUMBERS = {"x": RNG.random((16, 3)).astype(np.float32)}


def exported(model_fn, features, path):
    """The export of a model that was trained on these features a little."""
    estimator = pl.Estimator(model_fn, path / "model", pl.RunConfig(tf_random_seed=1))
    estimator.train(lambda: pl.Dataset.from_tensor_slices(features).batch(8))
    receiver_fn = export.build_raw_serving_input_receiver_fn(
        {name: array[:1] for name, array in features.items()}
    )
    return estimator.export_saved_model(path / "exports", receiver_fn)


def elsewhere(file, features):
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, features), strict=True))


@pytest.mark.parametrize(
    ("model_fn", "features"),
    [
        (exported_models.digits_cnn, IMAGES),
        (exported_models.sequential, IMAGES),
        (exported_models.mlp_with_embedding, WORDS),
        (exported_models.numpy_functions, NUMBERS),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_onnx_computes_what_the_model_computes(tmp_path, model_fn, features):
    path = exported(model_fn, features, tmp_path)
    file = str(tmp_path / "model.onnx")
    export_onnx(path, file)
    model = pl.estimator.load(path)
    for num_examples in (1, 5, 16):
        batch = {name: array[:num_examples] for name, array in features.items()}
        found, expected = elsewhere(file, batch), model(batch)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            assert found[name].dtype == array.dtype, name
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("model_fn", "words"),
    [
        (exported_models.sorting, "sort cannot be exported to ONNX; compute it by other"),
        (exported_models.reading_values, "add cannot be .*: an array of shape .* changes with the"),
        (exported_models.comparing, "output 'y' cannot be .*: an array of shape .* changes with"),
        (exported_models.branching, "calls other operations for one batch than for another"),
        (exported_models.in_place, "output 'y' of the ONNX graph is not what the model gives"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_onnx_refuses_by_name_what_it_cannot_say(tmp_path, model_fn, words):
    path = exported(model_fn, NUMBERS, tmp_path)
    with pytest.raises(ValueError, match=words):
        export_onnx(path, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.parametrize(
    ("model_fn", "spec", "words"),
    [
        (exported_models.text, pl.TensorSpec([None, 3], str), "input 'x' is text"),
        (exported_models.sorting, pl.TensorSpec([None, None]), "lengths must be known"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_onnx_refuses_inputs_that_it_has_no_form_for(tmp_path, model_fn, spec, words):
    estimator = pl.Estimator(model_fn, tmp_path / "model")
    data = {"x": np.full((2, 3), "a")} if spec.dtype == object else NUMBERS
    estimator.train(lambda: pl.Dataset.from_tensors(data))
    receiver_fn = export.build_raw_serving_input_receiver_fn({"x": spec})
    path = estimator.export_saved_model(tmp_path / "exports", receiver_fn)
    with pytest.raises(ValueError, match=words):
        export_onnx(path, tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("make", "signature", "output"),
    [
        (lambda columns, path: DNNClassifier([4], columns, path), "serving_default", "scores"),
        (lambda columns, path: LinearRegressor(columns, path), "predict", "predictions"),
    ],
    ids=["DNNClassifier", "LinearRegressor"],
)
def test_onnx_has_premade_models_over_numeric_columns(tmp_path, make, signature, output):
    estimator = make([numeric_column("x", shape=3)], tmp_path / "model")
    labels = (NUMBERS["x"][:, :1] > 0.5).astype(np.int64)
    estimator.train(lambda: pl.Dataset.from_tensor_slices((NUMBERS, labels)).batch(8))
    receiver_fn = export.build_raw_serving_input_receiver_fn(NUMBERS)
    path, file = estimator.export_saved_model(tmp_path, receiver_fn), str(tmp_path / "model.onnx")
    loaded = pl.estimator.load(path, model_fn=estimator.model_fn)
    export_onnx(loaded, file, signature, [output])
    expected = loaded.signatures[signature](NUMBERS)[output]
    np.testing.assert_allclose(elsewhere(file, NUMBERS)[output], expected, rtol=1e-5, atol=1e-5)


def test_onnx_has_the_outputs_that_are_asked_for(tmp_path):
    path, file = exported(exported_models.digits_cnn, IMAGES, tmp_path), tmp_path / "model.onnx"
    export_onnx(path, file, outputs=["digit"])
    assert elsewhere(str(file), IMAGES).keys() == {"digit"}
    with pytest.raises(ValueError, match=r"logits, probabilities, digit, not all of \['other'\]"):
        export_onnx(path, file, outputs=["other"])


def test_onnx_writes_the_signature_that_is_asked_for(tmp_path):
    path = exported(exported_models.sorting, NUMBERS, tmp_path)
    with pytest.raises(ValueError, match=r"the signature\(s\) serving_default, not 'other'"):
        export_onnx(pl.estimator.load(path), tmp_path / "model.onnx", "other")
