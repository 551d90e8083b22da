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

TAG_CONSTANTS = {name: _HERE + name for name in ("GPU", "SERVING", "TPU", "TRAINING")}
SIGNATURE_CONSTANTS = {
    name: _HERE + name
    for name in (
        "CLASSIFY_INPUTS",
        "CLASSIFY_METHOD_NAME",
        "CLASSIFY_OUTPUT_CLASSES",
        "CLASSIFY_OUTPUT_SCORES",
        "DEFAULT_SERVING_SIGNATURE_DEF_KEY",
        "PREDICT_INPUTS",
        "PREDICT_METHOD_NAME",
        "PREDICT_OUTPUTS",
        "REGRESS_INPUTS",
        "REGRESS_METHOD_NAME",
        "REGRESS_OUTPUTS",
    )
}
__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))
register(
    __name__,
    {
        "signature_constants": ((), SIGNATURE_CONSTANTS),
        "tag_constants": ((), TAG_CONSTANTS),
    },
    advice,
)
