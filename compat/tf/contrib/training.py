"""`tf.contrib.training`: hyperparameters of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...names import NameTable, serve
from ..advice import advice

__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))


class HParams:
    """Hyperparameters as attributes, whose types their first values say.

    Args:
        hparam_def: Must be None.
        model_structure: Must be None.
        values: Their names and values: numbers, text, truth values, or lists of these.

    Raises:
        ValueError: A name is taken, or is no name of a hyperparameter.
    """

    def __init__(self, hparam_def: None = None, model_structure: None = None, **values: Any):
        if hparam_def is not None or model_structure is not None:
            raise ValueError(
                "HParams: hparam_def and model_structure must be None; pass name=value"
            )
        self._names: list[str] = []
        for name, value in values.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """One more hyperparameter.

        Raises:
            ValueError: The name is taken.
        """
        if hasattr(self, name):
            raise ValueError(f"HParams: name must be new, {name!r} is taken; use set_hparam")
        self._names.append(name)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Another value of the same type.

        Raises:
            KeyError: There is no such hyperparameter.
            ValueError: The value is of another type.
        """
        self._require(name)
        setattr(self, name, _of_type(name, getattr(self, name), value))

    def del_hparam(self, name: str) -> None:
        """Take one away, if it is there."""
        if name in self._names:
            self._names.remove(name)
            delattr(self, name)

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """`set_hparam` of several; returns these."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> HParams:
        """`override_from_dict` of a JSON object."""
        return self.override_from_dict(json.loads(values_json))

    def parse(self, values: str) -> HParams:
        """`set_hparam` by text such as "rate=0.1,units=[8,4],name=a".

        Raises:
            KeyError: There is no such hyperparameter.
            ValueError: The text has another form, or a value is of another type.
        """
        for name, text in _assignments(values):
            self._require(name)
            now = getattr(self, name)
            is_list = isinstance(now, list)
            if is_list != text.startswith("["):
                form = "a list, as [1,2]" if is_list else "one value"
                raise ValueError(f"HParams.parse: {name} must be {form}, got {text!r}")
            if is_list:
                kind = now[0] if now else ""
                parts = [part.strip() for part in text[1:-1].split(",") if part.strip()]
                setattr(self, name, [_parsed(name, kind, part) for part in parts])
            else:
                setattr(self, name, _parsed(name, now, text))
        return self

    def values(self) -> dict[str, Any]:
        """All of them by name."""
        return {name: getattr(self, name) for name in self._names}

    def get(self, key: str, default: Any = None) -> Any:
        """The value of one; `default` if there is none."""
        return getattr(self, key) if key in self._names else default

    def to_json(self, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        """All of them as a JSON object."""
        return json.dumps(self.values(), indent=indent, separators=separators, sort_keys=sort_keys)

    def __contains__(self, key: str) -> bool:
        return key in self._names

    def __repr__(self) -> str:
        return f"HParams({', '.join(f'{k}={v!r}' for k, v in sorted(self.values().items()))})"

    def _require(self, name: str) -> None:
        if name not in self._names:
            raise KeyError(
                f"HParams: no hyperparameter is named {name!r}, there are "
                f"{', '.join(sorted(self._names))}; add it with add_hparam"
            )


def _assignments(text: str) -> list[tuple[str, str]]:
    """Names and texts of values, in which a comma within brackets does not divide."""
    found: list[tuple[str, str]] = []
    rest = text.strip()
    while rest:
        name, equals, rest = rest.partition("=")
        if not equals:
            raise ValueError(f"HParams.parse: values must be name=value,..., got {name!r}")
        rest = rest.lstrip()
        if rest.startswith("["):
            inside, bracket, rest = rest.partition("]")
            value = inside + bracket
            rest = rest.lstrip().removeprefix(",")
        else:
            value, _, rest = rest.partition(",")
        found.append((name.strip(), value.strip()))
        rest = rest.lstrip()
    return found


def _parsed(name: str, now: Any, text: str) -> Any:
    """Text as a value of the type of the one at hand."""
    if isinstance(now, bool):
        known = {"true": True, "1": True, "false": False, "0": False}
        if text.lower() not in known:
            raise ValueError(f"HParams.parse: {name} must be true or false, got {text!r}")
        return known[text.lower()]
    if isinstance(now, int | float):
        try:
            return type(now)(text)
        except ValueError:
            kind = type(now).__name__
            raise ValueError(f"HParams.parse: {name} must be {kind}, got {text!r}") from None
    return text


def _of_type(name: str, now: Any, value: Any) -> Any:
    """The value, if it has the type of the one at hand; whole numbers may become floats."""
    if isinstance(now, list) and now and isinstance(value, list):
        return [_of_type(name, now[0], item) for item in value]
    fits = isinstance(value, type(now)) and isinstance(value, bool) == isinstance(now, bool)
    if now is None or fits:
        return value
    if isinstance(now, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"HParams: {name} must be {type(now).__name__}, as {now!r}, got {value!r}")
