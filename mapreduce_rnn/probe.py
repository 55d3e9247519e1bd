"""The probe before round 1: which batches are timed, and what their times say.

``--bucket-cost measured`` asks what a training step costs on this device. One worker times real
steps on batches of a few sizes and lengths; the times are fitted to T(b, L) = a + p L + c b L
(:mod:`mapreduce_rnn.bucketing.fit`), and the run goes on with the three numbers, which its config
records: from there its result depends on no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.bucketing.fit import FEWEST_POINTS, BatchTimeFit, fit_batch_time
from mapreduce_rnn.protocol.messages import ProbeResult, ProbeTask, prefixed
from mapreduce_rnn.text import counted, percent

Positions = NDArray[np.int64]

BUDGET_SECONDS = 20.0
LARGEST_ERROR = 0.2  # median relative error of a fit that is still better than counting frames
SIZE_DIVISORS = (1, 2, 8)  # a full batch, and the partial ones that fill the ends of buckets
N_LENGTHS = 4
SHORT, LONG = 0.05, 0.99  # quantiles of the lengths; the very longest would take most of the time


class BatchTimePoint(NamedTuple):
    """A batch that was timed."""

    size: int  # sequences
    length: int  # frames it was padded to
    seconds: float


class MeasuredCost(NamedTuple):
    """What the run uses in place of ``measured``."""

    bucket_cost: str  # "A,P,C" in seconds, or "frames"
    line: str  # tells the user which, and why


def make_probe(model: Mapping[str, np.ndarray], indices: NDArray[np.int64]) -> ProbeTask:
    """The probe of a run.

    Args:
        model: The initial model, by name.
        indices: The usable training sequences of the store, int64.
    """
    return ProbeTask(0, 0, attempt=1, arrays={**prefixed("model/", model), "indices": indices})


def probe_batches(
    lengths: NDArray[np.int64], batch_size: int, max_frames: int | None
) -> list[Positions]:
    """Batches to time, at most 12, from the smallest padded size to the largest.

    Four lengths in geometric steps from a short to a long quantile, and at each of them a full
    batch as the limits allow it, a half and an eighth. A batch is the sequences next in length
    below its longest, as in a narrow bucket; where there are too few, they are repeated.

    Args:
        lengths: int64 (n,), n >= 1, ascending: frames of the training sequences.

    Returns:
        Positions in ``lengths``, int64 (B,) each; the last position is that of the longest.
    """
    short, long = np.quantile(lengths, (SHORT, LONG), method="higher")
    wanted = np.rint(np.geomspace(short, long, N_LENGTHS))
    ends = np.searchsorted(lengths, wanted, side="right")
    batches = {
        (size * lengths[end - 1], size, end): _neighbours(int(end), size)
        for end in ends
        for size in _sizes(int(lengths[end - 1]), batch_size, max_frames)
    }
    return [batches[key] for key in sorted(batches)]


def _sizes(length: int, batch_size: int, max_frames: int | None) -> set[int]:
    full = batch_size if max_frames is None else min(batch_size, max_frames // length)
    return {max(1, full // divisor) for divisor in SIZE_DIVISORS}


def _neighbours(end: int, size: int) -> Positions:
    """The ``size`` positions before ``end``, in turns where there are fewer."""
    return np.sort(np.resize(np.arange(max(0, end - size), end), size))


def most_seconds(size: int, length: int, measured: Iterable[BatchTimePoint]) -> float:
    """The longest that a step on a batch can take if times are a + p L + c b L, none negative.

    No part grows faster than the length or the padded size, whichever grows more: every measured
    point gives a bound, and the lowest one counts. Infinite without any.
    """
    return min(
        (
            point.seconds * max(1.0, ratio, ratio * size / point.size)
            for point in measured
            for ratio in [length / point.length]
        ),
        default=float("inf"),
    )


def measured_cost(result: ProbeResult, device: str) -> MeasuredCost:
    """The cost model of a run from its probe.

    Args:
        device: "cpu" or "cuda", for the line.

    Returns:
        The numbers that were fitted, with six digits; ``frames`` where too few points fitted into
        the time or their times do not follow the model.
    """
    points = [result.arrays[name] for name in ("sizes", "lengths", "seconds")]
    told = counted(len(points[0]), "point")
    if len(points[0]) < FEWEST_POINTS:
        return _refused(f"{told} in {BUDGET_SECONDS:g} s, at least {FEWEST_POINTS} are needed")
    fit = fit_batch_time(*points)
    told = f"{told}, median error {percent(fit.error)}"
    if fit.error > LARGEST_ERROR:
        return _refused(f"{told}, at most {percent(LARGEST_ERROR)} is of use")
    numbers = (float(f"{x:.6g}") for x in (fit.fixed, fit.per_step, fit.per_frame))
    return MeasuredCost(
        ",".join(map(repr, numbers)),
        f"bucket cost measured on {device}: b sequences padded to L frames take "
        f"{_formula(fit)} ({told})",
    )


def _refused(why: str) -> MeasuredCost:
    return MeasuredCost("frames", f"no bucket cost could be measured ({why}): frames are counted")


def _formula(fit: BatchTimeFit) -> str:
    terms = ((fit.fixed, ""), (fit.per_step, " L"), (fit.per_frame, " b L"))
    return " + ".join(_short_time(seconds) + what for seconds, what in terms if seconds)


def _short_time(seconds: float) -> str:
    """Two digits in a unit that leaves one or more before the point."""
    units = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    unit = next((unit for unit, size in units.items() if seconds >= size), "ns")
    value = seconds / units[unit]
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"
