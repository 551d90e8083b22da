"""What an input function's batches mean: IN-04, IN-05, IN-23."""

import numpy as np
import pytest

import paceline as pl


@pytest.mark.parametrize("num_replicas", [1, 2, 3])
def test_in_04_the_log_tells_the_effective_global_batch(
    tmp_path, linear_model_fn, input_fn, lines, num_replicas
):
    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
    config = pl.RunConfig(train_distribute=strategy)
    pl.Estimator(linear_model_fn, tmp_path, config).train(input_fn, steps=2)
    (line,) = [line for line in lines() if line.startswith("Input: each batch")]
    assert f"shard 0 of 1, {num_replicas} replica{'s' * (num_replicas > 1)} in sync" in line
    assert f"global batch {8 * num_replicas} " in line


@pytest.mark.parametrize("num_workers", [2, 3])
@pytest.mark.parametrize("num_replicas", [1, 2])
def test_in_04_the_global_batch_counts_each_worker_once(
    tmp_path, linear_model_fn, input_fn, lines, on_workers, num_workers, num_replicas
):
    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        pl.Estimator(linear_model_fn, tmp_path, config).train(input_fn, steps=1)

    on_workers(num_workers, num_replicas, work)
    told = [line for line in lines() if line.startswith("Input: each batch")]
    expected = f"global batch {8 * num_replicas * num_workers} "
    assert len([line for line in told if expected in line]) == num_workers


@pytest.mark.parametrize("asks", [False, True])
def test_in_05_all_workers_seeing_all_data_is_warned_of(
    tmp_path, linear_model_fn, input_fn, lines, on_workers, asks
):
    def work(strategy, index):
        config = pl.RunConfig(train_distribute=strategy)
        estimator = pl.Estimator(linear_model_fn, tmp_path, config)
        estimator.train((lambda input_context: input_fn()) if asks else input_fn, steps=1)

    on_workers(2, 1, work)
    warnings = [line for line in lines() if "does not ask for input_context" in line]
    assert len(warnings) == (0 if asks else 2)


@pytest.mark.parametrize("batch", [(np.ones((4, 3)), np.ones((4, 1))), {"x": np.ones(4)}])
def test_in_23_arrays_for_several_replicas_are_refused_with_advice(
    tmp_path, linear_model_fn, two_replicas, batch
):
    estimator = pl.Estimator(linear_model_fn, tmp_path, pl.RunConfig(train_distribute=two_replicas))
    message = r"each of 2 replicas would compute the same; return Dataset\.from_tensor_slices"
    with pytest.raises(ValueError, match=message):
        estimator.train(lambda: batch, steps=1)


@pytest.mark.parametrize("replicas", [1, 2])
def test_es_23_several_replicas_are_advised_of_the_learning_rate(
    linear_model_fn, input_fn, tmp_path, lines, replicas
):
    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    config = pl.RunConfig(train_distribute=strategy)
    pl.Estimator(linear_model_fn, tmp_path, config).train(input_fn, steps=1)
    (line,) = [line for line in lines() if "global batch" in line]
    assert f"global batch {8 * replicas} in the first step." in line
    assert ("A learning rate" in line) == (replicas > 1)
