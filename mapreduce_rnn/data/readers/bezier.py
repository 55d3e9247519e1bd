"""Strokes from SVG paths: cubic Bezier curves, sampled at constant arc length.

Points are complex numbers, x + iy: a curve is then one array and a length one abs().
Grammar: https://www.w3.org/TR/SVG11/paths.html, of which M, m, C, c, S and s are understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_COMMAND = re.compile(r"([A-Za-z])([^A-Za-z]*)")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)")
_DENSE = 24  # points per curve for its length; 1e-4 of the length off at most on real strokes

_T = np.linspace(0.0, 1.0, _DENSE)
_BERNSTEIN = np.stack([(1 - _T) ** 3, 3 * (1 - _T) ** 2 * _T, 3 * (1 - _T) * _T**2, _T**3])


def sample_path(path: str, spacing: float) -> NDArray[np.complex128]:
    """Points along a path, first and last included, complex (T,).

    The length is divided into the whole number of equal steps that comes closest to ``spacing``,
    at least one: a dot keeps two points, however short it is.

    Raises ValueError for what is not one line of cubic curves.
    """
    curve = (cubic_segments(path) @ _BERNSTEIN).ravel()
    arc = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(curve)))])
    steps = max(1, round(arc[-1] / spacing))
    return np.interp(np.linspace(0.0, arc[-1], steps + 1), arc, curve)


def cubic_segments(path: str) -> NDArray[np.complex128]:
    """Control points of the cubic curves of a path, complex (curves, 4).

    Raises ValueError for what is not one line of cubic curves.
    """
    segments: list[tuple[complex, complex, complex, complex]] = []
    pen = None
    for command, points in _commands(path):
        if pen is None:
            pen = _start(command, points)
            continue
        for control_1, control_2, end in _curves(command, points, pen, segments):
            segments.append((pen, control_1, control_2, end))
            pen = end
    if not segments:
        raise ValueError("the path draws nothing")
    return np.array(segments)


def _commands(path: str) -> Iterator[tuple[str, list[complex]]]:
    matches = _COMMAND.findall(path)
    if "".join(letter + rest for letter, rest in matches) != path.strip():
        raise ValueError(f"a path starts with M, this one with {path.strip()[:8]!r}")
    for letter, rest in matches:
        numbers = [float(number) for number in _NUMBER.findall(rest)]
        if _NUMBER.sub("", rest).strip(" ,\t\r\n") or len(numbers) % 2:
            raise ValueError(f"expected pairs of numbers after {letter}, got {rest.strip()!r}")
        yield letter, [complex(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]


def _start(command: str, points: list[complex]) -> complex:
    if command not in "Mm" or len(points) != 1:
        raise ValueError(f"a path starts with M and one point, this one with {command}")
    return points[0]


def _curves(
    command: str,
    points: list[complex],
    pen: complex,
    before: list[tuple[complex, complex, complex, complex]],
) -> Iterator[tuple[complex, complex, complex]]:
    """Two control points and the end of each curve of a command, absolute."""
    size = {"c": 3, "s": 2}.get(command.lower())
    if size is None:
        raise ValueError(f"expected path commands C, c, S or s after M, got {command}")
    if not points or len(points) % size:
        raise ValueError(f"expected groups of {size} points after {command}, got {len(points)}")
    mirrored = 2 * pen - before[-1][2] if before else pen  # what S leaves out
    for start in range(0, len(points), size):
        origin = pen if command.islower() else 0
        group = [origin + point for point in points[start : start + size]]
        control_1, control_2, end = group if size == 3 else [mirrored, *group]
        yield control_1, control_2, end
        pen, mirrored = end, 2 * end - control_2
