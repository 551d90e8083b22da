"""`fit` in a job with parameter servers: who serves, and how a model outlives its servers."""

from __future__ import annotations

import logging
from typing import NoReturn

from ...strategies import Strategy
from ..optimizers import train_or_serve
from .trainable import Trainable

_logger = logging.getLogger("paceline")


def serve(strategy: Strategy) -> NoReturn:
    """Keep variables until all that train are done, then end the process.

    What follows `fit` in the script is about a trained model, which this process does not have.
    """
    train_or_serve(strategy, lambda: None)
    _logger.info("This parameter server has served; what follows fit is for those that train.")
    raise SystemExit(0)


def require_servers(model: Trainable, strategy: Strategy) -> None:
    """Refuse to train where the parameter servers have ended.

    Raises:
        RuntimeError: An earlier `fit` was the last one of this job.
    """
    if strategy.extended.job.is_over:
        raise RuntimeError(
            f"model {model.name!r} was trained on parameter servers, which have ended with that "
            f"call of fit; give it all epochs, or save the weights and start another job"
        )


def bring_here(model: Trainable, strategy: Strategy, uneven: str) -> None:
    """Let a model that was trained on parameter servers live on here, when all have trained it.

    The servers end: the chief, who has waited for the others, says so to all.

    Args:
        model, strategy: What was trained, under which strategy.
        uneven: What the chief knows of workers that had fewer batches than others.
    """
    job = strategy.extended.job
    if strategy.extended.remote_storage is None:
        return
    uneven = job.text_from_chief(uneven, "all have trained")
    if uneven:
        _logger.warning(
            "Workers share the batches of fit, and their inputs did not have the same number of "
            "them: %s. Nobody has trained on the parts of those that had fewer. Let input and "
            "callbacks be the same on all workers.",
            uneven,
        )
    job.refresh()
    for variable in [*model.weights, *model.optimizer.existing_variables, model.step_counter()]:
        if variable.is_remote:
            variable.bring_here()
    job.share_result("")
