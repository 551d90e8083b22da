"""TensorFlow's names."""

import importlib
import logging
import re
import subprocess
import sys

import numpy as np
import pytest

import paceline as pl
import paceline.compat.tf as tf
from paceline.compat import tfds
from paceline.strategies import Device, list_devices, set_visible_devices


def test_st_39_the_experimental_name_is_the_same_class():
    stable = tf.distribute.MultiWorkerMirroredStrategy
    experimental = tf.distribute.experimental.MultiWorkerMirroredStrategy
    assert isinstance(stable(), experimental)
    assert isinstance(experimental(), stable)
    assert stable is pl.MultiWorkerMirroredStrategy


def test_co_07_the_old_name_of_communication_implementation():
    old = tf.distribute.experimental.CollectiveCommunication
    assert old.RING is pl.CommunicationImplementation.RING


def modules():
    """All modules that stand for TensorFlow's, by name."""
    for name in tf.MODULES:
        importlib.import_module(f"paceline.compat.tf.{name}")
    return {n: m for n, m in sys.modules.items() if n.startswith("paceline.compat.tf")}


def test_mb_24_each_name_of_each_table_leads_somewhere():
    missing = []
    for full, module in modules().items():
        for name in dir(module):
            try:
                getattr(module, name)
            except (AttributeError, ImportError) as error:
                missing.append((full, name, str(error)))
    assert not missing


@pytest.mark.parametrize("module", ["keras.layers", "keras.optimizers.schedules", "compat.v1"])
def test_mb_24_modules_are_imported_as_tensorflows(module):
    assert importlib.import_module(f"paceline.compat.tf.{module}")


def test_mb_24_importing_the_names_imports_no_more_than_arrays():
    code = "import sys, paceline.compat.tf; print(*[m for m in sys.modules if 'paceline.' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {name.split(".")[1] for name in ran.stdout.split()}
    assert rooms == {"autodiff", "compat", "kernels"}


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("Session", "there is no graph"),
        ("compat.v1.Session", "there is no graph"),
        ("saved_model.load", "model.save"),
        ("data.experimental.CsvDataset", "csv_rows"),
        ("distribute.cluster_resolver.GCEClusterResolver", "TFConfigClusterResolver"),
        ("nn.cumprod", "use np.cumprod"),
        ("keras.layers.NoSuchLayer", "docs/migration.md says what is there"),
        ("no_such_name", "docs/migration.md says what is there"),
    ],
)
def test_mb_24_a_missing_name_says_what_to_use_instead(path, advice):
    *modules, name = path.split(".")
    module = importlib.import_module(".".join(["paceline.compat.tf", *modules]))
    with pytest.raises(AttributeError, match=rf"tf\.{re.escape(path)} has no counterpart") as error:
        getattr(module, name)
    assert advice in str(error.value)


def test_mb_25_the_tutorials_workaround_is_a_note(caplog):
    caplog.set_level(logging.INFO, "paceline")
    tf.compat.v1.disable_eager_execution()
    assert "there is no graph" in caplog.text


def test_st_39_policies_stand_where_tensorflow_has_them():
    assert tf.data.experimental.AutoShardPolicy is pl.inputs.AutoShardPolicy


@pytest.mark.host  # what is there was asked when this file was read
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


@pytest.mark.host
@pytest.mark.skipif(bool(list_devices("GPU")), reason="there are GPUs here")
def test_cl_16_without_a_gpu_the_list_is_empty():
    assert tf.config.list_physical_devices("GPU") == ()


def test_cl_16_connecting_to_a_cluster_is_what_a_strategy_does(caplog):
    caplog.set_level(logging.INFO, "paceline")
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(environ={})
    tf.config.experimental_connect_to_cluster(resolver)
    assert "a strategy joins its workers when it is made" in caplog.text


@pytest.mark.parametrize("name", ["initialize_tpu_system", "shutdown_tpu_system"])
def test_cl_16_a_tpu_is_refused_with_what_there_is(name):
    with pytest.raises(RuntimeError, match=f"{name}: .* finds no TPU.* MirroredStrategy"):
        getattr(tf.tpu.experimental, name)(None)


def test_ob_03_summaries_and_their_hooks_have_their_names():
    assert tf.summary.FileWriter is pl.summary.FileWriter
    assert tf.estimator.SummarySaverHook is pl.estimator.SummarySaverHook
    assert tf.estimator.ProfilerHook is pl.estimator.ProfilerHook


def test_a_script_of_the_guide_reads_as_before():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    config = tf.estimator.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    assert config.train_distribute is strategy


def test_in_19_options_are_set_where_tensorflow_has_them():
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    options.deterministic = False
    dataset = tf.data.Dataset.range(3).with_options(options)
    off = pl.inputs.AutoShardPolicy.OFF
    assert dataset.options() == pl.inputs.Options(deterministic=False, auto_shard_policy=off)
    with pytest.raises(AttributeError, match="auto_shard_policy here, and no 'threading'"):
        options.threading = 1
    with pytest.raises(TypeError, match="auto_shard_policy must be"):
        options.experimental_distribute.auto_shard_policy = "NONE"
    assert list(dataset.as_numpy_iterator()) == [0, 1, 2]


def test_mb_24_a_learning_rate_is_set_and_read_as_a_variable():
    optimizer = tf.keras.optimizers.SGD(0.5)
    tf.keras.backend.set_value(optimizer.lr, 0.25)
    assert tf.keras.backend.get_value(optimizer.learning_rate) == 0.25
    assert type(optimizer.learning_rate.value()) is float


def test_mb_24_replicas_draw_numbers_of_their_own_the_same_after_each_seed():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def drawn():
        tf.random.set_seed(3)
        runs = [strategy.run(lambda: tf.random.normal((2,)).numpy()) for _ in range(20)]
        return np.array([strategy.experimental_local_results(run) for run in runs])

    numbers = drawn()
    assert len(np.unique(numbers)) == numbers.size
    np.testing.assert_array_equal(numbers, drawn())


@pytest.mark.parametrize(
    "draw",
    [
        lambda: tf.random.normal((20,), seed=1),
        lambda: tf.random.uniform((20,), seed=1),
        lambda: tf.random.shuffle(np.arange(20), seed=1),
        lambda: tf.image.random_crop(np.arange(1000).reshape(1000, 1), (20, 1), seed=1),
        lambda: tf.nn.dropout(np.ones(20, np.float32), 0.5, seed=1),
    ],
)
def test_a_seed_of_a_call_is_where_its_numbers_begin_and_not_what_they_all_are(draw):
    def drawn():
        tf.random.set_seed(3)
        return [draw().numpy().tolist() for _ in range(3)]

    first, second, third = drawn()
    assert first != second != third != first
    assert drawn() == [first, second, third]


@pytest.mark.parametrize(
    "seed",
    [tf.random.set_seed, tf.compat.v1.set_random_seed, tf.keras.utils.set_random_seed],
)
def test_a_seed_of_any_name_begins_all_numbers_anew(seed):
    def drawn():
        seed(5)
        return tf.random.normal((3,)).numpy().tolist()

    assert drawn() == drawn()


@pytest.mark.parametrize("face", [tf.nn, tf.compat.v1.layers])
def test_dropout_drops_whole_axes_where_the_noise_has_length_one(face):
    options = {"training": True} if face is tf.compat.v1.layers else {}
    x = np.ones((50, 4), np.float32)
    found = face.dropout(x, rate=0.5, noise_shape=(50, 1), seed=1, **options).numpy()
    assert {*found.sum(axis=1).tolist()} == {0.0, 8.0}


def test_in_19_a_sequence_of_batches_trains():
    class Batches(tf.keras.utils.Sequence):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return np.ones((4, 3), np.float32), np.full((4, 1), index, np.float32)

    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(tf.keras.optimizers.SGD(0.0), "mse")
    assert model.fit(Batches(), epochs=1, verbose=0).history["loss"] == [0.5]


def test_mb_24_an_input_layer_names_its_shape_as_keras_does():
    model = tf.keras.Sequential(
        [tf.keras.layers.InputLayer(input_shape=(2,)), tf.keras.layers.Dense(3)]
    )
    assert [w.shape for w in model.get_weights()] == [(2, 3), (3,)]
    assert tf.keras.backend.random_normal(shape=(tf.constant(2), 3)).shape == (2, 3)


def test_in_22_datasets_load_by_their_name(tmp_path):
    (train, test), info = tfds.load(
        "mnist", split=["train", "test"], as_supervised=True, with_info=True, batch_size=10
    )
    image, label = next(iter(train))
    assert (image.shape, label.shape) == ((10, 28, 28, 1), (10,))
    assert info.splits["test"].num_examples == 297 == sum(len(y) for _, y in test)
    with pytest.raises(FileNotFoundError, match="train-images-idx3-ubyte"):
        tfds.load("mnist", environ={"PACELINE_MNIST": str(tmp_path)})


@pytest.mark.parametrize("name", ["iris", "cifar10", "fashion_mnist", "imdb_reviews:1.0.0"])
def test_a_dataset_that_is_not_there_is_refused_whatever_folder_has_mnist(name, tmp_path):
    with pytest.raises(ValueError, match=rf"name must be one of digits, mnist, got '{name}'"):
        tfds.load(name, environ={"PACELINE_MNIST": str(tmp_path)})
    with pytest.raises(ValueError, match="decoders must be None"):
        tfds.load("mnist", decoders={"image": None})


def test_a_dataset_of_a_version_is_given_as_arrays_of_all():
    images, labels = tfds.load("mnist:3.0.1", split="test", as_supervised=True, batch_size=-1)
    assert (images.shape, labels.shape) == ((297, 28, 28, 1), (297,))


@pytest.mark.host
def test_cl_16_a_process_is_given_two_logical_cpus():
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    try:
        assert [str(d)[-5:] for d in tf.config.list_logical_devices("CPU")] == ["CPU:0", "CPU:1"]
        assert tf.config.list_physical_devices("CPU") == (cpu,)
        assert tf.distribute.MirroredStrategy().num_replicas_in_sync == 2
        assert tf.config.get_logical_device_configuration(cpu) == two
    finally:
        set_visible_devices(None, "CPU")


def test_cl_16_a_gpu_is_divided(two_gpus):
    _, second = tf.config.list_physical_devices("GPU")
    two = [tf.config.LogicalDeviceConfiguration(memory_limit=1024)] * 2
    tf.config.set_logical_device_configuration(second, two)
    try:
        names = [device.short_name for device in tf.config.list_logical_devices("GPU")]
        assert names == ["GPU:0", "GPU:1", "GPU:1:1"]
        assert len(tf.config.list_physical_devices("GPU")) == 2
        assert tf.distribute.MirroredStrategy().num_replicas_in_sync == 3
        assert tf.config.get_logical_device_configuration(second) == two
    finally:
        set_visible_devices(None, "GPU")


@pytest.mark.parametrize(
    ("device", "configurations", "error"),
    [
        (Device("GPU", 0), [], "logical_devices is empty; give one for each logical device of"),
        (Device("GPU", 2), [None], "GPU:2 is not here: CuPy sees 2"),
    ],
)
def test_cl_16_a_division_that_cannot_be_meant_is_refused(two_gpus, device, configurations, error):
    with pytest.raises(ValueError, match=error):
        tf.config.set_logical_device_configuration(device, configurations)
    assert tf.config.get_logical_device_configuration(device) is None


@pytest.mark.parametrize("kind", ["Glorot", "He", "Lecun"])
@pytest.mark.parametrize("form", ["Normal", "Uniform"])
def test_initializers_have_the_names_of_classes_and_of_functions(kind, form):
    initializers = tf.keras.initializers
    by_class = getattr(initializers, f"{kind}{form}")(seed=1)
    by_function = getattr(initializers, f"{kind}_{form}".lower())(seed=1)
    shape = 3, 4
    np.testing.assert_array_equal(
        by_class(shape, np.float32, None), by_function(shape, np.float32, None)
    )
