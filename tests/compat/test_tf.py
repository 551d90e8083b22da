"""TensorFlow's names."""

import importlib
import logging

import pytest

import paceline as pl
import paceline.compat.tf as tf
from paceline.compat import tfds
from paceline.strategies import list_devices


def test_st_39_the_experimental_name_is_the_same_class():
    stable = tf.distribute.MultiWorkerMirroredStrategy
    experimental = tf.distribute.experimental.MultiWorkerMirroredStrategy
    assert isinstance(stable(), experimental)
    assert isinstance(experimental(), stable)
    assert stable is pl.MultiWorkerMirroredStrategy


def test_co_07_the_old_name_of_communication_implementation():
    old = tf.distribute.experimental.CollectiveCommunication
    assert old.RING is pl.CommunicationImplementation.RING


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".config",
        ".data",
        ".data.experimental",
        ".distribute",
        ".distribute.experimental",
        ".distribute.cluster_resolver",
        ".tpu",
        ".tpu.experimental",
    ],
)
def test_each_name_leads_somewhere(name):
    module = importlib.import_module(f"paceline.compat.tf{name}")
    assert all(hasattr(module, public) for public in module.__all__)


def test_st_39_policies_stand_where_tensorflow_has_them():
    assert tf.data.experimental.AutoShardPolicy is pl.inputs.AutoShardPolicy


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("CPU", list_devices("CPU")),
        ("gpu", list_devices("GPU")),
        ("TPU", ()),
        (None, list_devices("CPU") + list_devices("GPU")),
    ],
)
def test_cl_16_devices_are_listed_to_choose_a_strategy_by(kind, found):
    assert tf.config.list_physical_devices(kind) == found


@pytest.mark.skipif(bool(list_devices("GPU")), reason="there are GPUs here")
def test_cl_16_without_a_gpu_the_list_is_empty():
    assert tf.config.list_physical_devices("GPU") == ()


def test_cl_16_connecting_to_a_cluster_is_what_a_strategy_does(caplog):
    caplog.set_level(logging.INFO, "paceline")
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(environ={})
    tf.config.experimental_connect_to_cluster(resolver)
    assert "a strategy joins its workers when it is made" in caplog.text


@pytest.mark.parametrize("name", tf.tpu.experimental.__all__)
def test_cl_16_a_tpu_is_refused_with_what_there_is(name):
    with pytest.raises(RuntimeError, match=f"{name}: .* finds no TPU.* MirroredStrategy"):
        getattr(tf.tpu.experimental, name)(None)


def test_ob_03_summaries_and_their_hooks_have_their_names():
    assert tf.summary.scalar is pl.summary.scalar
    assert tf.estimator.SummarySaverHook is pl.estimator.SummarySaverHook
    assert tf.estimator.ProfilerHook is pl.estimator.ProfilerHook


def test_a_script_of_the_guide_reads_as_before():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    config = tf.estimator.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    assert config.train_distribute is strategy


def test_in_22_datasets_load_by_their_name():
    assert tfds.load is pl.inputs.load
