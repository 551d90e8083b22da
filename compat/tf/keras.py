"""`tf.keras`: layers, models, losses and the rest, which here are `paceline.nn`."""

import random
from typing import Any

import numpy as np

from ... import nn
from ..names import NameTable, register, serve
from .advice import advice
from .arguments import adapted
from .random import set_seed

_NAMES = {
    "Input": "nn.Input",
    "Model": "nn.Model",
    "Sequential": "nn.Sequential",
}
_MODELS = {
    "Model": "nn.Model",
    "Sequential": "nn.Sequential",
    "clone_model": "nn.clone_model",
    "load_model": "nn.load_model",
    "model_from_json": "nn.model_from_json",
    "save_model": "compat.tf.keras.save_model",
}
_OPTIMIZERS = {"deserialize": "nn.optimizers.get"}
_TABLES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "activations": (("nn.activations",), {}),
    "backend": (("compat.tf.keras_backend",), {}),
    "callbacks": (("nn.callbacks",), {}),
    "constraints": (("nn.constraints",), {}),
    "datasets": ((), {}),
    "datasets.mnist": ((), {"load_data": "compat.tf.keras.load_mnist"}),
    "datasets.fashion_mnist": (
        (),
        {"load_data": "compat.tf.keras_files.load_fashion_mnist"},
    ),
    "estimator": ((), {"model_to_estimator": "estimator.model_to_estimator"}),
    "initializers": (
        ("nn.initializers",),
        {
            **{
                name: f"nn.initializers.{kind}{form}"
                for kind in ("Glorot", "He", "Lecun")
                for form in ("Normal", "Uniform")
                for name in (f"{kind}{form}", f"{kind}_{form}".lower())
            },
            "ones": "nn.initializers.Ones",
            "zeros": "nn.initializers.Zeros",
        },
    ),
    "layers": (
        ("nn.layers",),
        {
            "Input": "nn.Input",
            "InputLayer": "compat.tf.keras.InputLayer",
            "experimental.SyncBatchNormalization": "nn.layers.BatchNormalization",
        },
    ),
    "losses": (("nn.losses",), {}),
    "metrics": (("nn.metrics",), {}),
    "mixed_precision": (("nn.mixed_precision",), {}),
    "models": ((), _MODELS),
    "optimizers": (("nn.optimizers",), _OPTIMIZERS),
    "optimizers.legacy": (("nn.optimizers",), {}),
    "optimizers.experimental": (("nn.optimizers",), {}),
    "optimizers.schedules": (("nn.optimizers.schedules",), {}),
    "regularizers": (
        ("nn.regularizers",),
        {"l1": "nn.regularizers.L1", "l2": "nn.regularizers.L2"},
    ),
    "utils": (
        (),
        {
            "CustomObjectScope": "nn.custom_object_scope",
            "Sequence": "compat.tf.keras.Sequence",
            "custom_object_scope": "nn.custom_object_scope",
            "get_file": "compat.tf.keras_files.get_file",
            "set_random_seed": "compat.tf.keras.set_random_seed",
            "to_categorical": "compat.tf.keras.to_categorical",
        },
    ),
}

__getattr__, __dir__ = serve(NameTable(__name__, renamed=_NAMES, advice=advice))
register(__name__, _TABLES, advice, adapted)


def InputLayer(  # noqa: N802
    input_shape: Any = None,
    batch_size: int | None = None,
    dtype: Any = None,
    name: str | None = None,
    shape: Any = None,
) -> nn.Input:
    """`Input`, whose first argument has another name; batches may have any size."""
    given = input_shape if shape is None else shape
    return nn.Input(given, name, np.float32 if dtype is None else dtype)


class Sequence:
    """Batches by their position, for `fit`, `evaluate` and `predict`; to be subclassed."""

    def __len__(self) -> int:
        """How many batches there are."""
        raise NotImplementedError

    def __getitem__(self, index: int) -> Any:
        """Batch `index`: (x, y), or (x, y, sample_weight)."""
        raise NotImplementedError

    def on_epoch_end(self) -> None:
        """Called after each epoch of `fit`."""


def save_model(
    model: nn.Model,
    filepath: Any,
    overwrite: bool = True,
    save_format: str | None = None,
    include_optimizer: bool = True,
) -> None:
    """`model.save`."""
    model.save(filepath, overwrite, save_format, include_optimizer)


def set_random_seed(seed: int) -> None:
    """Begin anew with this seed: all of `tf.random.set_seed`, Python's and NumPy's generators."""
    random.seed(seed)
    np.random.seed(seed)
    set_seed(seed)


def to_categorical(y: Any, num_classes: int | None = None, dtype: Any = "float32") -> np.ndarray:
    """Class numbers as rows of zeros with a one.

    Raises:
        ValueError: A number is not below `num_classes`.
    """
    numbers = np.asarray(y, np.int64)
    if numbers.ndim > 1 and numbers.shape[-1] == 1:
        numbers = numbers[..., 0]
    n = int(numbers.max()) + 1 if num_classes is None else num_classes
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < n:
        raise ValueError(f"class numbers must be from 0 to {n - 1}, there is {numbers.max()}")
    return np.eye(n, dtype=dtype)[numbers]


def load_mnist(path: str = "mnist.npz") -> tuple[Any, Any]:
    """`tf.keras.datasets.mnist.load_data()`: ((images, labels) to train, (images, labels) to test).

    From the IDX files in the folder PACELINE_MNIST names; without it scikit-learn's digits,
    enlarged. Images are uint8 (n, 28, 28), labels uint8.
    """
    from .. import tfds

    def arrays(split: str) -> tuple[np.ndarray, np.ndarray]:
        data = tfds.load("mnist", split=split, as_supervised=True)
        images, labels = next(iter(data.batch(data.cardinality())))
        return images[..., 0], labels.astype(np.uint8)

    return arrays("train"), arrays("test")
