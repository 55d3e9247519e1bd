"""Strokes from SVG paths: cubic Bezier curves, sampled at constant arc length.

Points are complex numbers, x + iy: a curve is then one array and a length one abs().
Grammar: https://www.w3.org/TR/SVG11/paths.html, of which M, m, C, c, S and s are understood.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)"
_NUMBERS = re.compile(_NUMBER)
_COMMANDS = re.compile(r"([CcSs])([^A-Za-z]*)")
_PATH = re.compile(rf"\s*[Mm]((?:[\s,]*{_NUMBER}){{2}})((?:\s*[CcSs](?:[\s,]*{_NUMBER})+)+)\s*")

_DENSE = 24  # points per curve: the length of a quarter circle comes out 3e-4 short
_T = np.linspace(0.0, 1.0, _DENSE)
_BERNSTEIN = np.stack([(1 - _T) ** 3, 3 * (1 - _T) ** 2 * _T, 3 * (1 - _T) * _T**2, _T**3]) + 0j


def sample_paths(paths: Sequence[str], spacing: float) -> list[NDArray[np.complex128]]:
    """Points along each path, first and last included, complex (T,).

    A length is divided into the whole number of equal steps that comes closest to ``spacing``,
    at least one: a dot keeps two points, however short it is.

    Raises:
        ValueError: A path is not one line of cubic curves.
    """
    curves = [cubic_curves(path) for path in paths]
    stops = np.cumsum([_DENSE * len(of_path) for of_path in curves])
    starts = np.concatenate([[0], stops[:-1]])
    # All strokes at once, for a few numpy calls in place of hundreds. Arc length goes on from one
    # stroke to the next after a gap, so that no position belongs to two.
    dense: NDArray[np.complex128] = (np.array(list(chain(*curves))) @ _BERNSTEIN).ravel()
    arc = np.zeros(len(dense))
    arc[1:] = np.abs(dense[1:] - dense[:-1])
    arc[starts[1:]] = spacing
    np.cumsum(arc, out=arc)
    positions, sizes = _positions(arc[starts], arc[stops - 1], spacing)
    points: NDArray[np.complex128] = np.interp(positions, arc, dense)
    ends = np.cumsum(sizes).tolist()
    return [points[i:j] for i, j in zip([0, *ends[:-1]], ends, strict=True)]


def _positions(
    first: NDArray[np.float64], last: NDArray[np.float64], spacing: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Where the points of all strokes lie, one after the other, and how many a stroke has."""
    steps = np.maximum(1, np.rint((last - first) / spacing)).astype(np.int64)
    sizes = steps + 1
    number = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(first, sizes) + number * np.repeat((last - first) / steps, sizes), sizes


def cubic_curves(path: str) -> list[list[complex]]:
    """Control points of the cubic curves of a path, four each, absolute.

    Raises:
        ValueError: The path is not one line of cubic curves.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise ValueError(f"expected a path of one M, then C, c, S or s, got {path.strip()[:40]!r}")
    [pen] = _points(match[1])
    curves: list[list[complex]] = []
    for command, numbers in _COMMANDS.findall(match[2]):
        pen = _add_curves(curves, command, _points(numbers), pen)
    return curves


def _points(text: str) -> list[complex]:
    numbers = list(map(float, _NUMBERS.findall(text)))
    if len(numbers) % 2:
        raise ValueError(f"expected pairs of numbers in a path, got {text.strip()!r}")
    return list(map(complex, numbers[::2], numbers[1::2]))


def _add_curves(
    curves: list[list[complex]], command: str, points: list[complex], pen: complex
) -> complex:
    """Append the curves of one command, made absolute, and return where they end."""
    size = 3 if command in "Cc" else 2
    if len(points) % size:
        raise ValueError(f"expected groups of {size} points after {command}, got {len(points)}")
    for start in range(0, len(points), size):
        origin = pen if command in "cs" else 0
        group = [origin + point for point in points[start : start + size]]
        if size == 2:  # S leaves out its first control point: the last one, mirrored
            group.insert(0, 2 * pen - curves[-1][2] if curves else pen)
        curves.append([pen, *group])
        pen = group[-1]
    return pen
