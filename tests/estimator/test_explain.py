"""`explain`: what a run will do, before it runs (D-31)."""

import json

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import explain


def rows_of(text):
    return {line[:11].strip(): line[12:] for line in text.splitlines()}


@pytest.mark.host
def test_d_31_it_says_in_words_what_is_configured(linear_model_fn, input_fn, tmp_path):
    strategy = pl.MirroredStrategy(["CPU:0", "CPU:1"])
    config = pl.RunConfig(train_distribute=strategy, save_checkpoints_steps=7)
    estimator = pl.Estimator(linear_model_fn, tmp_path, config)
    rows = rows_of(explain(estimator))
    assert rows["model_dir"] == f"{tmp_path}; training begins at step 0"
    assert rows["task"].startswith("worker 0 of 1 that train, under MirroredStrategy(CPU:0, CPU:1)")
    assert "a step takes 2 of them" in rows["batches"]
    assert rows["saves"] == (
        "every 7 steps, at the beginning and the end, by the chief; keeps the last 5"
    )
    assert rows["log"] == "loss and steps/s every 100 steps; summaries every 100 steps"
    assert "phases" not in rows
    estimator.train(input_fn, steps=2)
    assert "begins after step 2" in rows_of(explain(estimator))["model_dir"]


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_d_31_with_data_it_measures_steps_and_names_what_limits_them(
    linear_model_fn, input_fn, tmp_path, num_replicas
):
    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
    config = pl.RunConfig(train_distribute=strategy)
    estimator = pl.Estimator(linear_model_fn, tmp_path, config)
    rows = rows_of(explain(estimator, input_fn, steps=5))
    assert f"ms for {8 * num_replicas} examples" in rows["a step"]
    assert ("one replica" in rows) == (num_replicas > 1)
    shares = dict(part.rsplit(" ", 1) for part in rows["phases"].split(", "))
    assert {"input", "forward", "backward", "update"} <= shares.keys()
    assert sum(int(share.rstrip("%")) for share in shares.values()) == pytest.approx(100, abs=6)
    assert rows["limit"].split(":")[0] == next(iter(shares))
    assert list(tmp_path.iterdir()) == []  # nothing is kept


def test_d_31_a_slow_input_is_what_it_names(linear_model_fn, examples, tmp_path):
    def input_fn():
        table = np.zeros((600, 600))

        def slow(features, labels):
            for _ in range(4):
                table @ table
            return features, labels

        return pl.Dataset.from_tensor_slices(examples).batch(8).map(slow).repeat()

    estimator = pl.Estimator(linear_model_fn, tmp_path)
    rows = rows_of(explain(estimator, input_fn, steps=4))
    assert rows["limit"].startswith("input: the model waits for its data")


def test_d_31_too_little_data_is_said(linear_model_fn, examples, tmp_path):
    estimator = pl.Estimator(linear_model_fn, tmp_path)
    rows = rows_of(explain(estimator, lambda: pl.Dataset.from_tensor_slices(examples).batch(24)))
    assert rows["a step"] == "not measured: input_fn gave fewer than 5 batches"


def test_d_31_of_parameter_servers_it_says_what_lives_and_happens_where(
    linear_model_fn, tmp_path, monkeypatch
):
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2"], "ps": ["localhost:3"]}
    task = {"type": "worker", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    config = pl.RunConfig(train_distribute=pl.ParameterServerStrategy())
    rows = rows_of(explain(pl.Estimator(linear_model_fn, tmp_path, config)))
    assert rows["task"].startswith("worker 0 of 2 that train, under ParameterServerStrategy")
    assert rows["variables"] == "on 1 parameter server; workers do not wait for each other"
    assert rows["evaluation"] == "train_and_evaluate leaves it to the chief"


def test_d_31_of_several_workers_it_says_what_they_do_and_measures_nothing(
    on_workers, linear_model_fn, input_fn, tmp_path
):
    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        estimator = pl.Estimator(linear_model_fn, tmp_path, config)
        with pytest.raises(ValueError, match="several workers"):
            explain(estimator, input_fn)
        return rows_of(explain(estimator))["batches"]

    first, second = on_workers(2, 1, work)
    assert "shard 0 of 2" in first
    assert "shard 1 of 2" in second
