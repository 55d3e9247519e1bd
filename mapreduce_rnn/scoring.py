"""Label error: how far outputs are from references, and what a constant output would score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

Labels = Sequence[int] | NDArray[np.integer]

_SEARCH_LABELS = 10_000  # references the search looks at, in labels: bounds its work
_LONGEST_CONSTANT = 64  # labels
_FAR = 1 << 30  # more edits than any output needs


def edit_counts(hypotheses: Sequence[Labels], references: Sequence[Labels]) -> NDArray[np.int64]:
    """Labels to insert, delete or replace (Levenshtein 1966) for each pair: int64 (n,)."""
    pairs = zip(hypotheses, references, strict=True)
    counts = [Levenshtein.distance(_as_list(h), _as_list(r)) for h, r in pairs]
    return np.array(counts, dtype=np.int64)


def label_error(edits: NDArray[np.int64], reference: NDArray[np.int64]) -> float | None:
    """Total edits over total reference labels; None where all references are empty.

    Args:
        edits: (n,) edits per sequence.
        reference: (n,) labels per reference, 0 allowed.
    """
    total = int(np.sum(reference))
    return int(np.sum(edits)) / total if total else None


class ConstantOutput(NamedTuple):
    """Labels to output whatever the input, and their error."""

    labels: tuple[int, ...]
    label_error: float | None


def best_constant_output(references: Sequence[Labels]) -> ConstantOutput:
    """The label sequence that scores best as the answer to every reference.

    A model has learnt something when it beats this. The search is greedy: from the empty output
    it inserts the label, at the place, that saves most edits, until none saves any; so it finds a
    good constant, not provably the best. It looks at evenly spaced references of about 10 000
    labels in total; the error is that over all references.
    """
    labels = _climb(_Aligned(_sample(references)))
    edits = edit_counts([labels] * len(references), references)
    lengths = np.array([len(r) for r in references], dtype=np.int64)
    return ConstantOutput(tuple(labels), label_error(edits, lengths))


def _as_list(labels: Labels) -> list[int]:
    """rapidfuzz compares numpy's integers several times as slowly as Python's."""
    return labels.tolist() if isinstance(labels, np.ndarray) else list(labels)


def _sample(references: Sequence[Labels]) -> Sequence[Labels]:
    total = sum(len(r) for r in references)
    return references[:: max(1, -(-total // _SEARCH_LABELS))]


def _climb(references: _Aligned) -> list[int]:
    labels: list[int] = []
    while len(labels) < _LONGEST_CONSTANT:
        step = references.best_insertion(labels)
        if step is None:
            break
        labels.insert(*step)
    return labels


class _Aligned:
    """References in one padded array, and the edits to them for all insertions at once.

    With an output cut at p and a reference r at j, let P[j] be the edits between the parts before
    the cuts and S[j] between those behind. The output with a label c inserted at p needs

        min over j of   P[j] + 1 + S[j]                    c is surplus
                        P[j] + (c != r[j]) + S[j + 1]      c stands for r[j]

    edits, so only labels equal to some r[j] are worth a look: one pass over the references gives
    the edits for every label.
    """

    def __init__(self, references: Sequence[Labels]) -> None:
        self._lengths = np.array([len(r) for r in references], dtype=np.int64)
        self._labels = np.zeros((len(references), max(self._lengths, default=0)), dtype=np.int64)
        for row, reference in zip(self._labels, references, strict=True):
            row[: len(reference)] = reference
        behind = self._lengths[:, None] - np.arange(self._labels.shape[1] + 1)  # (n, M + 1)
        self._inside = behind >= 0
        self._mirror = np.maximum(behind, 0)
        self._reversed = np.take_along_axis(self._labels, np.maximum(behind[:, 1:], 0), axis=1)
        # One group per reference and label, so that a label that occurs twice saves once.
        rows, self._columns = np.nonzero(self._labels)
        keys = rows * (self._labels.max(initial=0) + 1) + self._labels[rows, self._columns]
        order = np.argsort(keys, kind="stable")
        self._rows, self._columns = rows[order], self._columns[order]
        self._groups = np.flatnonzero(np.diff(keys[order], prepend=-1))

    def best_insertion(self, output: list[int]) -> tuple[int, int] | None:
        """(place, label) that saves most edits over all references; None if none saves any."""
        if not len(self._groups):
            return None
        before = _prefix_edits(output, self._labels)
        mirrored = _prefix_edits(output[::-1], self._reversed)[::-1]
        best: tuple[int, int] | None = None
        fewest = int(before[-1][np.arange(len(self._lengths)), self._lengths].sum())
        for place, (head, tail) in enumerate(zip(before, mirrored, strict=True)):
            behind = np.where(self._inside, np.take_along_axis(tail, self._mirror, axis=1), _FAR)
            edits = self._edits_per_label(head, behind)
            label = int(edits.argmin())
            if edits[label] < fewest:
                fewest, best = int(edits[label]), (place, label)
        return best

    def _edits_per_label(
        self, head: NDArray[np.int64], behind: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Total edits with each label (the index) inserted at the cut: (labels + 1,)."""
        match = head[:, :-1] + behind[:, 1:]  # (n, M)
        other = 1 + np.minimum((head + behind).min(axis=1), match.min(axis=1))  # (n,)
        equal = match[self._rows, self._columns]
        saved = np.maximum(other[self._rows] - equal, 0)
        per_group = np.maximum.reduceat(saved, self._groups)
        labels = self._labels[self._rows, self._columns][self._groups]
        total: NDArray[np.int64] = other.sum() - np.bincount(labels, weights=per_group)
        return total


def _prefix_edits(output: list[int], references: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Edits between each prefix of ``output`` and each prefix of each reference.

    Returns:
        For p = 0..len(output) an array (n, M + 1), entry [i, j] for references[i, :j].
    """
    n, longest = references.shape
    column = np.arange(longest + 1)
    rows = [np.broadcast_to(column, (n, longest + 1))]
    for label in output:
        above = rows[-1]
        row = above + 1
        np.minimum(row[:, 1:], above[:, :-1] + (references != label), out=row[:, 1:])
        # Insertions run along the row: row[j] = min over k <= j of row[k] + (j - k).
        rows.append(np.minimum.accumulate(row - column, axis=1) + column)
    return rows
