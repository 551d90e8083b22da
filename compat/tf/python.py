"""`tensorflow.python`: what scripts import of TensorFlow's own modules.

`from tensorflow.python.util import nest` becomes `from paceline.compat.tf.python.util import nest`.
"""

from ..names import NameTable, register, serve
from . import DTYPES
from .advice import advice
from .saved_model import SIGNATURE_CONSTANTS, TAG_CONSTANTS

_TF, _GFILE = "compat.tf.", "compat.tf.gfile."
_FILE_IO = {
    "FileIO": _GFILE + "GFile",
    "copy": _GFILE + "copy",
    "create_dir": _GFILE + "mkdir",
    "delete_file": _GFILE + "remove",
    "delete_recursively": _GFILE + "rmtree",
    "file_exists": _GFILE + "exists",
    "get_matching_files": _GFILE + "glob",
    "is_directory": _GFILE + "isdir",
    "list_directory": _GFILE + "listdir",
    "recursive_create_dir": _GFILE + "makedirs",
    "rename": _GFILE + "rename",
    "stat": _GFILE + "stat",
    "walk": _GFILE + "walk",
}
_LOGGING = {
    name: f"compat.tf.logging.{name}"
    for name in (
        "DEBUG",
        "ERROR",
        "FATAL",
        "INFO",
        "WARN",
        "debug",
        "error",
        "fatal",
        "get_verbosity",
        "info",
        "log_first_n",
        "set_verbosity",
        "warn",
        "warning",
    )
}
_DTYPES = {name: f"compat.tf.{name}" for name in (*DTYPES, "DType")}
_RUN_CONFIG = {"RunConfig": "estimator.RunConfig"}
_MODEL_FN = {"EstimatorSpec": "estimator.EstimatorSpec", "ModeKeys": "estimator.ModeKeys"}

__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))
register(
    __name__,
    {
        "client": ((), {}),
        "client.device_lib": ((), {"list_local_devices": _TF + "config.list_local_devices"}),
        "estimator": ((), {"estimator": "estimator."}),
        "estimator.model_fn": ((), _MODEL_FN),
        "estimator.run_config": ((), _RUN_CONFIG),
        "feature_column": ((), {}),
        "feature_column.feature_column": (("estimator.feature_column",), {}),
        "framework": ((), {}),
        "framework.dtypes": ((), {**_DTYPES, "as_dtype": _TF + "control.as_dtype"}),
        "lib": ((), {}),
        "lib.io": ((), {}),
        "lib.io.file_io": ((), _FILE_IO),
        "platform": ((), {name: f"{_TF}{name}." for name in ("app", "flags")}),
        "platform.gfile": (("compat.tf.gfile",), {}),
        "platform.tf_logging": ((), _LOGGING),
        "saved_model": ((), {}),
        "saved_model.signature_constants": ((), SIGNATURE_CONSTANTS),
        "saved_model.tag_constants": ((), TAG_CONSTANTS),
        "util": ((), {}),
        "util.nest": (("compat.tf.nest",), {}),
    },
    advice,
)
