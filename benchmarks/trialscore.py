"""How good trials were: time to targets, scores, and which ones are lost early. All pure.

The score of a setting is the geometric mean, over sets, seeds and targets, of the simulated seconds
to the first validation at or below the target. A target that is never reached counts as twice what
one slot takes for all its passes: worse than the slowest way to be sure of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from curve import Curve, reached
from trials import PASSES, TARGETS, Record, Records, Setting, Trial

UNREACHED = 2.0  # times the seconds of all passes of one slot

LOST = 1.5, 1.25
"""Lost after a third, or two thirds, of the passes: a loss above so many times the best one that
was recorded within as many simulated seconds, on the same set with as many slots."""


@dataclass(frozen=True)
class Bar:
    """What others had reached with as many slots on the same set when a trial began."""

    curves: tuple[Curve, ...] = ()

    def lost(self, look: int, seconds: float, loss: float) -> bool:
        """Whether a trial cannot be among the best any more.

        Args:
            look: 0 after a third of the passes, 1 after two thirds.
            seconds: Simulated, so far.
            loss: Of the last validation; NaN is lost as soon as others have any.
        """
        best = min(
            (p.loss for curve in self.curves for p in curve if p.elapsed <= seconds
             and not math.isnan(p.loss)),
            default=math.inf,
        )  # fmt: skip
        return not loss <= LOST[look] * best


def bar(records: Records, trial: Trial) -> Bar:
    """The bar for a trial that begins now."""
    same = (trial.data, trial.slots)
    return Bar(tuple(r.curve for t, r in records.items() if (t.data, t.slots) == same))


def times(data: str, record: Record) -> list[float | None]:
    """Simulated seconds to each target of the set; None: not reached."""
    points = [reached(record.curve, target) for target in TARGETS[data]]
    return [None if point is None else point.elapsed for point in points]


def unreached(records: Records, data: str) -> float:
    """Seconds that a target counts as that was not reached.

    By seed 1 only, so that trials with others do not change the order of the settings.
    """
    return UNREACHED * PASSES[1] * max(
        p.elapsed / p.epochs
        for trial, record in records.items()
        if (trial.data, trial.slots, trial.seed) == (data, 1, 1)
        for p in record.curve
    )  # fmt: skip


def score(
    records: Records, setting: Setting, slots: int, sets: Iterable[str], seeds: Iterable[int] = (1,)
) -> float:
    """Seconds; infinite where one of the trials has not been made."""
    trials = [Trial(data, slots, seed, setting) for data in sets for seed in seeds]
    if any(trial not in records for trial in trials):
        return math.inf
    return geometric_mean(
        unreached(records, trial.data) if seconds is None else seconds
        for trial in trials
        for seconds in times(trial.data, records[trial])
    )


def ranked(records: Records, slots: int, sets: Sequence[str]) -> list[Setting]:
    """Settings that were tried on all these sets with seed 1, the best first."""
    found = dict.fromkeys(trial.setting for trial in records if trial.slots == slots)
    scores = {setting: score(records, setting, slots, sets) for setting in found}
    tried = [setting for setting in found if scores[setting] < math.inf]
    return sorted(tried, key=lambda setting: (scores[setting], setting.name))


def at_best_rates(settings: Iterable[Setting]) -> list[Setting]:
    """Of settings that differ in the rate only, the first."""
    firsts: dict[Setting, Setting] = {}
    for setting in settings:
        firsts.setdefault(setting.but(learning_rate=0.0), setting)
    return list(firsts.values())


def one_slot(records: Records, data: str) -> Setting:
    """The best setting of one slot on a set."""
    return ranked(records, 1, (data,))[0]
