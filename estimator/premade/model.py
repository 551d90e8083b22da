"""What the premade models have in common: parts that add up to logits, each with an optimizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from ...autodiff import Tensor
from ...nn import optimizers
from ...nn.optimizers import Optimizer, TrainOp, group
from ...strategies import VariableStore, current_store
from ...training import ModeKeys
from ..specs import EstimatorSpec
from .heads import Head

OptimizerArgument: TypeAlias = "str | Optimizer | Callable[[], Optimizer]"
"""An optimizer by its name, itself, or a function that makes one."""


class Part(ABC):
    """A part of a model with logits of its own, and an optimizer for its variables.

    Args:
        scope: What the names of its variables begin with.
        argument: The name of the argument that the optimizer comes from, for messages.
        optimizer: By its name, itself, or a function that makes one.
        learning_rate: That of an optimizer that is named.

    Raises:
        TypeError: The optimizer is none of these.
        ValueError: There is no optimizer of that name.
    """

    def __init__(
        self, scope: str, argument: str, optimizer: OptimizerArgument, learning_rate: float
    ) -> None:
        self.scope = scope
        self._make_optimizer = _optimizer_maker(argument, optimizer, learning_rate)

    @abstractmethod
    def logits(self, features: Mapping[str, Any], units: int, training: bool) -> Tensor:
        """(batch, units) what this part has to say of a batch."""

    def minimize(self, loss: Tensor) -> TrainOp:
        """The update of this part's variables."""
        variables = current_store().trainable_variables()
        own = [v for v in variables if v.name.startswith(f"{self.scope}/")]
        return self._make_optimizer().minimize(loss, var_list=own)


def model_fn_of(head: Head, parts: Sequence[Part]) -> Callable[..., EstimatorSpec]:
    """The `model_fn` of a head over the sum of the parts' logits.

    Raises:
        TypeError: `head` is none.
    """
    if not isinstance(head, Head):
        raise TypeError(
            f"head must be a Head, such as paceline.estimator.RegressionHead(), it is {head!r}"
        )

    def model_fn(features: Any, labels: Any, mode: ModeKeys) -> EstimatorSpec:
        training = mode is ModeKeys.TRAIN
        logits = [part.logits(features, head.logits_dimension, training) for part in parts]
        return head.create_estimator_spec(
            features,
            mode,
            sum(logits[1:], logits[0]),
            labels,
            train_op_fn=lambda loss: group(*(part.minimize(loss) for part in parts)),
        )

    return model_fn


def _optimizer_maker(
    argument: str, optimizer: OptimizerArgument, learning_rate: float
) -> Callable[[], Optimizer]:
    """What gives the optimizer in each call of a model.

    Raises:
        TypeError, ValueError: See `Part`.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer.named_here
    if isinstance(optimizer, str):
        # Rows that no batch reads stay where they are under Ftrl, as in TensorFlow: from zero they
        # do so in any case, and a large table is not gone through in each step.
        sparse = "lazy" if optimizer.lower() == "ftrl" else "dense"
        make = partial(optimizers.get, optimizer, learning_rate=learning_rate, sparse=sparse)
        with VariableStore().building():  # in which it takes no name from those outside models
            make()  # an unknown optimizer is refused here
        return make
    if not callable(optimizer):
        raise TypeError(
            f"{argument} must be the name of an optimizer, such as 'Ftrl', an optimizer, or a "
            f"function that makes one; it is {optimizer!r}"
        )
    return optimizer
