"""`tf.train`: checkpoints, hooks, and the optimizers of TensorFlow 1."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import checkpoint, cluster, strategies
from ...inputs import encode_example
from ...nn import optimizers
from ...nn.optimizers import schedules
from ...strategies import Variable
from ..names import NameTable, register, serve
from .advice import advice
from .arguments import refuse

_E = "estimator."
_NAMES = {
    **{
        name: _E + name
        for name in (
            "CheckpointSaverHook",
            "CheckpointSaverListener",
            "FeedFnHook",
            "FinalOpsHook",
            "GlobalStepWaiterHook",
            "LoggingTensorHook",
            "NanLossDuringTrainingError",
            "NanTensorHook",
            "ProfilerHook",
            "SecondOrStepTimer",
            "SessionRunArgs",
            "SessionRunContext",
            "SessionRunHook",
            "SessionRunValues",
            "StepCounterHook",
            "StopAtStepHook",
            "SummarySaverHook",
            "VocabInfo",
        )
    },
}

__getattr__, __dir__ = serve(NameTable(__name__, renamed=_NAMES, advice=advice))
register(__name__, {"experimental": ((), {})}, advice)


class ClusterSpec(cluster.ClusterSpec):
    """`paceline.cluster.ClusterSpec`, whose argument has another name."""

    __slots__ = ()

    def __init__(self, cluster: Any) -> None:
        super().__init__(cluster)


def get_or_create_global_step(graph: Any = None) -> Variable:
    """The number of steps of the model at hand, or of the process."""
    return strategies.get_or_create_global_step()


create_global_step = get_global_step = get_or_create_global_step


def GradientDescentOptimizer(  # noqa: N802
    learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent"
) -> optimizers.Optimizer:
    """`SGD`."""
    return optimizers.SGD(_rate(learning_rate), name=name)


def MomentumOptimizer(  # noqa: N802
    learning_rate: Any,
    momentum: float,
    use_locking: bool = False,
    name: str = "Momentum",
    use_nesterov: bool = False,
) -> optimizers.Optimizer:
    """`SGD` with momentum, which leaves rows that a step did not read as they are."""
    rate = _rate(learning_rate)
    return optimizers.SGD(rate, momentum, use_nesterov, name=name, sparse="lazy")


def AdamOptimizer(  # noqa: N802
    learning_rate: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    use_locking: bool = False,
    name: str = "Adam",
) -> optimizers.Optimizer:
    """`Adam`."""
    return optimizers.Adam(_rate(learning_rate), beta1, beta2, epsilon, name=name)


def AdagradOptimizer(  # noqa: N802
    learning_rate: Any,
    initial_accumulator_value: float = 0.1,
    use_locking: bool = False,
    name: str = "Adagrad",
) -> optimizers.Optimizer:
    """`Adagrad` without an epsilon, which an accumulator that starts above zero does not need.

    Raises:
        ValueError: It would start at zero or below.
    """
    if not initial_accumulator_value > 0:
        raise ValueError(
            f"initial_accumulator_value must be positive, got {initial_accumulator_value}; "
            f"0.1 is the default"
        )
    return optimizers.Adagrad(_rate(learning_rate), initial_accumulator_value, 0.0, name=name)


def AdadeltaOptimizer(  # noqa: N802
    learning_rate: Any = 0.001,
    rho: float = 0.95,
    epsilon: float = 1e-8,
    use_locking: bool = False,
    name: str = "Adadelta",
) -> optimizers.Optimizer:
    """`Adadelta`."""
    return optimizers.Adadelta(_rate(learning_rate), rho, epsilon, name=name, sparse="lazy")


def RMSPropOptimizer(  # noqa: N802
    learning_rate: Any,
    decay: float = 0.9,
    momentum: float = 0.0,
    epsilon: float = 1e-10,
    use_locking: bool = False,
    centered: bool = False,
    name: str = "RMSProp",
) -> optimizers.Optimizer:
    """`RMSprop` whose moving mean of squared gradients starts at one."""
    return optimizers.RMSprop(
        _rate(learning_rate),
        decay,
        momentum,
        epsilon,
        centered,
        name=name,
        initial_accumulator_value=1.0,
        sparse="lazy",
    )


def FtrlOptimizer(  # noqa: N802
    learning_rate: Any,
    learning_rate_power: float = -0.5,
    initial_accumulator_value: float = 0.1,
    l1_regularization_strength: float = 0.0,
    l2_regularization_strength: float = 0.0,
    use_locking: bool = False,
    name: str = "Ftrl",
    accum_name: str | None = None,
    linear_name: str | None = None,
    l2_shrinkage_regularization_strength: float = 0.0,
    beta: float | None = None,
) -> optimizers.Optimizer:
    """`Ftrl`, which leaves rows that a step did not read as they are."""
    return optimizers.Ftrl(
        _rate(learning_rate),
        learning_rate_power,
        initial_accumulator_value,
        l1_regularization_strength,
        l2_regularization_strength,
        name=name,
        l2_shrinkage_regularization_strength=l2_shrinkage_regularization_strength,
        beta=beta or 0.0,
        sparse="lazy",
    )


def _rate(rate: Any) -> Any:
    """A rate that may be a tensor, as a number."""
    return rate if callable(rate) and not hasattr(rate, "dtype") else float(rate)


def exponential_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: int,
    decay_rate: float,
    staircase: bool = False,
    name: str | None = None,
) -> float:
    """The rate at this step."""
    schedule = schedules.ExponentialDecay(learning_rate, decay_steps, decay_rate, staircase)
    return float(schedule(int(global_step)))


def inverse_time_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: int,
    decay_rate: float,
    staircase: bool = False,
    name: str | None = None,
) -> float:
    """The rate at this step."""
    periods = int(global_step) / decay_steps
    return learning_rate / (1 + decay_rate * (np.floor(periods) if staircase else periods))


def polynomial_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: int,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> float:
    """The rate at this step."""
    schedule = schedules.PolynomialDecay(
        learning_rate, decay_steps, end_learning_rate, power, cycle
    )
    return float(schedule(int(global_step)))


def cosine_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: int,
    alpha: float = 0.0,
    name: str | None = None,
) -> float:
    """The rate at this step."""
    return float(schedules.CosineDecay(learning_rate, decay_steps, alpha)(int(global_step)))


def piecewise_constant(
    x: Any, boundaries: Sequence[int], values: Sequence[float], name: str | None = None
) -> float:
    """The rate at this step."""
    return float(schedules.PiecewiseConstantDecay(boundaries, values)(int(x)))


class Checkpoint:
    """`paceline.checkpoint.Checkpoint` with TensorFlow's calls.

    Args:
        parts: Models, optimizers, metrics, variables and iterators of datasets by name.
    """

    def __init__(self, **parts: Any) -> None:
        self.saved = checkpoint.Checkpoint(**parts)
        self.save_counter = 0

    def save(self, file_prefix: Any, options: Any = None) -> str | None:
        """Save everything into the prefix's directory, numbered from 1 on.

        Returns:
            The path, for `restore`.
        """
        self.save_counter += 1
        return self.saved.save(os.path.dirname(os.fspath(file_prefix)) or ".", self.save_counter)

    def restore(self, save_path: Any, options: Any = None) -> Restored:
        """Give everything the values of a checkpoint; of None nothing happens.

        Raises:
            CheckpointError: It is damaged, or of other parts.
        """
        if save_path is not None:
            self.save_counter = self.saved.restore(save_path).step
        return Restored(self.saved)

    write, read = save, restore


class Restored:
    """What `restore` returns: everything that exists fitted, or it would have raised."""

    def __init__(self, saved: checkpoint.Checkpoint) -> None:
        self._saved = saved

    def assert_consumed(self) -> Restored:
        """Itself, if nothing is left for variables that are still to be created.

        Raises:
            AssertionError: Something is.
        """
        left = self._saved.pending
        if left:
            raise AssertionError(
                f"the checkpoint has values of variables that do not exist yet: {', '.join(left)}; "
                f"create them first (call the model, or apply gradients), or check later"
            )
        return self

    def assert_existing_objects_matched(self) -> Restored:
        """Itself: `restore` would have raised."""
        return self

    expect_partial = assert_existing_objects_matched


class CheckpointManager:
    """Keeps the last few checkpoints of a directory."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: Any,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Any = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], Any] | None = None,
    ) -> None:
        instead = "call save when it is wanted"
        refuse(
            "CheckpointManager",
            ("keep_checkpoint_every_n_hours", keep_checkpoint_every_n_hours, None, instead),
            ("checkpoint_name", checkpoint_name, "ckpt", "use one directory for each"),
            ("checkpoint_interval", checkpoint_interval, None, instead),
        )
        self._init_fn = init_fn
        self.checkpoint = checkpoint
        self.directory = os.fspath(directory)
        self._keep_max = max_to_keep

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the newest; None without one."""
        return checkpoint.latest_checkpoint(self.directory)

    @property
    def checkpoints(self) -> list[str]:
        """The paths of all, oldest first."""
        return [path for path, _ in checkpoint.list_checkpoints(self.directory)]

    def save(
        self, checkpoint_number: Any = None, check_interval: bool = True, options: Any = None
    ) -> str | None:
        """Save, and delete the oldest that are too many."""
        number = checkpoint_number or self.checkpoint.save_counter + 1
        self.checkpoint.save_counter = int(number)
        return self.checkpoint.saved.save(self.directory, int(number), keep_max=self._keep_max)

    def restore_or_initialize(self) -> str | None:
        """Restore the newest, if there is one, and else call `init_fn`; its path."""
        path = self.latest_checkpoint
        self.checkpoint.restore(path)
        if path is None and self._init_fn is not None:
            self._init_fn()
        return path


def list_variables(ckpt_dir_or_file: str) -> list[tuple[str, list[int]]]:
    """Names and shapes of what a checkpoint (or the last one of a directory) holds."""
    shapes = load_checkpoint(ckpt_dir_or_file).shapes
    return sorted((name, list(shape)) for name, shape in shapes.items())


def load_checkpoint(
    ckpt_dir_or_file: str,
) -> checkpoint.CheckpointReader | checkpoint.TensorBundle:
    """A checkpoint, or the last one of a directory, to be read; TensorFlow's own as well."""
    bundle = checkpoint.find_tensor_bundle(ckpt_dir_or_file)
    return checkpoint.load(_checkpoint(ckpt_dir_or_file)) if bundle is None else bundle


def load_variable(ckpt_dir_or_file: str, name: str) -> np.ndarray:
    """One array of a checkpoint (or of the last one of a directory)."""
    return load_checkpoint(ckpt_dir_or_file).read(name)


def latest_checkpoint(checkpoint_dir: str, latest_filename: str | None = None) -> str | None:
    """The path of the newest checkpoint of a run, or else of the newest weights that were saved
    there under names of their own, as by `ModelCheckpoint`; None without any.
    """
    refuse(
        "latest_checkpoint",
        ("latest_filename", latest_filename, None, "use one directory for each"),
    )
    found = checkpoint.latest_checkpoint(checkpoint_dir)
    return checkpoint.newest_saved(checkpoint_dir) if found is None else found


def _checkpoint(path: str) -> Any:
    return latest_checkpoint(path) or path


class _Values:
    """What an `Example` is made of: `BytesList`, `FloatList` and `Int64List` hold `value`."""

    dtype: Any = None

    def __init__(self, value: Any = ()) -> None:
        self.value = value if self.dtype is None else np.asarray(value, self.dtype)


class BytesList(_Values):
    """Bytes or text."""

    def __init__(self, value: Any = ()) -> None:
        super().__init__(list(value))


class FloatList(_Values):
    """Numbers as float32."""

    dtype = np.float32


class Int64List(_Values):
    """Whole numbers."""

    dtype = np.int64


def Feature(  # noqa: N802
    bytes_list: BytesList | None = None,
    float_list: FloatList | None = None,
    int64_list: Int64List | None = None,
) -> Any:
    """The values of one feature."""
    given = [v for v in (bytes_list, float_list, int64_list) if v is not None]
    return given[0].value if given else []


def Features(feature: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N802
    """The features of an example by name."""
    return dict(feature)


class Example:
    """An example to be written into a TFRecord file."""

    def __init__(self, features: Mapping[str, Any]) -> None:
        self.features = features

    def SerializeToString(self) -> bytes:  # noqa: N802
        """The example as bytes."""
        return encode_example(self.features)
