"""The optimizers by name: Keras's arguments and defaults over the rules.

All take `clipnorm`, `clipvalue`, `global_clipnorm` and `sparse`: see `Optimizer`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arguments import by_name
from .optimizer import LearningRate, Optimizer
from .rules import AdagradRule, AdamRule, AdamWRule, FtrlRule, RMSpropRule, SGDRule


class SGD(Optimizer):
    """Gradient descent with optional (Nesterov) momentum."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str = "sgd",
        **options: Any,
    ) -> None:
        rule = SGDRule(momentum=momentum, nesterov=nesterov)
        super().__init__(rule, learning_rate, name, **options)


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015)."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        name: str = "adam",
        **options: Any,
    ) -> None:
        rule = AdamRule(beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)
        super().__init__(rule, learning_rate, name, **options)


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        name: str = "adamw",
        **options: Any,
    ) -> None:
        rule = AdamWRule(weight_decay=weight_decay, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)
        super().__init__(rule, learning_rate, name, **options)


class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011)."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        name: str = "adagrad",
        **options: Any,
    ) -> None:
        rule = AdagradRule(initial_accumulator_value=initial_accumulator_value, epsilon=epsilon)
        super().__init__(rule, learning_rate, name, **options)


class RMSprop(Optimizer):
    """RMSprop (Tieleman and Hinton 2012), optionally centered and with momentum."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        name: str = "rmsprop",
        **options: Any,
    ) -> None:
        rule = RMSpropRule(rho=rho, momentum=momentum, epsilon=epsilon, centered=centered)
        super().__init__(rule, learning_rate, name, **options)


class Ftrl(Optimizer):
    """FTRL-Proximal (McMahan et al. 2013)."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        name: str = "ftrl",
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        **options: Any,
    ) -> None:
        rule = FtrlRule(
            learning_rate_power=learning_rate_power,
            initial_accumulator_value=initial_accumulator_value,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
            l2_shrinkage_regularization_strength=l2_shrinkage_regularization_strength,
            beta=beta,
        )
        super().__init__(rule, learning_rate, name, **options)


_BY_NAME: dict[str, Callable[..., Optimizer]] = {
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "ftrl": Ftrl,
}


def get(optimizer: str | Optimizer, **arguments: Any) -> Optimizer:
    """An optimizer from itself or from its name, in any case, with `arguments`.

    Raises:
        ValueError: The name is unknown.
        TypeError: It is neither a name nor an optimizer.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    if not isinstance(optimizer, str):
        raise TypeError(f"optimizer must be a name or an optimizer, not {optimizer!r}")
    return by_name("optimizer", optimizer, _BY_NAME)(**arguments)
