"""What is wrong with settings, in sentences without the terms and the website of pydantic."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import BaseModel, ValidationError


def explained(error: ValidationError, settings: type[BaseModel]) -> str:
    """Of each setting that is wrong its name, the rule and the value found.

    Args:
        error: Raised for values of `settings`.
        settings: Which settings there are.
    """
    sentences: list[str] = []
    rules: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for found in error.errors(include_url=False):
        own = found.get("ctx", {}).get("error")
        if own is not None:
            sentences.append(str(own))
        elif found["type"] == "extra_forbidden":
            sentences.append(_unknown(str(found["loc"][0]), settings))
        else:
            # Of a setting that may be of several types there is a rule for each.
            name = str(found["loc"][0])
            rule = found["msg"].removeprefix("Input should be ").partition(", unable")[0]
            rules.setdefault(name, []).append(rule)
            values[name] = found["input"]
    sentences += [f"{n} must be {' or '.join(r)}, it is {values[n]!r}" for n, r in rules.items()]
    return "; ".join(sentences)


def _unknown(name: str, settings: type[BaseModel]) -> str:
    names = list(settings.model_fields)
    near = difflib.get_close_matches(name, names, n=1)
    advice = f"did you mean {near[0]}?" if near else f"it has {', '.join(names)}"
    return f"{settings.__name__} has no setting {name!r}; {advice}"
