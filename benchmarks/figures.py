"""How benchmarks print what they measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable


def spread(values: Iterable[float]) -> str:
    """Median, least and most, to three figures: ``1.02 (0.98 .. 1.1)``."""
    values = list(values)
    middle, least, most = (_rounded(f(values)) for f in (statistics.median, min, max))
    return f"{middle} ({least} .. {most})"


def _rounded(value: float) -> str:
    return f"{float(f'{value:.3g}'):g}"
