"""Names that only TensorFlow 1 has in `tf` itself: where each of them is found here."""

from __future__ import annotations

_IO, _STRINGS, _SPARSE = "compat.tf.io.", "compat.tf.strings.", "compat.tf.sparse."
_RANDOM, _VARIABLES, _TF = "compat.tf.random.", "compat.tf.variables.", "compat.tf."

NAMES_V1 = {
    **{
        name: _IO + name
        for name in (
            "FixedLenFeature",
            "VarLenFeature",
            "decode_csv",
            "decode_raw",
            "matching_files",
            "parse_example",
            "parse_single_example",
            "read_file",
            "write_file",
        )
    },
    "as_string": _STRINGS + "as_string",
    "regex_replace": _STRINGS + "regex_replace",
    "string_join": _STRINGS + "join",
    "string_split": _SPARSE + "string_split",
    "string_strip": _STRINGS + "strip",
    "string_to_hash_bucket_fast": _STRINGS + "to_hash_bucket_fast",
    "string_to_number": _STRINGS + "to_number",
    "SparseTensorValue": _SPARSE + "SparseTensorValue",
    "sparse_tensor_to_dense": _SPARSE + "to_dense",
    "multinomial": _RANDOM + "multinomial",
    "random_normal": _RANDOM + "normal",
    "random_shuffle": _RANDOM + "shuffle",
    "random_uniform": _RANDOM + "uniform",
    "set_random_seed": _RANDOM + "set_seed",
    "truncated_normal": _RANDOM + "truncated_normal",
    "glorot_normal_initializer": _VARIABLES + "glorot_normal_initializer",
    "glorot_uniform_initializer": _VARIABLES + "glorot_uniform_initializer",
    "variance_scaling_initializer": _VARIABLES + "variance_scaling_initializer",
    "div": "compat.tf.arrays_v1.div",
    "GIT_VERSION": _TF + "GIT_VERSION",
    "VERSION": _TF + "VERSION",
}

MODULES_V1 = ("python", "python_io", "saved_model", "sparse", "test")
"""Modules of `tf`, some of which TensorFlow 2 has with other names in them."""
