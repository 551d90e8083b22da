"""None stands for "not given" wherever TensorFlow takes it (B1, B2, B5)."""

import inspect

import pytest

import paceline as pl


@pytest.fixture
def two_steps(linear_model_fn, tmp_path, input_fn, one_pass):
    """`two_steps(...)`: trains and evaluates with what is given, all else left out."""

    def run(train=None, evaluate=None, spec=None, config=None, estimator=None):
        def model_fn(features, labels, mode):
            found = linear_model_fn(features, labels, mode)
            names = ("predictions", "loss", "train_op", "eval_metric_ops")
            return pl.EstimatorSpec(
                mode, **{**{name: getattr(found, name) for name in names}, **(spec or {})}
            )

        made = pl.Estimator(model_fn, tmp_path, pl.RunConfig(**(config or {})), **(estimator or {}))
        return pl.train_and_evaluate(
            made,
            pl.TrainSpec(input_fn, **{"max_steps": 2, **(train or {})}),
            pl.EvalSpec(one_pass, **(evaluate or {})),
        )

    return run


@pytest.mark.parametrize(
    "given",
    [
        {"train": {"hooks": None}},
        {"train": {"saving_listeners": None}},
        {"evaluate": {"steps": None}},
        {"evaluate": {"name": None}},
        {"evaluate": {"hooks": None}},
        {"evaluate": {"exporters": None}},
        *[
            {"spec": {name: None}}
            for name in (
                "training_hooks",
                "training_chief_hooks",
                "evaluation_hooks",
                "prediction_hooks",
                "eval_metric_ops",
                "predictions",
            )
        ],
        {"estimator": {"params": None}},
        {"estimator": {"warm_start_from": None}},
        *[
            {"config": {name: None}}
            for name in (
                "model_dir",
                "tf_random_seed",
                "save_summary_steps",
                "save_checkpoints_steps",
                "save_checkpoints_secs",
                "session_config",
                "keep_checkpoint_max",
                "keep_checkpoint_every_n_hours",
                "log_step_count_steps",
                "train_distribute",
                "eval_distribute",
                "device_fn",
                "protocol",
                "experimental_distribute",
                "experimental_max_worker_delay_secs",
            )
        ],
    ],
    ids=lambda given: " ".join(f"{where} {next(iter(what))}" for where, what in given.items()),
)
def test_none_is_as_good_as_nothing(two_steps, given):
    assert two_steps(**given).global_step == 2


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict"])
def test_none_for_every_optional_argument_of_a_call(estimator, input_fn, one_pass, verb):
    estimator.train(input_fn, steps=1)
    call = getattr(estimator, verb)
    nones = {
        name: None
        for name, parameter in inspect.signature(call).parameters.items()
        if parameter.default is None
    }
    assert len(nones) >= 3
    result = call(one_pass, **nones)
    assert result is estimator or list(result)
