"""benchmarks/strokes.py: from points of strokes to what `data import npz` takes."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from mapreduce_rnn.data.readers import npz

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "strokes.py"


def test_frames_are_steps_in_deviations_of_y_and_where_the_pen_comes_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two samples: two strokes whose y deviates by 2, and one stroke whose y does not."""
    source, target = tmp_path / "pen.npz", tmp_path / "own.npz"
    np.savez(
        source, xy=[[0, 0], [2, 4], [2, 4], [4, 0], [7, 7], [9, 7]], stroke_offsets=[0, 2, 4, 6],
        sample_offsets=[0, 2, 3], labels=["ab", "c"], writers=[1, 2],
    )  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["strokes.py", str(source), str(target)])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    arrays = np.load(target)
    assert arrays["frames"].tolist() == [
        [0, 0, 1], [1, 2, 0], [0, 0, 1], [1, -2, 0], [0, 0, 1], [2, 0, 0],
    ]  # fmt: skip
    assert arrays["offsets"].tolist() == [0, 4, 6]
    assert len(list(npz.read(target).sequences)) == 2
