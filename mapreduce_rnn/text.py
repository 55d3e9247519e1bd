"""How numbers, times and verdicts are written for a person, on the terminal and in the report."""

from __future__ import annotations

import math
from dataclasses import dataclass

NOTHING = "-"
"""Stands for a value that is missing or not finite."""


def finite(value: float | None) -> bool:
    """Whether there is a number to show."""
    return value is not None and math.isfinite(value)


def number(value: float | None) -> str:
    """A loss or a like figure: three decimals, four digits from 1000 on."""
    if value is None or not finite(value):
        return NOTHING
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.4g}"


def percent(fraction: float | None) -> str:
    """A fraction (1.0 is 100 %) with one decimal."""
    return f"{100 * fraction:.1f} %" if fraction is not None and finite(fraction) else NOTHING


def duration(seconds: float | None) -> str:
    """Seconds in the two units a person would use."""
    if seconds is None or not finite(seconds):
        return NOTHING
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes} min {rest:02d} s"
    hours = minutes // 60
    if hours < 100:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"


def time_unit(longest: float) -> tuple[str, float]:
    """Name of the unit for times of up to ``longest`` seconds beside each other; its seconds."""
    if longest >= 3 * 3600:
        return "h", 3600.0
    return ("s", 1.0) if longest < 180 else ("min", 60.0)


def counted(n: int, one: str, many: str | None = None) -> str:
    """``n`` things; the plural takes an s unless ``many`` gives it."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def network(layers: int, units: int, *, bidirectional: bool) -> str:
    """The shape of an LSTM: "bidirectional LSTM, 1 layer of 96 units", the units per direction."""
    kind = "bidirectional" if bidirectional else "unidirectional"
    return f"{kind} LSTM, {counted(layers, 'layer')} of {units} units"


@dataclass(frozen=True)
class Verdict:
    """Whether a model beats the output that ignores its input; None: it can't be told."""

    better: bool | None
    text: str


def verdict(label_error: float | None, constant: float | None) -> Verdict:
    """Judge a label error rate by that of the best constant output on the same labels.

    A network that has learnt nothing about its input still gets below 100 % by always giving the
    same labels, so a label error means something only beside that figure.
    """
    if label_error is None or constant is None or not (finite(label_error) and finite(constant)):
        return Verdict(None, "no label error to compare with the best constant output")
    better = label_error < constant
    comparison = "better" if better else "NO BETTER"
    text = f"label error {percent(label_error)}: {comparison} than the best constant output"
    return Verdict(better, f"{text} ({percent(constant)})")
