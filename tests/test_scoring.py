"""Edits, label error, and the constant output a model has to beat."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.scoring import best_constant_output, edit_counts, label_error

label_lists = st.lists(st.integers(1, 4), max_size=5)


def test_label_error_is_total_edits_over_total_reference_labels() -> None:
    edits = edit_counts([[3], [1, 2]], [[], [1, 2]])
    assert edits.tolist() == [1, 0]
    assert edits.dtype == np.int64
    assert label_error(edits, np.array([0, 2])) == 0.5


def test_label_error_of_empty_references_is_none() -> None:
    assert label_error(edit_counts([[1], []], [[], []]), np.array([0, 0])) is None
    assert label_error(np.array([], dtype=np.int64), np.array([], dtype=np.int64)) is None


def test_edits_count_insertions_deletions_and_replacements() -> None:
    hypotheses = [[1, 2, 3], [2, 3], [1, 2, 3, 4], [1, 9, 3], [70000]]
    references = [np.array([1, 2, 3], np.int32)] * 4 + [np.array([], np.int32)]
    assert edit_counts(hypotheses, references).tolist() == [0, 1, 1, 1, 1]


def test_a_constant_that_answers_everything_is_found() -> None:
    assert best_constant_output([[2, 3, 2]] * 5) == ((2, 3, 2), 0.0)


def test_the_constant_is_empty_when_no_label_saves_an_edit() -> None:
    assert best_constant_output([[1], []]) == ((), 1.0)
    assert best_constant_output([[], []]) == ((), None)
    assert best_constant_output([]) == ((), None)


@given(st.lists(label_lists, min_size=1, max_size=6).filter(any))
def test_no_single_insertion_improves_the_constant(references: list[list[int]]) -> None:
    labels, error = best_constant_output(references)
    lengths = np.array([len(r) for r in references])

    def error_of(output: list[int]) -> float | None:
        return label_error(edit_counts([output] * len(references), references), lengths)

    assert error_of(list(labels)) == error <= error_of([])
    for place in range(len(labels) + 1):
        for label in range(1, 5):
            assert error_of([*labels[:place], label, *labels[place:]]) >= error


@given(st.lists(label_lists, min_size=1, max_size=6))
def test_the_first_label_of_the_constant_saves_most(references: list[list[int]]) -> None:
    _, error = best_constant_output(references)
    total = sum(map(len, references))
    singles = [int(edit_counts([[k]] * len(references), references).sum()) for k in range(1, 5)]
    assert total == 0 or error * total <= min(singles) + 1e-9


def test_the_search_stays_under_a_second_of_processor_time() -> None:
    rng = np.random.default_rng(0)
    references = [rng.integers(1, 173, rng.integers(0, 21)).astype(np.int32) for _ in range(1000)]
    started = time.process_time()
    best_constant_output(references)
    assert time.process_time() - started < 1.0
