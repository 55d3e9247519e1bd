"""Pen recordings as strokes, made ready for ``mapreduce-rnn data import npz``.

The file to read holds n samples, each of several strokes, each of several points:

    xy              (points, 2)    y upward, in any unit
    stroke_offsets  (strokes + 1,) stroke s is xy[stroke_offsets[s]:stroke_offsets[s + 1]]
    sample_offsets  (n + 1,)       sample i has strokes sample_offsets[i] .. sample_offsets[i + 1]
    labels          (n,)           texts
    writers         (n,)           who wrote it: a writer is in one split only

A frame is a point: the way from the one before, in standard deviations of the sample's y, and
whether the pen comes down there.

    python benchmarks/strokes.py unipen-words.npz words.npz
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, Any]


def main() -> int:
    """Convert a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="file with strokes")
    parser.add_argument("target", help="file for `data import npz`")
    options = parser.parse_args()
    with np.load(options.source) as pen:
        np.savez(options.target, **sequences(pen))
    return 0


def sequences(pen: Mapping[str, NDArray[Any]]) -> Arrays:
    """The arrays of ``data import npz`` from those of the layout above."""
    xy, strokes = pen["xy"], pen["stroke_offsets"]
    begins = np.zeros(len(xy) + 1)
    begins[strokes] = 1  # here the pen comes down
    bounds = strokes[pen["sample_offsets"]]
    frames = [
        np.column_stack([steps(xy[start:stop]), begins[start:stop]])
        for start, stop in pairwise(bounds)
    ]
    return {
        "frames": np.concatenate(frames).astype(np.float32),  # (points, 3)
        "offsets": np.cumsum([0, *map(len, frames)]),
        "texts": pen["labels"],
        "groups": pen["writers"],
        "feature_names": ["dx", "dy", "pen_up"],
    }


def steps(xy: NDArray[Any]) -> NDArray[np.float64]:
    """The way to each point (T, 2) from the one before, in standard deviations of y."""
    scaled = xy / (xy[:, 1].std() or 1) if len(xy) else xy.astype(np.float64)
    return np.diff(scaled, axis=0, prepend=scaled[:1])


if __name__ == "__main__":
    sys.exit(main())
