"""`tf.estimator`: the same names as `paceline.estimator`."""

from ..names import NameTable, register, serve
from .advice import advice

_E = "estimator."
_NAMES = {
    "SessionRunArgs": _E + "SessionRunArgs",
    "experimental_KMeans": _E + "KMeansClustering",
}
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

__getattr__, __dir__ = serve(NameTable(__name__, ("estimator",), _NAMES, advice))
register(
    __name__,
    {"experimental": ((), _EXPERIMENTAL), "export": (("estimator.export",), {})},
    advice,
)


def make_stop_at_checkpoint_step_hook(
    estimator: object, last_step: int, wait_after_file_check_secs: int = 30
) -> object:
    """A hook that stops when the checkpoint of this step is there."""
    from ...estimator import Estimator, StopAtCheckpointStepHook

    assert isinstance(estimator, Estimator)
    return StopAtCheckpointStepHook(estimator.model_dir, last_step, wait_after_file_check_secs)
