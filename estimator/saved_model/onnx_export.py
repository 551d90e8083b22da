"""Exporting to ONNX, for programs without Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...autodiff import Tensor, trace
from ..export import DEFAULT_SERVING_SIGNATURE_DEF_KEY
from .loading import LoadedModel, LoadedSignature, load
from .onnx_graph import Graph, Value, needed, paired, steps_of
from .onnx_operations import write_step
from .signature import TensorInfo, made_up

_OPSET = 18
_IR_VERSION = 9  # of onnx 1.14: what reads the opset reads this


def export_onnx(
    model: LoadedModel | str | os.PathLike[str],
    path: str | os.PathLike[str],
    signature: str = DEFAULT_SERVING_SIGNATURE_DEF_KEY,
    outputs: Sequence[str] | None = None,
) -> None:
    """Write one signature of an exported model as an ONNX file (opset 18).

    The model is called with two made-up batches, and the operations that it calls are written down:
    those of the built-in layers, and what NumPy's functions do with the tensors that `model_fn` is
    given. What the file computes is compared with what the model does before it is left.

    Args:
        model: What `load` gives, or the path of an export.
        path: The file, ending in ".onnx"; replaced if it is there.
        signature: Which of the model's.
        outputs: Which of its outputs; None for all. Text is none that ONNX could have.

    Raises:
        ImportError: The package onnx is missing.
        ValueError: There is no such signature or output, or something has no form in ONNX: it is
            named.
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            "export_onnx needs the package onnx: pip install 'paceline[onnx]'"
        ) from error
    loaded = model if isinstance(model, LoadedModel) else load(model)
    if signature not in loaded.signatures:
        raise ValueError(
            f"the model has the signature(s) {', '.join(loaded.signatures)}, not {signature!r}"
        )
    asked = loaded.signatures[signature]
    chosen = list(asked.outputs if outputs is None else outputs)
    if not chosen or not asked.outputs.keys() >= set(chosen):
        raise ValueError(
            f"signature {signature!r} has the output(s) {', '.join(asked.outputs)}, not all of "
            f"{chosen}"
        )
    batches = [_batch(asked, count) for count in (2, 3)]
    (first, answer), (second, other) = (_traced(asked, batch) for batch in batches)
    inputs = {name: Value(batches[0][name].data, batches[1][name].data) for name in batches[0]}
    found = {name: _output(name, answer[name], other[name]) for name in chosen}
    variables = {
        id(variable.value_in(0)): name for name, variable in asked.program.store.variables.items()
    }
    graph = Graph(onnx, inputs, variables)
    for step in needed(steps_of(first, second), list(found.values())):
        write_step(graph, step)
    for name, value in found.items():
        _write_output(graph, name, value, _output_name(name, inputs))
    made = _model(onnx, graph, asked, chosen, loaded.step)
    onnx.checker.check_model(made, full_check=True)
    _compare(made, batches[1], {_output_name(n, inputs): value for n, value in found.items()})
    onnx.save(made, os.fspath(path))


def _batch(asked: LoadedSignature, num_examples: int) -> dict[str, Tensor]:
    """A made-up batch; of floats no two are alike.

    Raises:
        ValueError: An input has a form that ONNX's operations would not do justice to.
    """
    for name, info in asked.inputs.items():
        if info.dtype == "str":
            raise ValueError(f"input {name!r} is text, which is not exported to ONNX")
        if None in info.shape[1:]:
            raise ValueError(
                f"input {name!r} has shape {info.shape}: beside the batch, lengths must be known "
                f"for ONNX; export the model with a TensorSpec that says them"
            )
    arrays = made_up(asked.inputs, asked.program.features, num_examples)
    rng = np.random.default_rng(num_examples)
    return {
        name: Tensor(_noisy(array, rng) if num_examples > 2 else array)
        for name, array in arrays.items()
    }


def _noisy(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    return (array + rng.random(array.shape)).astype(array.dtype)


def _traced(asked: LoadedSignature, batch: dict[str, Any]) -> tuple[list[Any], Mapping[str, Any]]:
    """The operations of a call, and its outputs."""
    with trace() as calls:
        answer = asked.program.ask(batch)
    return calls, answer[asked.name].outputs


def _output(name: str, one: Any, other: Any) -> Value:
    value = paired(one, other)
    if not isinstance(value, Value) or value.dtype.kind not in "fiub":
        raise ValueError(f"output {name!r} is no array of numbers, and has no form in ONNX")
    return value


def _write_output(graph: Graph, name: str, value: Value, written_name: str) -> None:
    try:
        graph.identity(graph.operand(value), written_name)
    except ValueError as error:
        raise ValueError(f"output {name!r} cannot be exported to ONNX: {error}") from error


def _output_name(name: str, inputs: Mapping[str, Any]) -> str:
    """Outputs are called as in the signature, unless an input has the name."""
    return f"{name}_out" if name in inputs else name


def _model(
    onnx: Any, graph: Graph, asked: LoadedSignature, outputs: Sequence[str], step: int
) -> Any:
    helper = onnx.helper

    def infos(tensors: Mapping[str, TensorInfo], name_of: Any) -> list[Any]:
        return [
            helper.make_tensor_value_info(
                name_of(name),
                helper.np_dtype_to_tensor_dtype(np.dtype(info.dtype)),
                ["batch" if n is None else n for n in info.shape],
            )
            for name, info in tensors.items()
        ]

    made = helper.make_graph(
        graph.nodes,
        asked.name,
        infos(asked.inputs, str),
        infos(
            {name: asked.outputs[name] for name in outputs},
            lambda name: _output_name(name, asked.inputs),
        ),
        graph.initializers,
    )
    model = helper.make_model(
        made,
        producer_name="paceline",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    helper.set_model_props(model, {"global_step": str(step)})
    return model


def _compare(model: Any, batch: Mapping[str, Any], outputs: dict[str, Value]) -> None:
    """Refuse a graph that computes something else than the model did.

    Raises:
        ValueError: It does: something was changed in place, for instance, which no trace shows.
    """
    from onnx.reference import ReferenceEvaluator

    found = ReferenceEvaluator(model).run(
        list(outputs), {name: tensor.data for name, tensor in batch.items()}
    )
    for (name, value), array in zip(outputs.items(), found, strict=True):
        scale = np.abs(value.second).max(initial=1.0)
        if array.shape != value.second.shape or not np.allclose(
            array, value.second, rtol=1e-3, atol=1e-4 * scale, equal_nan=True
        ):
            raise ValueError(
                f"output {name!r} of the ONNX graph is not what the model gives: something in "
                f"model_fn changes arrays in a way that cannot be recorded (in place, for instance)"
            )
