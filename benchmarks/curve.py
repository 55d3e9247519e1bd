"""Validation loss over a training, and what ddp.py reads off it."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple


class Point(NamedTuple):
    """A validation."""

    epochs: float  # done
    elapsed: float  # seconds of training
    loss: float


Curve = list[Point]


def reached(curve: Curve, target: float) -> Point | None:
    """The first validation at or below a target."""
    return next((point for point in curve if point.loss <= target), None)


def epoch_seconds(curve: Curve) -> list[float]:
    """Of each epoch, or the mean of those between two validations."""
    before = [Point(0.0, 0.0, math.nan), *curve]
    return [(b.elapsed - a.elapsed) / (b.epochs - a.epochs) for a, b in pairwise(before)]
