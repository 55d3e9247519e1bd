"""What rules.py prints of its records: tables of at most 80 columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from trials import SETS, TARGETS, Records, Setting, Trial
from trialscore import one_slot, score, times

from mapreduce_rnn.text import NOTHING

ROWS = 40  # of a table, the best ones
_ROW = "{:<44}" + "{:>7}" * 3 + "{:>5}" * 3


def report(records: Records) -> list[str]:
    """Tables by number of slots: one for each set, and one of the scores over all sets."""
    sets = [data for data in SETS if any((t.data, t.slots) == (data, 1) for t in records)]
    numbers = sorted({trial.slots for trial in records})
    return [
        line
        for slots in numbers
        for lines in (*(_of_set(records, data, slots) for data in sets),
                      _of_all(records, sets, slots))
        for line in lines
    ]  # fmt: skip


def _of_set(records: Records, data: str, slots: int) -> list[str]:
    trials = [t for t in records if (t.data, t.slots, t.seed) == (data, slots, 1)]
    if not trials:
        return []
    best = times(data, records[Trial(data, 1, 1, one_slot(records, data))])
    trials.sort(key=lambda t: score(records, t.setting, slots, (data,)))
    targets = [f"{target:g}" for target in TARGETS[data]]
    return [
        f"{data}, N={slots}: seconds to a loss; times as fast as the best of one slot",
        _ROW.format("setting", *targets, *targets),
        *(_row(trial.setting, times(data, records[trial]), best) for trial in trials[:ROWS]),
        "",
    ]


def _row(setting: Setting, seconds: Sequence[float | None], best: Sequence[float | None]) -> str:
    speedups = [
        NOTHING if own is None or alone is None else f"{alone / own:.2f}"
        for own, alone in zip(seconds, best, strict=True)
    ]
    return _ROW.format(setting.name, *map(_seconds, seconds), *speedups)


def _seconds(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _of_all(records: Records, sets: Sequence[str], slots: int) -> list[str]:
    """Scores, and that of one slot, at its best on each set, as a multiple of them."""
    alone = math.prod(score(records, one_slot(records, data), 1, (data,)) for data in sets)
    found = dict.fromkeys(t.setting for t in records if t.slots == slots)
    scores = {s: score(records, s, slots, sets) for s in found}
    rows = sorted((value, s.name) for s, value in scores.items() if value < math.inf)
    return [
        f"all of {', '.join(sets)}, N={slots}: score in seconds; that of one slot over it",
        *_scored(rows[:ROWS], alone ** (1 / len(sets))),
        "",
    ]


def _scored(rows: Iterable[tuple[float, str]], alone: float) -> list[str]:
    return [f"{name:<44}{_seconds(value):>7}{alone / value:>7.2f}" for value, name in rows]
