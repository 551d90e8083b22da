"""`tf.saved_model`: the keys of signatures. Estimators and models write the exports themselves."""

from ..names import NameTable, register, serve
from .advice import advice

_HERE = "compat.tf.saved_model."
CLASSIFY_INPUTS = PREDICT_INPUTS = REGRESS_INPUTS = "inputs"
PREDICT_OUTPUTS = REGRESS_OUTPUTS = "outputs"
CLASSIFY_OUTPUT_CLASSES, CLASSIFY_OUTPUT_SCORES = "classes", "scores"
CLASSIFY_METHOD_NAME, PREDICT_METHOD_NAME, REGRESS_METHOD_NAME = (
    f"tensorflow/serving/{method}" for method in ("classify", "predict", "regress")
)
DEFAULT_SERVING_SIGNATURE_DEF_KEY = "serving_default"
SERVING, TRAINING, GPU, TPU = "serve", "train", "gpu", "tpu"

_TAGS = ("GPU", "SERVING", "TPU", "TRAINING")
_KEYS = [name for name in list(globals()) if name.isupper() and name[0] != "_"]
__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))
register(
    __name__,
    {
        "signature_constants": ((), {name: _HERE + name for name in _KEYS if name not in _TAGS}),
        "tag_constants": ((), {name: _HERE + name for name in _TAGS}),
    },
    advice,
)
