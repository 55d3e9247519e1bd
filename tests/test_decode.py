"""Best-path decoding."""

from __future__ import annotations

from itertools import groupby

import torch
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.decode import BLANK, best_path


def log_probs_of(paths: list[list[int]], classes: int = 4) -> torch.Tensor:
    """(B, T, classes) whose likeliest classes are ``paths``."""
    return torch.nn.functional.one_hot(torch.tensor(paths), classes).float().log_softmax(-1)


def test_runs_are_merged_and_blanks_left_out() -> None:
    paths = [[0, 1, 1, 0, 1, 2], [3, 3, 3, 3, 3, 3], [0, 0, 0, 0, 0, 0], [2, 3, 2, 3, 0, 3]]
    lengths = torch.full((4,), 6)
    assert best_path(log_probs_of(paths), lengths) == [[1, 1, 2], [3], [], [2, 3, 2, 3, 3]]


def test_frames_behind_the_length_are_not_read() -> None:
    paths = [[1, 2, 3, 1], [1, 2, 3, 1], [1, 1, 1, 1]]
    assert best_path(log_probs_of(paths), torch.tensor([1, 4, 3])) == [[1], [1, 2, 3, 1], [1]]


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.lists(
            st.tuples(st.lists(st.integers(0, 3), min_size=n, max_size=n), st.integers(1, n)),
            min_size=1, max_size=5,
        )
    )
)  # fmt: skip
def test_a_batch_reads_like_its_sequences_one_by_one(rows: list[tuple[list[int], int]]) -> None:
    paths, lengths = [path for path, _ in rows], [n for _, n in rows]
    expected = [[k for k, _ in groupby(path[:n]) if k != BLANK] for path, n in rows]
    assert best_path(log_probs_of(paths), torch.tensor(lengths)) == expected
