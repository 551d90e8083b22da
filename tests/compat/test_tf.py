"""TensorFlow's names."""

import importlib

import pytest

import paceline as pl
import paceline.compat.tf as tf
from paceline.compat import tfds


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
    "name", ["", ".distribute", ".distribute.experimental", ".distribute.cluster_resolver"]
)
def test_each_name_leads_somewhere(name):
    module = importlib.import_module(f"paceline.compat.tf{name}")
    assert all(hasattr(module, public) for public in module.__all__)


def test_a_script_of_the_guide_reads_as_before():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    config = tf.estimator.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    assert config.train_distribute is strategy


def test_in_22_datasets_load_by_their_name():
    assert tfds.load is pl.inputs.load
