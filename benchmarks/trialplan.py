"""Which trials rules.py makes next: the stages of its plan, as functions of the records so far.

A plan that was stopped goes on where it was. All have batches of 32, Adam and a constant learning
rate, so that one trial tells the time to every target. "Best" is the lowest score, see
trialscore.py; settings that differ in the rate only count once among the best.

    stage               data        slots  seeds  trials
    one slot            first       1      1      5 rates
    mean                first       6      1      3 sync periods x 2 state policies x 4 rates
    large batch         first       6      1      4 rates
    other rules         first       6      1      7 rules, 4 of them gentler too, x 4 rates, at the
                                                  best sync period and policy of the mean
    second place        first       6      1      the best 4 of those, at the second best
    refined             first       6      1      the best 2: with warm-up, its rate and twice it;
                                                  with smaller local batches
    one slot elsewhere  the others  1      1      5 rates
    best elsewhere      the others  6      1      the best 6, the mean once an epoch, large batch
    scaling             first       2, 12  1      the best 2: rate x (N / 6) ** 0, 1/2, 1
    repeated            all         all    1..3   the best 2, rates by the best power; one slot

"First" is the first of characters, lines and words that is there. The mean once an epoch and the
large batch are what a default may not fall behind, so they go where the best go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, product

from trials import LARGE_BATCH, Records, Setting, Trial
from trialscore import at_best_rates, one_slot, ranked, score

SLOTS = 6  # of all stages that choose
OTHER_SLOTS = 2, 12
SEEDS = 1, 2, 3

ONE_SLOT_RATES = 2.5e-3, 5e-3, 1e-2, 1.5e-2, 2.5e-2
RATES = 5e-3, 1.25e-2, 2.5e-2, 5e-2  # from the default of one slot to 10 times it
SYNC_STEPS = None, 20, 5  # None: once an epoch
POLICIES = "keep", "average"
RULES = (
    ("momentum", None), ("momentum", "zeta=0.5"),
    ("nesterov", None), ("nesterov", "momentum=0.5"),
    ("slowmo", None), ("slowmo", "beta=0.2"),
    ("adam", None), ("adam", "lr=0.003"),
    ("median", None), ("trimmed-mean", None), ("consensus", None),
)  # fmt: skip
"""Every rule but the mean, with its defaults; those with a momentum gentler too."""
WARMUPS = 0.5, 2.0  # epochs
BATCH_SIZES = 16, 8
POWERS = 0.0, 0.5, 1.0  # of N / 6, for the rate

SECOND, REFINED, ELSEWHERE, REPEATED = 4, 2, 6, 2  # how many of the best

Stage = Callable[[Records, Sequence[str]], Iterable[Trial]]


def next_trials(records: Records, sets: Sequence[str]) -> list[Trial]:
    """What is missing of the first stage that is not done; empty when all are.

    Args:
        sets: Names of the sets that are there, the first one to choose on.
    """
    missing = ([t for t in dict.fromkeys(stage(records, sets)) if t not in records]
               for stage in STAGES)  # fmt: skip
    return next(filter(None, missing), [])


def _one_slot(records: Records, sets: Sequence[str]) -> Iterable[Trial]:
    return _on(sets[:1], 1, map(Setting, ONE_SLOT_RATES))


def _mean(records: Records, sets: Sequence[str]) -> Iterable[Trial]:
    settings = (
        Setting(rate, sync_steps=steps, optimizer_state=policy)
        for steps, policy, rate in product(SYNC_STEPS, POLICIES, RATES)
    )
    return _on(sets[:1], SLOTS, settings)


def _large_batch(records: Records, sets: Sequence[str]) -> Iterable[Trial]:
    return _on(sets[:1], SLOTS, (Setting(rate, LARGE_BATCH) for rate in RATES))


def _other_rules(records: Records, sets: Sequence[str]) -> Iterable[Trial]:
    place = _best_means(records, sets)[0]
    settings = (
        place.but(reduce=rule, reduce_option=option, learning_rate=rate)
        for (rule, option), rate in product(RULES, RATES)
    )
    return _on(sets[:1], SLOTS, settings)


def _second_place(records: Records, sets: Sequence[str]) -> Iterable[Trial]:
    first, second = _best_means(records, sets)[:2]
    others = [s for s in _best(records, sets[:1]) if _place(s) == _place(first) and _is_other(s)]
    steps, policy = _place(second)
    moved = (s.but(sync_steps=steps, optimizer_state=policy) for s in others[:SECOND])
    return _on(sets[:1], SLOTS, moved)


def _refined(records: Records, sets: Sequence[str]) -> Iterable[Trial]:
    plain = [s for s in _best(records, sets[:1]) if s.warmup is None and s.batch_size is None]
    return _on(sets[:1], SLOTS, chain.from_iterable(map(_refinements, plain[:REFINED])))


def _refinements(setting: Setting) -> Iterable[Setting]:
    for warmup, factor in product(WARMUPS, (1, 2)):
        yield setting.but(warmup=warmup, learning_rate=setting.learning_rate * factor)
    for size in BATCH_SIZES:
        yield setting.but(batch_size=size)


def _one_slot_elsewhere(records: Records, sets: Sequence[str]) -> Iterable[Trial]:
    return _on(sets[1:], 1, map(Setting, ONE_SLOT_RATES))


def _best_elsewhere(records: Records, sets: Sequence[str]) -> Iterable[Trial]:
    references = (
        next(s for s in ranked(records, SLOTS, sets[:1]) if is_reference(s))
        for is_reference in (_is_paper, lambda s: s.reduce == LARGE_BATCH)
    )
    return _on(sets[1:], SLOTS, [*_best(records, sets[:1])[:ELSEWHERE], *references])


def _scaling(records: Records, sets: Sequence[str]) -> Iterable[Trial]:
    for setting in _best(records, sets)[:REPEATED]:
        for slots, power in product(OTHER_SLOTS, POWERS):
            yield Trial(sets[0], slots, 1, _scaled(setting, slots, power))


def _repeated(records: Records, sets: Sequence[str]) -> Iterable[Trial]:
    for data in sets:
        alone = one_slot(records, data)
        yield from (Trial(data, 1, seed, alone) for seed in SEEDS)
        for setting in _best(records, sets)[:REPEATED]:
            power = _best_power(records, sets[0], setting)
            for slots, seed in product((SLOTS, *OTHER_SLOTS), SEEDS):
                yield Trial(data, slots, seed, _scaled(setting, slots, power))


STAGES: tuple[Stage, ...] = (
    _one_slot, _mean, _large_batch, _other_rules, _second_place, _refined,
    _one_slot_elsewhere, _best_elsewhere, _scaling, _repeated,
)  # fmt: skip


def _on(sets: Iterable[str], slots: int, settings: Iterable[Setting]) -> Iterable[Trial]:
    return [Trial(data, slots, 1, s) for s, data in product(settings, sets)]


def _best(records: Records, sets: Sequence[str]) -> list[Setting]:
    """Settings over slots in the order of their scores, each at its best rate."""
    over_slots = (s for s in ranked(records, SLOTS, sets) if s.reduce != LARGE_BATCH)
    return at_best_rates(over_slots)


def _best_means(records: Records, sets: Sequence[str]) -> list[Setting]:
    """The mean at its sync periods and policies, the best first."""
    return [
        s for s in _best(records, sets[:1])
        if not _is_other(s) and s.warmup is None and s.batch_size is None
    ]  # fmt: skip


def _place(setting: Setting) -> tuple[int | None, str]:
    return setting.sync_steps, setting.optimizer_state


def _is_other(setting: Setting) -> bool:
    return setting.reduce != "mean"


def _is_paper(setting: Setting) -> bool:
    """Whether a setting is the mean once an epoch."""
    return setting.reduce == "mean" and setting.sync_steps is None


def _scaled(setting: Setting, slots: int, power: float) -> Setting:
    """With the rate for another number of slots."""
    return setting.but(learning_rate=setting.learning_rate * (slots / SLOTS) ** power)


def _best_power(records: Records, data: str, setting: Setting) -> float:
    def product_of_scores(power: float) -> float:
        two, twelve = (
            score(records, _scaled(setting, slots, power), slots, (data,)) for slots in OTHER_SLOTS
        )
        return two * twelve

    return min(POWERS, key=product_of_scores)
