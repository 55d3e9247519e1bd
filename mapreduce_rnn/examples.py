"""What the best model reads in a few validation sequences, for the report to show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.data.store import Store
from mapreduce_rnn.reduce.params import load_arrays
from mapreduce_rnn.scoring import edit_counts
from mapreduce_rnn.tasks import Task

COUNT = 6


def make_examples(
    store: Store, task: Task, model: Mapping[str, np.ndarray], indices: NDArray[np.int64]
) -> dict[str, Any]:
    """The content of examples.json: sequences of different lengths with reference and output.

    Args:
        model: Parameters and buffers by name.
        indices: Validation sequences to choose from, at least one.
    """
    chosen = choose(store.lengths[indices])
    hypotheses = _read(store, task, model, indices[chosen])
    return {
        "attribution": store.meta.attribution,
        "pen": store.meta.pen,
        "items": [
            _item(store, int(index), labels)
            for index, labels in zip(indices[chosen], hypotheses, strict=True)
        ],
    }


def choose(lengths: NDArray[np.int64], count: int = COUNT) -> NDArray[np.int64]:
    """Positions of up to ``count`` sequences, spread over the lengths, without the longest tenth.

    The longest are left out since their drawings are too wide to show.
    """
    order = np.argsort(lengths, kind="stable")
    usual = order[: max(1, len(order) * 9 // 10)]
    at = np.linspace(0, len(usual) - 1, min(count, len(usual)))
    return usual[at.astype(np.int64)]


def _read(
    store: Store, task: Task, model: Mapping[str, np.ndarray], indices: NDArray[np.int64]
) -> list[list[int]]:
    network = task.build_model()
    load_arrays(network, model)
    network.eval()
    return task.decode(network, task.collate(store, indices))


def _item(store: Store, index: int, labels: list[int]) -> dict[str, Any]:
    reference = store.labels(index).tolist()
    return {
        "id": store.id(index),
        "reference": _names(store, reference),
        "hypothesis": _names(store, labels),
        "edits": int(edit_counts([labels], [reference])[0]),
        "points": _points(store, index),
    }


def _names(store: Store, labels: list[int]) -> list[str]:
    return [store.meta.alphabet[label - 1] for label in labels]


def _points(store: Store, index: int) -> list[list[float]]:
    """x, y and pen-up of every frame; empty when the store holds no pen data."""
    pen = store.meta.pen
    if not pen:
        return []
    columns = [pen["x"], pen["y"], pen["pen_up"]]
    points: list[list[float]] = store.frames(index)[:, columns].round(4).tolist()
    return points
