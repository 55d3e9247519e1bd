"""Options of reduce rules: from NAME=VALUE texts to a rule and back, and their limits.

A rule's options are the fields of its dataclass that hold a float or a text.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterable

from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.reduce.base import Rule

FLAG = "--reduce-option"


def parse(name: str, rule: type[Rule], texts: Iterable[str]) -> dict[str, float | str]:
    """Values by option; of one that is given twice the last.

    Args:
        name: What the rule is called on the command line.
        rule: Says which options there are and of what type.
        texts: ``NAME=VALUE`` each.

    Raises:
        UsageError: An option that the rule does not have, or a value that is no finite number.
    """
    known = option_types(rule)
    given: dict[str, float | str] = {}
    for text in texts:
        option, _, value = (part.strip() for part in text.partition("="))
        if option not in known:
            raise UsageError(f"{FLAG}: {name} has no option {option!r}; {_listed(known)}")
        given[option] = value if known[option] is str else _number(option, value)
    return given


def spelt(rule: Rule) -> tuple[str, ...]:
    """All options of a rule as ``NAME=VALUE``, exact: :func:`parse` gives the same values."""
    return tuple(f"{name}={getattr(rule, name)}" for name in option_types(type(rule)))


def option_types(rule: type[Rule]) -> dict[str, type]:
    """Names and types of a rule's options."""
    hints = typing.get_type_hints(rule)
    names = [f.name for f in dataclasses.fields(rule)]
    return {name: hints[name] for name in names if hints[name] in (float, str)}


def require(holds: bool, name: str, expected: str, value: object) -> None:
    """Raise UsageError unless an option's value is as expected."""
    if not holds:
        raise UsageError(f"{FLAG}: {name} must be {expected}, got {value!r}")


def require_positive(rule: Rule, *names: str) -> None:
    """Raise UsageError unless these options are more than 0."""
    for name in names:
        require(getattr(rule, name) > 0, name, "more than 0", getattr(rule, name))


def require_decay(rule: Rule, *names: str) -> None:
    """Raise UsageError unless these options are at least 0 and less than 1."""
    for name in names:
        value = getattr(rule, name)
        require(0 <= value < 1, name, "at least 0 and less than 1", value)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    require(math.isfinite(value), name, "a number", text)
    return value


def _listed(known: Iterable[str]) -> str:
    return "known: " + ", ".join(known) if known else "it has none"
