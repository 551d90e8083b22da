"""RunConfig: fields, defaults and rules (B2, ES-10)."""

import copy
import inspect
import json
import logging
import os
import pickle
import re
from pathlib import Path

import pytest

import paceline as pl
from paceline.estimator import DistributeConfig


def test_es_10_the_27_printed_values_are_those_of_tensorflow():
    config = pl.RunConfig()
    expected = {
        "model_dir": None,
        "tf_random_seed": None,
        "save_summary_steps": 100,
        "save_checkpoints_steps": None,
        "save_checkpoints_secs": 600,
        "session_config": None,
        "keep_checkpoint_max": 5,
        "keep_checkpoint_every_n_hours": 10000,
        "log_step_count_steps": 100,
        "train_distribute": None,
        "device_fn": None,
        "protocol": None,
        "eval_distribute": None,
        "experimental_distribute": None,
        "experimental_max_worker_delay_secs": None,
        "session_creation_timeout_secs": 7200,
        "service": None,
        "cluster_spec": {},
        "task_type": "worker",
        "task_id": 0,
        "global_id_in_cluster": 0,
        "master": "",
        "evaluation_master": "",
        "is_chief": True,
        "num_ps_replicas": 0,
        "num_worker_replicas": 1,
        "distribute_coordinator_mode": None,
    }
    assert len(expected) == 27
    described = config.describe()
    assert all(f"{name}={value!r}" in described for name, value in expected.items())
    assert {name: getattr(config, name) for name in expected} == expected


def test_es_10_the_description_names_every_field():
    text = pl.RunConfig(save_checkpoints_steps=7).describe()
    assert "save_checkpoints_steps=7, save_checkpoints_secs=None" in text
    for name in (*pl.RunConfig.model_fields, "cluster_spec", "task_type", "is_chief", "master"):
        assert f"{name}=" in text


@pytest.mark.parametrize(
    ("arguments", "steps", "secs"),
    [
        ({}, None, 600),
        ({"save_checkpoints_steps": 5}, 5, None),
        ({"save_checkpoints_secs": 5}, None, 5),
        ({"save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_steps": None, "save_checkpoints_secs": None}, None, None),
        ({"save_checkpoints_steps": None, "save_checkpoints_secs": 3}, None, 3),
    ],
)
def test_setting_one_way_of_saving_clears_the_other(arguments, steps, secs):
    config = pl.RunConfig(**arguments)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (steps, secs)


def test_b2_none_is_taken_wherever_tensorflow_takes_it():
    given = dict.fromkeys(list(inspect.signature(pl.RunConfig).parameters)[:17])
    assert pl.RunConfig(**given) == pl.RunConfig(
        save_summary_steps=None,
        save_checkpoints_secs=None,
        keep_checkpoint_max=None,
        keep_checkpoint_every_n_hours=None,
        log_step_count_steps=None,
        session_creation_timeout_secs=None,
        checkpoint_save_graph_def=None,
    )


def test_b2_a_config_has_a_json_schema_and_comes_back_from_json():
    schema = pl.RunConfig.model_json_schema()
    assert schema["properties"].keys() == pl.RunConfig.model_fields.keys()
    assert schema["properties"]["log_step_count_steps"]["default"] == 100
    assert schema["properties"]["train_distribute"]["type"] == "null"
    config = pl.RunConfig("/m", 3, keep_checkpoint_steps={1, 2}, save_checkpoints_steps=7)
    assert pl.RunConfig.model_validate_json(config.model_dump_json()) == config


def test_two_ways_of_saving_exclude_each_other():
    with pytest.raises(ValueError, match="save_checkpoints_steps=1 and save_checkpoints_secs=2"):
        pl.RunConfig(save_checkpoints_steps=1, save_checkpoints_secs=2)


def test_b2_replace_clears_the_other_way_of_saving():
    by_steps = pl.RunConfig(save_checkpoints_steps=5)
    by_secs = by_steps.replace(save_checkpoints_secs=3)
    assert (by_secs.save_checkpoints_steps, by_secs.save_checkpoints_secs) == (None, 3)
    again = by_secs.replace(save_checkpoints_steps=4)
    assert (again.save_checkpoints_steps, again.save_checkpoints_secs) == (4, None)
    assert by_steps.save_checkpoints_steps == 5


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ({}, {"save_checkpoints_steps": None}, (None, 600)),
        ({}, {"save_checkpoints_secs": None}, (None, None)),
        ({"save_checkpoints_steps": 5}, {"save_checkpoints_secs": None}, (5, None)),
        ({"save_checkpoints_steps": 5}, {"save_checkpoints_steps": None}, (None, None)),
        ({"save_checkpoints_steps": 5}, {"save_checkpoints_secs": 3}, (None, 3)),
        ({}, {"save_checkpoints_steps": None, "save_checkpoints_secs": 3}, (None, 3)),
        ({"save_checkpoints_secs": None}, {"tf_random_seed": 1}, (None, None)),
        ({}, {"model_dir": "/m"}, (None, 600)),
    ],
)
def test_replacing_by_none_leaves_the_other_way_of_saving(before, changes, after):
    config = pl.RunConfig(**before).replace(**changes)
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == after


def test_b2_fields_may_be_given_by_position_in_tensorflow_s_order():
    config = pl.RunConfig("dir", 3, 50, None, 7)
    expected = pl.RunConfig(
        model_dir="dir",
        tf_random_seed=3,
        save_summary_steps=50,
        save_checkpoints_steps=None,
        save_checkpoints_secs=7,
    )
    assert config == expected
    assert list(inspect.signature(pl.RunConfig).parameters)[:3] == [
        "model_dir", "tf_random_seed", "save_summary_steps",
    ]  # fmt: skip
    with pytest.raises(TypeError, match="model_dir by position and by name"):
        pl.RunConfig("dir", model_dir="dir")
    with pytest.raises(TypeError, match="at most 17 arguments by position, 18 are given"):
        pl.RunConfig(*[None] * 18)


STRATEGY, ANOTHER = (pl.MirroredStrategy(["CPU:0", f"CPU:{i}"]) for i in (1, 2))


@pytest.mark.parametrize(
    ("given", "train", "evaluate"),
    [
        ((STRATEGY,), STRATEGY, None),
        ((None, STRATEGY), None, STRATEGY),
        ((STRATEGY, ANOTHER), STRATEGY, ANOTHER),
    ],
)
def test_a_distribute_config_gives_both_strategies(given, train, evaluate):
    config = pl.RunConfig(experimental_distribute=DistributeConfig(*given))
    for found in (config, config.replace(tf_random_seed=1)):
        assert found.train_distribute is train
        assert found.eval_distribute is evaluate


def test_a_strategy_is_given_once():
    with pytest.raises(ValueError, match=r"train_distribute is given as .* give it once"):
        pl.RunConfig(train_distribute=STRATEGY, experimental_distribute=DistributeConfig(ANOTHER))


@pytest.mark.parametrize("make", [DistributeConfig, dict])
def test_one_client_that_drives_servers_elsewhere_is_refused(make):
    """CL-11."""
    with pytest.raises(ValueError, match=r"not supported; start the same script in every task"):
        pl.RunConfig(experimental_distribute=make(remote_cluster={"worker": ["a:1"]}))


@pytest.mark.parametrize(
    ("given", "warnings"),
    [
        ({}, 0),
        ({"model_dir": "m", "keep_checkpoint_max": 3}, 0),
        ({"save_summary_steps": 0, "protocol": None}, 0),
        ({"save_summary_steps": 50}, 0),
        ({"device_fn": lambda op: op, "protocol": "grpc", "session_config": {}}, 2),
        ({"session_config": {"a": 1}}, 1),
        ({"protocol": "grpc", "session_creation_timeout_secs": 9}, 2),
        ({"checkpoint_save_graph_def": True}, 1),
    ],
)
def test_b2_fields_without_effect_are_warned_of(given, warnings, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="paceline"):
        pl.Estimator(lambda features: None, tmp_path, pl.RunConfig(**{**given, "model_dir": None}))
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == warnings
    assert all("no effect" in line for line in found)


def test_the_log_shows_what_differs_from_the_defaults_in_a_line(tmp_path, caplog):
    config = pl.RunConfig(save_checkpoints_steps=7)
    with caplog.at_level(logging.DEBUG, logger="paceline"):
        pl.Estimator(lambda features: None, tmp_path, config)
    shown, whole = (record.getMessage() for record in caplog.records)
    assert shown == (
        f"Using config: model_dir={str(tmp_path)!r}, save_checkpoints_steps=7, "
        f"save_checkpoints_secs=None (and defaults)"
    )
    assert caplog.records[1].levelno == logging.DEBUG
    assert "keep_checkpoint_max=5" in whole


def test_b2_replace_keeps_the_rest_and_validates():
    config = pl.RunConfig(tf_random_seed=3, save_checkpoints_steps=5).replace(model_dir="/m")
    assert (config.tf_random_seed, config.save_checkpoints_steps) == (3, 5)
    with pytest.raises(ValueError, match="keep_checkpoint_max"):
        config.replace(keep_checkpoint_max=-1)


def test_b2_replace_refuses_what_is_derived():
    with pytest.raises(ValueError, match=r"cannot set is_chief, .* TF_CONFIG"):
        pl.RunConfig().replace(is_chief=False)


@pytest.mark.parametrize(
    "arguments",
    [
        {"model_dir": ""},
        {"save_summary_steps": -1},
        {"save_checkpoints_steps": 0},
        {"keep_checkpoint_every_n_hours": 0},
        {"log_step_count_steps": 0},
        {"session_creation_timeout_secs": 0},
        {"tf_random_seed": "x"},
        {"protocol": "http"},
        {"device_fn": "cpu"},
        {"device_fn": lambda op, more: op},
        {"device_fn": lambda operation: operation},
        {"experimental_distribute": 3},
        {"experimental_max_worker_delay_secs": -1},
        {"train_distribute": "mirrored"},
        {"no_such_field": 1},
    ],
)
def test_b2_fields_out_of_range_are_refused_by_name(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        pl.RunConfig(**arguments)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"save_checkpoint_steps": 3},
            "no setting 'save_checkpoint_steps'; did you mean save_checkpoints_steps?",
        ),
        ({"keep_checkpoint_max": "x"}, "keep_checkpoint_max must be a valid integer, it is 'x'"),
        ({"report": None}, "report must be a valid boolean, it is None"),
        (
            {"replay_steps": 7},
            "replay_steps must be a valid boolean or 'captured', it is 7",
        ),
        ({"model_dir": 3}, "model_dir must be a path, it is 3"),
        (
            {"save_checkpoints_secs": 0, "keep_checkpoint_max": -1},
            "secs must be greater than 0, it is 0; keep_checkpoint_max must be greater than or",
        ),
    ],
)
def test_an_error_says_setting_rule_and_value_and_nothing_of_the_library(settings, message):
    for make in (pl.RunConfig, pl.RunConfig().replace):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            make(**settings)
        assert "pydantic" not in str(caught.value)


def test_a_setting_that_is_like_no_other_is_refused_with_the_list_of_all():
    with pytest.raises(ValueError, match=r"no setting 'zzz'; it has model_dir, .*replay_steps$"):
        pl.RunConfig(zzz=1)


@pytest.fixture
def told_by_tf_config(monkeypatch, tmp_path):
    """The model_dir of TF_CONFIG."""
    told = str(tmp_path / "told")
    monkeypatch.setenv("TF_CONFIG", json.dumps({"model_dir": told}))
    return told


def test_the_model_dir_of_tf_config_is_that_of_the_config(told_by_tf_config):
    config = pl.RunConfig()
    assert config.model_dir == told_by_tf_config
    assert config.replace(tf_random_seed=3).model_dir == told_by_tf_config
    assert pl.RunConfig(model_dir=told_by_tf_config).model_dir == told_by_tf_config
    assert pl.Estimator(lambda features: None).model_dir == told_by_tf_config


def test_a_model_dir_that_differs_from_that_of_tf_config_is_refused(told_by_tf_config, tmp_path):
    own = str(tmp_path / "own")
    for make in (pl.RunConfig, pl.RunConfig().replace):
        with pytest.raises(ValueError, match=r"told' \(in TF_CONFIG, or after --model-dir\)"):
            make(model_dir=own)
    with pytest.raises(ValueError, match=r"own' in the call and .*told' in TF_CONFIG, or after"):
        pl.Estimator(lambda features: None, own)


def test_a_config_is_frozen():
    with pytest.raises(AttributeError, match=r"config.replace\(tf_random_seed=...\)"):
        pl.RunConfig().tf_random_seed = 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: pl.MirroredStrategy(["CPU:0", "CPU:1"]),
        lambda: pl.OneDeviceStrategy("CPU:0"),
        lambda: pl.CentralStorageStrategy(["CPU:0", "CPU:1"]),
        lambda: pl.ParameterServerStrategy(),
    ],
    ids=["Mirrored", "OneDevice", "CentralStorage", "ParameterServer"],
)
def test_es_25_d_05_a_config_with_a_strategy_can_be_copied_and_pickled(make, monkeypatch):
    cluster = {"worker": ["localhost:1"], "ps": ["localhost:2"]}
    job = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(job))
    strategy = make()
    config = pl.RunConfig(train_distribute=strategy, tf_random_seed=1)
    for twin in (copy.deepcopy(config), pickle.loads(pickle.dumps(config)), config.replace()):
        assert type(twin.train_distribute) is type(strategy)
        assert repr(twin.train_distribute) == repr(strategy)
        assert (twin.tf_random_seed, twin.num_ps_replicas) == (1, config.num_ps_replicas)


@pytest.mark.parametrize("form", [Path, os.fspath, os.fsencode])
def test_paths_are_accepted_as_model_dir(tmp_path, form):
    assert pl.RunConfig(model_dir=form(tmp_path)).model_dir == str(tmp_path)
    assert pl.Estimator(lambda features: None, form(tmp_path)).model_dir == str(tmp_path)


def test_a_copy_is_of_the_task_that_its_original_is(monkeypatch):
    """The environment is read once; anew only for another strategy, which may know better."""
    config = pl.RunConfig()
    job = {
        "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]},
        "task": {"type": "worker", "index": 1},
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps(job))
    copy_of_it = config.replace(save_checkpoints_steps=7)
    assert copy_of_it.task_info == config.task_info != pl.RunConfig().task_info
    under_another = copy_of_it.replace(train_distribute=pl.OneDeviceStrategy("CPU:0"))
    assert (under_another.task_type, under_another.task_id) == ("worker", 1)
