"""`tf.estimator`: the same names as `paceline.estimator`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..names import NameTable, register, serve
from .advice import advice

_E = "estimator."
_EXPERIMENTAL = {
    **{
        name: _E + name
        for name in (
            "InMemoryEvaluatorHook",
            "make_early_stopping_hook",
            "stop_if_higher_hook",
            "stop_if_lower_hook",
            "stop_if_no_decrease_hook",
            "stop_if_no_increase_hook",
        )
    },
    "KMeans": _E + "KMeansClustering",
    "build_raw_supervised_input_receiver_fn": (
        _E + "export.build_raw_supervised_input_receiver_fn"
    ),
    "make_stop_at_checkpoint_step_hook": "compat.tf.estimator.make_stop_at_checkpoint_step_hook",
}

__getattr__, __dir__ = serve(NameTable(__name__, ("estimator",), advice=advice))
register(
    __name__,
    {
        "experimental": ((), _EXPERIMENTAL),
        "export": (("estimator.export",), {}),
        "inputs": (
            (),
            {
                "numpy_input_fn": "compat.tf.estimator.numpy_input_fn",
                "pandas_input_fn": "compat.tf.estimator.pandas_input_fn",
            },
        ),
    },
    advice,
)


def make_stop_at_checkpoint_step_hook(
    estimator: object, last_step: int, wait_after_file_check_secs: int = 30
) -> object:
    """A hook that stops when the checkpoint of this step is there."""
    from ...estimator import Estimator, StopAtCheckpointStepHook

    assert isinstance(estimator, Estimator)
    return StopAtCheckpointStepHook(estimator.model_dir, last_step, wait_after_file_check_secs)


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], Any]:
    """TensorFlow 1's `tf.estimator.inputs.numpy_input_fn`: an `input_fn` of arrays.

    Raises:
        ValueError: `shuffle` is not given: TensorFlow 1 has no default for it.
    """
    if not isinstance(shuffle, bool):
        raise ValueError(
            f"numpy_input_fn: shuffle must be True (to train) or False (to evaluate or predict), "
            f"got {shuffle!r}; pass one of them"
        )

    def input_fn() -> Any:
        from ...inputs import Dataset

        data = Dataset.from_tensor_slices(x if y is None else (x, y))
        data = data.shuffle(data.cardinality()) if shuffle else data
        return data.repeat(num_epochs).batch(batch_size)

    return input_fn


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool = False,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], Any]:
    """TensorFlow 1's `tf.estimator.inputs.pandas_input_fn`: an `input_fn` of a DataFrame.

    Args:
        x: The features, a DataFrame.
        y: The labels, a Series; or a DataFrame, of which a dict is made.
        batch_size, num_epochs, shuffle: As of `numpy_input_fn`.
        queue_capacity, num_threads, target_column: Have no effect.
    """
    labels = dict(y) if np.ndim(y) == 2 else y
    return numpy_input_fn(dict(x), labels, batch_size, num_epochs, shuffle)
