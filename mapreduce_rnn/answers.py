"""Whether an answer can be one to its task: pure, and without a look at what was trained.

The codec lets any message through whose fields have their types. What the master computes with
lies deeper, in statistics and arrays; here it is held against the task that was sent. An answer
that fits may still be wrong, and values that are not finite are the reduce rule's business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.protocol.messages import (
    AnyResult,
    AnyTask,
    Arrays,
    MapResult,
    MapTask,
    ProbeResult,
    ScoreResult,
    ScoreTask,
    under,
)
from mapreduce_rnn.reduce.base import describe, differences, layout

COUNTS = ("sequences", "steps", "skipped_steps", "held_back", "epoch_steps", "visits")
STATISTICS = frozenset({"loss_sum", "learning_rate", *COUNTS})
"""What a map task reports; see :func:`mapreduce_rnn.workers.maptask.map_task`."""


def misfit(task: AnyTask, answer: AnyResult) -> str | None:
    """What is wrong with the form of an answer, in one line; None if it can be one to ``task``."""
    match task, answer:
        case MapTask(), MapResult():
            return _of_map(task, answer)
        case ScoreTask(), ScoreResult():
            return _of_score(len(task.arrays["indices"]), answer.arrays)
        case _, ProbeResult():
            return _of_probe(answer.arrays)
        case _:
            return f"a {type(answer).__name__} to a {type(task).__name__}"


def _of_map(task: MapTask, answer: MapResult) -> str | None:
    return (
        _of_types(answer.statistics)
        or _of_counts(len(task.arrays["shard"]), answer.weight, answer.statistics)
        or _different(under("model/", task.arrays), under("model/", answer.arrays))
        or _of_state(task.arrays, answer.arrays)
    )


def _of_types(statistics: Mapping[str, Any]) -> str | None:
    if statistics.keys() != STATISTICS:
        return f"expected the statistics {', '.join(sorted(STATISTICS))}"
    for name in COUNTS:
        if type(statistics[name]) is not int or statistics[name] < 0:
            return f"statistics.{name} is no count"
    if statistics["loss_sum"] is not None and not _is_finite(statistics["loss_sum"]):
        return "statistics.loss_sum is neither a finite float nor None"
    rate = statistics["learning_rate"]
    return None if _is_finite(rate) and rate >= 0 else "statistics.learning_rate is no rate"


def _of_counts(shard: int, weight: int, statistics: Mapping[str, Any]) -> str | None:
    """No batch is empty or larger than the shard, and an epoch visits a sequence once at most."""
    steps, sequences = statistics["steps"], statistics["sequences"]
    possible = {
        "skipped steps, of all": statistics["skipped_steps"] <= steps,
        "steps, of the sequences": steps <= sequences,
        "sequences, of steps on the shard": sequences <= steps * shard,
        "weight, of the sequences": weight <= sequences,
        "steps of an epoch, of the shard": statistics["epoch_steps"] <= shard,
    }
    return next((f"too many {what}" for what, holds in possible.items() if not holds), None)


def _of_state(task: Arrays, answer: Arrays) -> str | None:
    """An optimizer's arrays are ``state/<parameter>/<key>``: of its shape, or a single number."""
    for name, array in answer.items():
        if name.startswith("model/"):
            continue
        parameter = task.get("model/" + name.removeprefix("state/").rpartition("/")[0])
        if not name.startswith("state/") or parameter is None:
            return f"{name!r:.100} belongs to no parameter"
        if array.shape not in ((), parameter.shape):
            return f"{name} has the shape {list(array.shape)} of no optimizer state"
    return None


def _of_score(n: int, arrays: Arrays) -> str | None:
    counts = {name: np.empty(n, np.int64) for name in ("edits", "reference")}
    wrong = _different({"loss": np.empty(n, np.float64), **counts}, arrays)
    if wrong is None and any((arrays[name] < 0).any() for name in counts):
        return "negative counts"
    return wrong


def _of_probe(arrays: Arrays) -> str | None:
    n = len(np.atleast_1d(arrays.get("seconds", np.empty(0))))
    counts = {name: np.empty(n, np.int64) for name in ("sizes", "lengths")}
    wrong = _different({"seconds": np.empty(n, np.float64), **counts}, arrays)
    if wrong is None and not all(_is_positive(array) for array in arrays.values()):
        return "sizes, lengths or times that are not positive"
    return wrong


def _different(expected: Arrays, got: Arrays) -> str | None:
    wrong = differences(layout(expected), layout(got))
    return describe(wrong)[:400] if wrong else None


def _is_positive(array: NDArray[Any]) -> bool:
    return bool((np.isfinite(array) & (array > 0)).all())


def _is_finite(value: object) -> bool:
    return type(value) is float and math.isfinite(value)
