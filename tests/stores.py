"""Small stores for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mapreduce_rnn.data.store import Sequence, write_store

ALPHABET = ("a", "b", "c", "d")
FEATURES = ("x", "y", "pen_up")


def tiny_store(path: Path, n: int = 40, seed: int = 0) -> Path:
    """Write a store that a small model learns in seconds, and return its path.

    n sequences of 4 to 40 frames, 3 features, 1 to 8 labels out of 4; every fifth sequence is
    for validation. A glyph is 4 or 5 points at a height of its own, the first one after a jump
    of the pen.
    """
    rng = np.random.default_rng(np.random.SeedSequence((seed, n)))
    write_store(
        path, _sequences(n, rng), alphabet=ALPHABET, feature_names=FEATURES,
        source="synthetic", pen={"x": 0, "y": 1, "pen_up": 2},
    )  # fmt: skip
    return path


def _sequences(n: int, rng: np.random.Generator) -> Iterator[Sequence]:
    for i in range(n):
        labels = rng.integers(1, len(ALPHABET) + 1, size=rng.integers(1, 9))
        glyphs = [_glyph(int(label), rng) for label in labels]
        frames = np.concatenate(glyphs).astype(np.float32)  # (T, 3)
        frames[:, 0] = np.arange(len(frames)) / 10
        yield Sequence(f"s{i:05d}", frames, labels, "validation" if i % 5 == 4 else "train")


def _glyph(label: int, rng: np.random.Generator) -> np.ndarray:
    points = np.zeros((rng.integers(4, 6), 3))
    points[:, 1] = label + rng.normal(0, 0.1, len(points))
    points[0, 2] = 1.0
    return points
