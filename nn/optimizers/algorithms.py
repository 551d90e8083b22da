"""The optimizers by name: Keras's arguments and defaults over the rules.

All take the options of `Optimizer`: `weight_decay`, `clipnorm`, `use_ema`, `sparse` and the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arguments import by_name
from .adaptive_rules import (
    AdadeltaRule,
    AdafactorRule,
    AdamaxRule,
    LambRule,
    LionRule,
    NadamRule,
)
from .learning_rate import LearningRate
from .optimizer import Optimizer
from .rule_optimizer import RuleOptimizer
from .rules import AdagradRule, AdamRule, AdamWRule, FtrlRule, RMSpropRule, SGDRule


class SGD(RuleOptimizer):
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


class Adam(RuleOptimizer):
    """Adam (Kingma and Ba 2015), optionally AMSGrad (Reddi et al. 2018)."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        name: str = "adam",
        **options: Any,
    ) -> None:
        rule = AdamRule(beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, amsgrad=amsgrad)
        super().__init__(rule, learning_rate, name, **options)


class AdamW(RuleOptimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        name: str = "adamw",
        **options: Any,
    ) -> None:
        rule = AdamWRule(
            weight_decay=weight_decay,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            amsgrad=amsgrad,
        )
        super().__init__(rule, learning_rate, name, **options)


class Adagrad(RuleOptimizer):
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


class RMSprop(RuleOptimizer):
    """RMSprop (Tieleman and Hinton 2012), optionally centered and with momentum.

    The moving mean of squared gradients starts at `initial_accumulator_value`: 0 in Keras, 1 in
    TensorFlow 1, whose first updates are therefore smaller.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        name: str = "rmsprop",
        initial_accumulator_value: float = 0.0,
        **options: Any,
    ) -> None:
        rule = RMSpropRule(
            rho=rho,
            momentum=momentum,
            epsilon=epsilon,
            centered=centered,
            initial_accumulator_value=initial_accumulator_value,
        )
        super().__init__(rule, learning_rate, name, **options)


class Ftrl(RuleOptimizer):
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


class Adadelta(RuleOptimizer):
    """Adadelta (Zeiler 2012); a learning rate of 1 is the paper's."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: float = 0.95,
        epsilon: float = 1e-7,
        name: str = "adadelta",
        **options: Any,
    ) -> None:
        super().__init__(AdadeltaRule(rho=rho, epsilon=epsilon), learning_rate, name, **options)


class Adamax(RuleOptimizer):
    """Adamax (Kingma and Ba 2015, section 7.1)."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        name: str = "adamax",
        **options: Any,
    ) -> None:
        rule = AdamaxRule(beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)
        super().__init__(rule, learning_rate, name, **options)


class Nadam(RuleOptimizer):
    """Adam with Nesterov's momentum (Dozat 2016)."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        name: str = "nadam",
        **options: Any,
    ) -> None:
        rule = NadamRule(beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)
        super().__init__(rule, learning_rate, name, **options)


class Lion(RuleOptimizer):
    """Lion (Chen et al. 2023); its learning rate is smaller than Adam's, by 3 to 10 times."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        name: str = "lion",
        **options: Any,
    ) -> None:
        super().__init__(LionRule(beta_1=beta_1, beta_2=beta_2), learning_rate, name, **options)


class Lamb(RuleOptimizer):
    """Lamb (You et al. 2020), for large batches; not on parameter servers."""

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        name: str = "lamb",
        **options: Any,
    ) -> None:
        rule = LambRule(beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)
        super().__init__(rule, learning_rate, name, **options)


class Adafactor(RuleOptimizer):
    """Adafactor (Shazeer and Stern 2018), which keeps little; not on parameter servers.

    With `relative_step` the learning rate is at most 1 over the root of the number of the update.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_2_decay: float = -0.8,
        epsilon_1: float = 1e-30,
        epsilon_2: float = 1e-3,
        clip_threshold: float = 1.0,
        relative_step: bool = True,
        name: str = "adafactor",
        **options: Any,
    ) -> None:
        rule = AdafactorRule(
            beta_2_decay=beta_2_decay,
            epsilon_1=epsilon_1,
            epsilon_2=epsilon_2,
            clip_threshold=clip_threshold,
            relative_step=relative_step,
        )
        super().__init__(rule, learning_rate, name, **options)


_BY_NAME: dict[str, Callable[..., Optimizer]] = {
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "ftrl": Ftrl,
    "adadelta": Adadelta,
    "adamax": Adamax,
    "nadam": Nadam,
    "lion": Lion,
    "lamb": Lamb,
    "adafactor": Adafactor,
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
