"""Linear models, networks, and both together: what they take, are called and report (ES-11)."""

import json

import numpy as np
import pytest

import paceline as pl
from paceline import estimator as est
from paceline import feature_column as fc
from paceline import summary
from paceline.checkpoint import latest_checkpoint, load
from paceline.inputs import FixedLenFeature
from paceline.nn import optimizers
from paceline.strategies import VariableStore

X = fc.numeric_column("x")
WORD = fc.categorical_column_with_vocabulary_list("word", ["a", "b", "c"])
EMBEDDED = fc.embedding_column(WORD, 2)

LINEAR = {"feature_columns": [X, WORD]}
DNN = {"feature_columns": [X, EMBEDDED], "hidden_units": [4, 3]}
COMBINED = {
    "linear_feature_columns": [X, WORD],
    "dnn_feature_columns": [EMBEDDED],
    "dnn_hidden_units": [4],
}
FAMILIES = {
    "Linear": (est.LinearClassifier, est.LinearRegressor, est.LinearEstimator, LINEAR),
    "DNN": (est.DNNClassifier, est.DNNRegressor, est.DNNEstimator, DNN),
    "DNNLinearCombined": (
        est.DNNLinearCombinedClassifier,
        est.DNNLinearCombinedRegressor,
        est.DNNLinearCombinedEstimator,
        COMBINED,
    ),
}
CLASSIFIERS = {name: (family[0], family[3]) for name, family in FAMILIES.items()}


def batch(labels=(0, 1, 1), **more):
    features = {"x": np.array([1.0, 2.0, 3.0]), "word": np.array(["a", "b", "c"])}
    return features | more, np.array(labels)


def ones_input_fn():
    return pl.Dataset.from_tensors(({"x": [1.0]}, [1.0])).repeat(1000).batch(10)


def values_of(estimator):
    return load(latest_checkpoint(estimator.model_dir)).arrays()


def shapes_of(estimator):
    """Of the variables that it trains: by name, and not those of the optimizer."""
    values = values_of(estimator)
    return {n: v.shape for n, v in values.items() if n.startswith(("linear/", "dnn/"))}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_es_11_premade_models_are_classes_of_estimators(tmp_path, family):
    classifier, regressor, with_head, options = family
    for make in (classifier, regressor):
        estimator = make(model_dir=tmp_path, **options)
        assert isinstance(estimator, make)
        assert isinstance(estimator, with_head)
        assert isinstance(estimator, pl.Estimator)


def test_b1_construction_a_subclass_overrides_no_method(tmp_path):
    class Mine(pl.Estimator):
        def __init__(self, model_dir):
            super().__init__(lambda features: None, model_dir)

        def summary(self):
            return self.model_dir

    assert Mine(tmp_path / "mine").summary().endswith("mine")
    with pytest.raises(TypeError, match="Eager overrides evaluate, train of Estimator"):

        class Eager(pl.Estimator):
            def train(self, input_fn):
                return self

            def evaluate(self, input_fn):
                return {}


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [
        ("SGD", 0.2),
        (lambda: optimizers.SGD(0.1), 0.1),
        (optimizers.SGD(0.1), 0.1),
        (optimizers.SGD, 0.01),
    ],
    ids=["a name", "a function", "an optimizer", "a class"],
)
def test_an_optimizer_is_named_made_or_given(tmp_path, optimizer, rate):
    """Each run of several steps goes on where the last one stopped, whoever holds the optimizer."""
    regressor = est.LinearRegressor([X], tmp_path, optimizer=optimizer)
    regressor.train(ones_input_fn, steps=2)
    regressor.train(ones_input_fn, steps=1)
    weight = bias = 0.0
    for _ in range(3):  # SGD of (w + b - 1)²
        gradient = 2 * (weight + bias - 1)
        weight, bias = weight - rate * gradient, bias - rate * gradient
    found = regressor.get_variable_value("linear/linear_model/x/weights")
    np.testing.assert_allclose(found, [[weight]], rtol=1e-5)
    assert regressor.evaluate(ones_input_fn, steps=1)["global_step"] == 3


def test_a_script_that_makes_its_optimizer_again_goes_on_with_the_same_one(tmp_path):
    """Whatever else was made before in the process, on which names outside models depend."""

    def trained(path, steps):
        options = {"optimizer": optimizers.Adam(0.1), "config": pl.RunConfig(tf_random_seed=1)}
        return est.DNNRegressor([3], [X], path, **options).train(ones_input_fn, steps=steps)

    whole = values_of(trained(tmp_path / "whole", 4))
    trained(tmp_path / "parts", 2)
    parts = values_of(trained(tmp_path / "parts", 2))
    assert "adam/iterations" in whole
    assert parts.keys() == whole.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(parts[name], value, err_msg=name)


def test_a_premade_model_takes_no_name_from_optimizers_outside(tmp_path):
    """Or else what a script makes later has other names, and does not find its slots again."""

    def number(optimizer):
        return int(optimizer.name.removeprefix("sgd").removeprefix("_") or 0)

    before = optimizers.SGD()
    est.DNNRegressor([3], [X], tmp_path, optimizer="SGD")
    assert number(optimizers.SGD()) == number(before) + 1


@pytest.mark.parametrize(
    ("optimizer", "num_columns", "rate"), [("Ftrl", 4, 0.2), ("ftrl", 36, 1 / 6), ("SGD", 36, 0.2)]
)
def test_es_11_the_rate_of_ftrl_falls_with_the_number_of_columns(
    tmp_path, optimizer, num_columns, rate
):
    """The first step of Ftrl moves a bias by rate · g / √(0.1 + g²), that of SGD by rate · g."""
    columns = [fc.numeric_column(f"x{i}") for i in range(num_columns)]
    features = {column.name: np.zeros(1) for column in columns}
    regressor = est.LinearRegressor(columns, tmp_path, optimizer=optimizer)
    regressor.train(lambda: (features, np.ones(1)), steps=1)
    moved = 2.0 if optimizer == "SGD" else 2.0 / np.sqrt(0.1 + 4.0)
    bias = regressor.get_variable_value("linear/linear_model/bias_weights")
    np.testing.assert_allclose(bias, [rate * moved], rtol=1e-5)


def test_ftrl_by_name_passes_over_rows_that_no_batch_reads(tmp_path):
    """To the bit what goes through the whole table gives, as weights begin at zero."""
    words = fc.categorical_column_with_hash_bucket("word", 50)

    def trained(path, optimizer):
        estimator = est.LinearRegressor([X, words], path, optimizer=optimizer)
        data = pl.Dataset.from_tensor_slices(batch((1.0, 2.0, 3.0))).batch(1).repeat(4)
        return values_of(estimator.train(lambda: data))

    expected = trained(tmp_path / "whole", lambda: optimizers.Ftrl(0.2, sparse="dense"))
    for name, value in trained(tmp_path / "rows", "Ftrl").items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.parametrize(
    ("make", "rates"),
    [
        (
            lambda path: est.DNNRegressor([], [X], path, optimizer="SGD"),
            {"dnn/logits/bias": 0.05},
        ),
        (
            lambda path: est.DNNLinearCombinedRegressor(path, [X], "SGD", [X], "SGD", [3]),
            {"linear/linear_model/bias_weights": 0.005, "dnn/logits/bias": 0.001},
        ),
        (
            lambda path: est.DNNLinearCombinedRegressor(
                path, [X], optimizers.SGD(0.3), [X], lambda: optimizers.SGD(0.4), [3]
            ),
            {"linear/linear_model/bias_weights": 0.3, "dnn/logits/bias": 0.4},
        ),
    ],
    ids=["DNN", "combined", "combined, given"],
)
def test_each_part_learns_at_its_own_rate(tmp_path, make, rates):
    """Of a bias, from 0: the gradient of the only example's squared error is -2."""
    estimator = make(tmp_path).train(lambda: ({"x": np.zeros(1)}, np.ones(1)), steps=1)
    for name, rate in rates.items():
        found = estimator.get_variable_value(name).item()
        np.testing.assert_allclose(found, 2 * rate, rtol=1e-5)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (
            lambda path: est.LinearClassifier(**LINEAR, model_dir=path, n_classes=3),
            {
                "linear/linear_model/bias_weights": (3,),
                "linear/linear_model/word/weights": (3, 3),
                "linear/linear_model/x/weights": (1, 3),
            },
        ),
        (
            lambda path: est.DNNRegressor(**DNN, model_dir=path, batch_norm=True, dropout=0.2),
            {
                "dnn/input_layer/word_embedding/embedding_weights": (3, 2),
                "dnn/hiddenlayer_0/kernel": (3, 4),
                "dnn/hiddenlayer_0/bias": (4,),
                "dnn/hiddenlayer_1/kernel": (4, 3),
                "dnn/hiddenlayer_1/bias": (3,),
                "dnn/logits/kernel": (3, 1),
                "dnn/logits/bias": (1,),
            }
            | {
                f"dnn/hiddenlayer_{i}/batchnorm_{i}/{name}": (4 - i,)
                for i in (0, 1)
                for name in ("beta", "gamma", "moving_mean", "moving_variance")
            },
        ),
        (
            lambda path: est.DNNLinearCombinedClassifier(**COMBINED, model_dir=path),
            {
                "dnn/input_layer/word_embedding/embedding_weights": (3, 2),
                "dnn/hiddenlayer_0/kernel": (2, 4),
                "dnn/hiddenlayer_0/bias": (4,),
                "dnn/logits/kernel": (4, 1),
                "dnn/logits/bias": (1,),
                "linear/linear_model/bias_weights": (1,),
                "linear/linear_model/word/weights": (3, 1),
                "linear/linear_model/x/weights": (1, 1),
            },
        ),
    ],
    ids=FAMILIES,
)
def test_variables_have_tensorflows_names(tmp_path, estimator, expected):
    found = estimator(tmp_path).train(batch, steps=1)
    assert shapes_of(found) == expected


OF_REGRESSORS = {"average_loss", "global_step", "label/mean", "loss", "prediction/mean"}
OF_TWO_CLASSES = OF_REGRESSORS | {
    "accuracy",
    "accuracy_baseline",
    "auc",
    "auc_precision_recall",
    "precision",
    "recall",
}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_es_13_b10_metrics_have_tensorflows_keys(tmp_path, family):
    classifier, regressor, with_head, options = family
    cases = {
        "regressor": (regressor(model_dir=tmp_path / "r", **options), OF_REGRESSORS),
        "two classes": (classifier(model_dir=tmp_path / "2", **options), OF_TWO_CLASSES),
        "three classes": (
            classifier(model_dir=tmp_path / "3", n_classes=3, **options),
            {"accuracy", "average_loss", "global_step", "loss"},
        ),
        "a head": (
            with_head(est.RegressionHead(name="h"), model_dir=tmp_path / "h", **options),
            {"average_loss/h", "global_step", "label/mean/h", "loss", "prediction/mean/h"},
        ),
    }
    for name, (estimator, keys) in cases.items():
        estimator.train(batch, steps=1)
        assert estimator.evaluate(batch, steps=1).keys() == keys, name


@pytest.mark.parametrize(("make", "options"), CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_classes_are_words_where_there_is_a_vocabulary(tmp_path, make, options):
    words = ["no", "yes", "perhaps"]
    estimator = make(model_dir=tmp_path, n_classes=3, label_vocabulary=words, **options)
    estimator.train(lambda: batch(words), steps=40)
    found = list(estimator.predict(lambda: pl.Dataset.from_tensors(batch()[0])))
    assert [prediction["all_classes"].tolist() for prediction in found] == [words] * 3
    assert {prediction["classes"].item() for prediction in found} <= set(words)


@pytest.mark.parametrize(("make", "options"), CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_an_example_of_weight_zero_teaches_nothing(tmp_path, make, options):
    def values(name, **features):
        config = pl.RunConfig(tf_random_seed=1)
        estimator = make(
            model_dir=tmp_path / name, weight_column="weight", config=config, **options
        )
        features, labels = batch(weight=np.array([1.0, 0.0, 2.0]), **features)
        return values_of(estimator.train(lambda: (features, labels), steps=3))

    expected = values("as it is")
    for name, value in values("another", x=np.array([1.0, 55.0, 3.0])).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_the_sparse_combiner_reaches_the_linear_model(tmp_path, combiner):
    several = fc.categorical_column_with_identity("ids", 3)
    features = {"ids": np.array([[0, 1], [2, -1]]), "x": np.zeros(2)}
    estimators = [
        est.LinearRegressor([several], tmp_path / "l", optimizer="SGD", sparse_combiner=combiner),
        est.DNNLinearCombinedRegressor(
            tmp_path / "c", [several], "SGD", linear_sparse_combiner=combiner
        ),
    ]
    for estimator, rate in zip(estimators, (0.2, 0.005), strict=True):
        estimator.train(lambda: (features, np.array([1.0, 1.0])), steps=1)
        factor = {"sum": 1, "mean": 0.5, "sqrtn": 0.5**0.5}[combiner]
        found = estimator.get_variable_value("linear/linear_model/ids/weights")[:, 0]
        np.testing.assert_allclose(found, [rate * factor, rate * factor, rate], rtol=1e-5)


def test_the_loss_is_a_sum_where_it_is_asked_for(tmp_path):
    options = {"optimizer": "SGD", "loss_reduction": "sum"}
    regressor = est.LinearRegressor([X], tmp_path, **options)
    regressor.train(lambda: ({"x": np.zeros(4)}, np.ones(4)), steps=1)
    bias = regressor.get_variable_value("linear/linear_model/bias_weights")
    np.testing.assert_allclose(bias, [4 * 2 * 0.2], rtol=1e-5)


def test_several_labels_are_predicted_at_once(tmp_path):
    regressor = est.DNNRegressor(**DNN, model_dir=tmp_path, label_dimension=2)
    regressor.train(lambda: batch(np.ones((3, 2))), steps=1)
    assert next(regressor.predict(lambda: batch()[0]))["predictions"].shape == (2,)


def test_dropout_and_batch_normalization_are_for_training(tmp_path):
    """Two evaluations agree, and the moving means have moved."""
    options = DNN | {"dropout": 0.5, "batch_norm": True, "activation_fn": "tanh"}
    classifier = est.DNNClassifier(**options, model_dir=tmp_path)
    classifier.train(batch, steps=5)
    first, second = (classifier.evaluate(batch, steps=1) for _ in range(2))
    assert first == second
    moving_mean = classifier.get_variable_value("dnn/hiddenlayer_0/batchnorm_0/moving_mean")
    assert np.abs(moving_mean).max() > 0


def test_a_network_shows_how_its_layers_are_activated(tmp_path):
    found = summary.Summaries()
    model_fn = est.DNNRegressor(**DNN, model_dir=tmp_path).model_fn
    with summary.collecting(found), VariableStore().building():
        model_fn(*batch(), pl.ModeKeys.EVAL)
    layers = ["dnn/hiddenlayer_0", "dnn/hiddenlayer_1", "dnn/logits"]
    written = json.loads(found.added_up_as_text())[1]
    assert list(written) == [f"{layer}/activation" for layer in layers]


def test_a_model_begins_with_what_another_one_has_learned(tmp_path):
    taught = est.LinearRegressor([X], tmp_path / "first", optimizer="SGD")
    taught.train(ones_input_fn, steps=5)
    combined = est.DNNLinearCombinedRegressor(
        tmp_path / "second", [X], "SGD", warm_start_from=tmp_path / "first"
    )
    loss = combined.train_and_report(ones_input_fn, steps=1).loss
    assert loss == pytest.approx(taught.evaluate(ones_input_fn, steps=1)["loss"])


@pytest.mark.parametrize(("make", "options"), CLASSIFIERS.values(), ids=CLASSIFIERS)
@pytest.mark.parametrize("parses", [False, True], ids=["arrays", "examples"])
def test_an_exported_model_answers_as_the_estimator_predicts(tmp_path, make, options, parses):
    estimator = make(model_dir=tmp_path / "model", **options).train(batch, steps=3)
    raw = {"x": pl.TensorSpec([None]), "word": pl.TensorSpec([None], str)}
    spec = fc.make_parse_example_spec([X, WORD])
    receiver = (
        est.export.build_parsing_serving_input_receiver_fn(spec)
        if parses
        else est.export.build_raw_serving_input_receiver_fn(raw)
    )
    path = estimator.export_saved_model(tmp_path / "exports", receiver)
    model = est.load(path, model_fn=make(model_dir=tmp_path / "other", **options).model_fn)
    features = batch()[0]
    records = [
        pl.inputs.encode_example({"x": [x], "word": [word]})
        for x, word in zip(features["x"].tolist(), features["word"].tolist(), strict=True)
    ]
    features["x"] = features["x"].astype(np.float32)
    found = model.signatures["predict"](records if parses else features)
    expected = list(estimator.predict(lambda: pl.Dataset.from_tensors(features)))
    np.testing.assert_allclose(found["logits"], [p["logits"] for p in expected], rtol=1e-6)


@pytest.mark.host  # where an exported model is followed
@pytest.mark.parametrize(
    ("make", "signature"),
    [
        (lambda columns, path: est.DNNRegressor([4], columns, path), "predict"),
        (lambda columns, path: est.LinearClassifier(columns, path), "regression"),
    ],
    ids=["DNN", "Linear"],
)
def test_a_model_of_numeric_columns_has_a_form_in_onnx(tmp_path, make, signature):
    onnxruntime = pytest.importorskip("onnxruntime")
    numbers = {"x": np.array([[1.0, 2.0], [3.0, 5.0], [4.0, 0.0]], np.float32)}
    receiver = est.export.build_raw_serving_input_receiver_fn(numbers)

    def exported(name, *columns):
        estimator = make(columns, tmp_path / name)
        estimator.train(lambda: (numbers, np.array([0, 1, 1])), steps=3)
        path = estimator.export_saved_model(tmp_path / name / "exports", receiver)
        return est.load(path, model_fn=estimator.model_fn)

    halved = fc.numeric_column("x", 2, normalizer_fn=lambda x: x / 2)
    model, file = exported("numbers", halved), str(tmp_path / "model.onnx")
    est.export_onnx(model, file, signature)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    expected = model.signatures[signature](numbers)
    for output, value in zip(session.get_outputs(), session.run(None, numbers), strict=True):
        np.testing.assert_allclose(value, expected[output.name], rtol=1e-5)
    buckets = exported("buckets", fc.bucketized_column(fc.numeric_column("x", 2), [2.5]))
    with pytest.raises(ValueError, match="cannot be exported to ONNX"):
        est.export_onnx(buckets, file, signature)


def test_records_with_labels_and_weights_are_read_by_one_spec():
    spec = est.classifier_parse_example_spec([X, WORD], "label", str, weight_column="weight")
    record = pl.inputs.encode_example({"x": [2.0], "label": ["a"], "weight": [0.5]})
    found = pl.inputs.parse_example(record, spec)
    assert {key: value.tolist() for key, value in found.items()} == {
        "x": [2.0],
        "word": [],
        "label": ["a"],
        "weight": [0.5],
    }
    spec = est.regressor_parse_example_spec([X], "label", label_dimension=2, label_default=0.0)
    record = pl.inputs.encode_example({"x": [2.0]})
    assert pl.inputs.parse_example(record, spec)["label"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "make", [est.classifier_parse_example_spec, est.regressor_parse_example_spec]
)
@pytest.mark.parametrize(
    ("weight", "form"),
    [
        ("weight", FixedLenFeature((1,), np.dtype(np.float32))),
        (fc.numeric_column("weight"), FixedLenFeature((1,), np.dtype(np.float32))),
        (fc.numeric_column("weight", 2, dtype=np.int64), FixedLenFeature((2,), np.dtype(np.int64))),
    ],
)
def test_the_weight_of_a_record_is_a_feature_by_name_or_a_numeric_column(make, weight, form):
    assert make([X], "label", weight_column=weight)["weight"] == form


@pytest.mark.parametrize(
    "make", [est.classifier_parse_example_spec, est.regressor_parse_example_spec]
)
@pytest.mark.parametrize(
    ("label", "weight", "error", "message"),
    [
        ("x", None, ValueError, "label_key 'x' is a feature of a column or the label, too"),
        ("label", "x", ValueError, "weight_column 'x' is a feature"),
        ("label", fc.numeric_column("x"), ValueError, "weight_column 'x' is a feature"),
        (
            "label",
            "label",
            ValueError,
            "weight_column 'label' is a feature of a column or the label",
        ),
        ("label", WORD, TypeError, "weight_column must be a feature's name or a numeric_column"),
        ("label", "", TypeError, "weight_column must be"),
        ("label", 3, TypeError, "weight_column must be"),
        (fc.numeric_column("label"), None, TypeError, "label_key must be the name of a feature"),
    ],
)
def test_what_is_no_label_or_weight_of_a_record_is_refused(make, label, weight, error, message):
    with pytest.raises(error, match=message):
        make([X], label, weight_column=weight)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: est.LinearRegressor([]), ValueError, "feature_columns is empty"),
        (lambda: est.LinearRegressor(["x"]), TypeError, "feature_columns holds 'x'"),
        (lambda: est.LinearRegressor([X], optimizer=3), TypeError, "that makes one; it is 3"),
        (lambda: est.LinearRegressor([X], optimizer="Sgdd"), ValueError, "no optimizer is called"),
        (lambda: est.LinearRegressor([X], sparse_combiner="max"), ValueError, "sparse_combiner"),
        (lambda: est.LinearClassifier([X], n_classes=1), ValueError, "n_classes"),
        (lambda: est.LinearEstimator(None, [X]), TypeError, "head must be a Head"),
        (lambda: est.DNNRegressor([3], [WORD]), TypeError, "wrap a categorical one in indicator"),
        (lambda: est.DNNRegressor([0], [X]), ValueError, "a number of hidden_units"),
        (lambda: est.DNNRegressor([3], [X], dropout=1.0), ValueError, "dropout"),
        (lambda: est.DNNRegressor([3], [X], activation_fn="rely"), ValueError, "no activation"),
        (lambda: est.DNNLinearCombinedRegressor(), ValueError, "give linear_feature_columns, dnn_"),
        (
            lambda: est.DNNLinearCombinedRegressor(dnn_feature_columns=[X]),
            ValueError,
            "without dnn_hidden_units",
        ),
        (
            lambda: est.DNNLinearCombinedRegressor(
                dnn_feature_columns=[X], dnn_hidden_units=[3], dnn_optimizer=7
            ),
            TypeError,
            "dnn_optimizer must be the name of an optimizer",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_estimator_is_made(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_missing_feature_is_named_in_the_first_step(tmp_path):
    with pytest.raises(ValueError, match=r"column 'word' finds no feature 'word'; .* 'x'"):
        est.LinearRegressor(**LINEAR, model_dir=tmp_path).train(ones_input_fn, steps=1)
