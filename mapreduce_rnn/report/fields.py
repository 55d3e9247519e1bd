"""Values that may be damaged or missing: each as the type that it should have, or as missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

Record = Mapping[str, Any]


def integer(value: Any) -> int | None:
    """A whole number; true and false are none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def real(value: Any) -> float:
    """A number; NaN for anything else."""
    return float(value) if isinstance(value, int | float) else math.nan


def text(value: Any) -> str | None:
    """A text."""
    return value if isinstance(value, str) else None


def words(value: Any) -> tuple[str, ...]:
    """The items of a list, as text; none for anything else."""
    return tuple(map(str, value)) if isinstance(value, list) else ()


def records(value: Any) -> list[Record]:
    """The records of a list; none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def section(config: Record, name: str) -> Record:
    """A table of a config; empty if it isn't there."""
    table = config.get(name)
    return table if isinstance(table, Mapping) else {}


def of_kind(events: Iterable[Record], kind: str) -> list[Record]:
    """The events of a kind, in their order."""
    return [event for event in events if event.get("event") == kind]


def last(events: Iterable[Record], kind: str) -> Record:
    """The last event of a kind; empty if there is none."""
    return next(iter(reversed(of_kind(events, kind))), {})


def finite(values: Iterable[float]) -> list[float]:
    """The numbers among ``values``: no NaN, no infinity."""
    return [value for value in values if math.isfinite(value)]
