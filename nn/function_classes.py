"""Classes that are a function with options: losses and metrics, of which Keras has both forms."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from .serialization import Serializable


class FunctionClass(Serializable):
    """A class made of a function `(y_true, y_pred, **options)`: `class Huber(Base, of=huber)`.

    Its arguments are the function's options and those that all classes of its kind take; a subclass
    of a user's has its own `__init__`, or the same arguments.
    """

    function: ClassVar[Callable[..., Any]]
    arguments: ClassVar[inspect.Signature]

    def __init_subclass__(cls, of: Callable[..., Any] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if of is None:
            return
        cls.function = staticmethod(of)
        options = list(inspect.signature(of).parameters.values())[2:]
        defaults = cls._all_arguments({option.name: option.default for option in options})
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(n, kind, default=d) for n, d in defaults.items()]
        cls.arguments = inspect.Signature(parameters)
        cls.__signature__ = cls.arguments  # type: ignore[attr-defined]  # for `help`

    @classmethod
    def _all_arguments(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments with their defaults, in Keras's order."""
        raise NotImplementedError

    def _bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """What a call of the class gives, by name.

        Raises:
            TypeError: An argument that it does not take; the message has those that it does.
        """
        # Models make losses and metrics anew in each step, and `bind` takes ten times as long.
        given = dict(zip(self.arguments.parameters, args, strict=False))
        known = self.arguments.parameters.keys() - given.keys()
        if len(args) == len(given) and kwargs.keys() <= known:
            return given | kwargs
        try:
            return self.arguments.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}{self.arguments}: {error}") from None

    @classmethod
    def _signature(cls) -> inspect.Signature:
        own = super()._signature()
        takes_anything = {p.kind for p in own.parameters.values()} == {
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        }
        return cls.arguments if takes_anything else own
