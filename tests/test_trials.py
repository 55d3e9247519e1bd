"""The trials of benchmarks/rules.py: what is tried next, what is lost, and what it is worth."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from inprocess import train as plain_run
from mapreduce_rnn.report.run import read_run
from mapreduce_rnn.runlog import dumps, loads
from mapreduce_rnn.workers.maptask import Step
from stores import tiny_store

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import modelled
import trialplan
import trials
from curve import Point
from trialplan import RATES, next_trials
from trials import LARGE_BATCH, Record, Setting, Trial
from trialscore import Bar, bar, ranked, score, times
from trialtable import report

CHARACTERS = ("characters",)
ALL = ("characters", "lines", "words")
COSTS = modelled.Costs(0.5, 0.01, 0.001, 0.25, 0.125)
PER_ROUND = modelled.Costs(0.0, 0.0, 0.0, 0.0, 1.0)


def _record(*losses: float, pass_seconds: float = 10.0, end: str = "all passes") -> Record:
    curve = [Point(k, k * pass_seconds, loss) for k, loss in enumerate(losses, start=1)]
    return Record(curve, (None,) * len(losses), end, cpu_seconds=1.0)


def _as_planned(
    sets: tuple[str, ...], loss: Callable[[Trial], float] = lambda trial: 5.0
) -> tuple[dict[Trial, Record], list[list[Trial]]]:
    """Records of all trials, with these last losses, and the trials of each stage."""
    records: dict[Trial, Record] = {}
    stages = []
    while due := next_trials(records, sets):
        stages.append(due)
        records |= {trial: _record(20.0, loss(trial)) for trial in due}
    return records, stages


def test_a_record_comes_back_from_its_line() -> None:
    trial = Trial("words", 6, 2, Setting(0.1 + 0.2, "adam", "lr=0.003", 5, "average", 0.5, 16))
    record = Record([Point(1.0, 2.5, 30.0)], (0.75,), "all passes", 12.5)
    line = loads(dumps(trials.to_line(trial, record)))
    assert trials.from_lines([{"kind": "costs"}, line]) == {trial: record}


def test_a_loss_that_is_no_number_is_none_in_the_file() -> None:
    trial = Trial("words", 6, 1, Setting(0.5))
    line = loads(dumps(trials.to_line(trial, _record(30.0, math.nan))))
    assert line["curve"][1] == [2, 20.0, None, None]
    assert math.isnan(trials.from_lines([line])[trial].curve[1].loss)


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ({}, True),
        ({"target": 6.9}, True),
        ({"target": 7.1}, False),
        ({"target": 7.1, "end": "all passes"}, True),
        ({"passes": 19}, False),
    ],
)
def test_a_record_of_another_plan_does_not_count(changed: dict[str, object], counts: bool) -> None:
    trial = Trial("characters", 6, 1, Setting(0.5))
    line = trials.to_line(trial, _record(6.0, end=trials.TARGET_REACHED))
    assert bool(trials.from_lines([line | changed])) == counts


def test_the_large_batch_is_one_of_all_slots_together() -> None:
    options = Trial("lines", 6, 1, Setting(0.02, LARGE_BATCH)).options()
    assert (options["batch_size"], options["reduce"]) == (192, "mean")


def test_names_are_unique_and_leave_room_for_the_figures() -> None:
    records, _ = _as_planned(ALL)
    names = {trial.setting.name for trial in records}
    assert len(names) == len({trial.setting for trial in records})
    assert max(map(len, names)) <= 44


def test_a_score_is_the_geometric_mean_of_times_to_targets() -> None:
    """Targets 15, 9.2 and 7 after 10, 20 and 40 s; the other seed after 20, 20 and 20 s."""
    setting = Setting(0.5)
    records = {
        Trial("characters", 6, 1, setting): _record(15.0, 9.0, 9.0, 7.0),
        Trial("characters", 6, 2, setting): _record(16.0, 1.0),
    }
    assert score(records, setting, 6, CHARACTERS) == pytest.approx(20)
    assert score(records, setting, 6, CHARACTERS, seeds=(1, 2)) == pytest.approx(20)
    assert score(records, setting, 6, CHARACTERS, seeds=(1, 2, 3)) == math.inf


def test_a_target_that_is_not_reached_counts_as_twice_all_passes_of_one_slot() -> None:
    alone, setting = Setting(0.1), Setting(0.5)
    records = {
        Trial("characters", 1, 1, alone): _record(30.0, 6.0, pass_seconds=60.0),
        Trial("characters", 6, 1, setting): _record(15.0, 9.2, math.nan),
    }
    assert times("characters", records[Trial("characters", 6, 1, setting)]) == [10, 20, None]
    assert score(records, setting, 6, CHARACTERS) == pytest.approx((10 * 20 * 1200) ** (1 / 3))


def test_settings_are_ranked_on_the_sets_that_they_were_tried_on() -> None:
    slow, fast, elsewhere = Setting(0.1), Setting(0.2), Setting(0.3)
    records = {
        Trial("characters", 6, 1, slow): _record(16.0, 5.0),
        Trial("characters", 6, 1, fast): _record(5.0),
        Trial("words", 6, 1, elsewhere): _record(1.0),
    }
    assert ranked(records, 6, CHARACTERS) == [fast, slow]


@pytest.mark.parametrize(
    ("look", "loss", "lost"),
    [(0, 15.0, False), (0, 15.1, True), (1, 12.5, False), (1, 12.6, True), (0, math.nan, True)],
)
def test_a_trial_is_lost_far_above_what_others_had_by_then(
    look: int, loss: float, lost: bool
) -> None:
    """Others: 10 after 20 s; what they had later does not count."""
    curves = ([Point(1, 10.0, math.nan), Point(2, 20.0, 10.0), Point(3, 30.0, 1.0)],)
    assert Bar(curves).lost(look, 25.0, loss) == lost


def test_nothing_is_lost_beside_other_numbers_of_slots_or_other_sets() -> None:
    trial = Trial("characters", 6, 1, Setting(0.5))
    records = {
        trial._replace(slots=1): _record(1.0),
        trial._replace(data="words"): _record(1.0),
    }
    assert not bar(records, trial).lost(0, 100.0, 1000.0)


def test_every_stage_follows_once_those_before_are_done() -> None:
    records, stages = _as_planned(ALL)
    assert len(stages) == len(trialplan.STAGES)
    assert len(records) == sum(map(len, stages))
    assert next_trials(records, ALL) == []
    assert {trial.slots for trial in records} == {1, 2, 6, 12}


def test_a_stage_that_was_stopped_goes_on_with_the_rest() -> None:
    _, (first, second, *_) = _as_planned(CHARACTERS)
    made = {trial: _record(5.0) for trial in (*first, *second[:-2])}
    assert next_trials(made, CHARACTERS) == second[-2:]


def test_other_rules_are_tried_where_the_mean_is_best() -> None:
    best = Setting(RATES[1], sync_steps=5, optimizer_state="average")
    _, stages = _as_planned(CHARACTERS, lambda t: 5.0 if t.setting == best else 8.0)
    others = {trial.setting for trial in stages[3]}
    assert {(s.sync_steps, s.optimizer_state) for s in others} == {(5, "average")}
    assert {s.reduce for s in others} == {
        "momentum", "nesterov", "slowmo", "adam", "median", "trimmed-mean", "consensus",
    }  # fmt: skip
    assert {s.learning_rate for s in others} == set(RATES)


def test_the_best_go_elsewhere_beside_the_paper_and_the_large_batch() -> None:
    _, stages = _as_planned(ALL, lambda t: 5.0 if t.setting.reduce == "median" else 8.0)
    elsewhere = {trial.setting for trial in stages[7]}
    assert {trial.data for trial in stages[7]} == {"lines", "words"}
    assert any(s.reduce == "median" for s in elsewhere)
    assert any(s.reduce == LARGE_BATCH for s in elsewhere)
    assert any(s.reduce == "mean" and s.sync_steps is None for s in elsewhere)


def test_rates_are_repeated_with_the_power_that_was_best() -> None:
    def loss(trial: Trial) -> float:
        scaled = trial.slots == 2 and trial.setting.learning_rate < min(RATES) / 2
        return 5.0 if scaled else 8.0

    records, _ = _as_planned(CHARACTERS, loss)
    rates = {
        slots: sorted(t.setting.learning_rate for t in records if (t.slots, t.seed) == (slots, 3))
        for slots in (2, 6, 12)
    }
    assert rates[2] == pytest.approx([rate / 3 for rate in rates[6]])
    assert rates[12] == pytest.approx([rate * 2 for rate in rates[6]])


def test_tables_stay_within_80_columns_and_say_what_one_slot_would_take() -> None:
    alone = Trial("characters", 1, 1, Setting(0.005))
    records = {
        alone: _record(15.0, 9.0, 8.0, 7.0, pass_seconds=60.0),
        alone._replace(slots=6): _record(15.0, 9.2, pass_seconds=20.0),
    }
    lines = report(records)
    assert "mean /epoch keep 0.005".ljust(44) + "   20.0   40.0      - 3.00 3.00    -" in lines
    assert max(map(len, lines)) <= 80


def _steps(*shapes: tuple[int, int]) -> list[Step]:
    """Batches of so many sequences, padded to so many frames."""
    return [Step(np.zeros(size, np.int64), padded, 0.0) for size, padded in shapes]


def test_a_round_takes_as_long_as_its_slowest_slot_all_messages_and_the_reduce() -> None:
    """0.5 + 0.01 L + 0.001 b L for a batch; 0.25 a task, 0.125 a round."""
    slots = [_steps((6, 20), (1, 20)), _steps((40, 20)), []]
    first = (0.5 + 0.2 + 0.12) + (0.5 + 0.2 + 0.02)
    assert COSTS.round(slots, devices=3) == pytest.approx(first + 3 * 0.25 + 0.125)
    assert COSTS.round(slots, devices=1) == pytest.approx(first + 1.5 + 3 * 0.25 + 0.125)


def test_a_large_batch_is_dealt_to_the_devices_and_averaged_every_time() -> None:
    slots = [_steps((12, 20), (7, 20))]
    batches = (0.5 + 0.2 + 0.04) + (0.5 + 0.2 + 0.04)
    averages = 2 * (6 * 0.25 + 0.125)
    assert COSTS.large_batches(slots, devices=6) == pytest.approx(batches + averages)


def test_a_trial_trains_as_a_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its rule has a state, and it looks whether it is lost after each of its passes."""
    monkeypatch.setitem(trials.PASSES, 2, 3)
    trial = Trial("characters", 2, 1, Setting(0.02, "momentum", sync_steps=2, batch_size=4))
    store = tiny_store(tmp_path / "store")
    record = modelled.train(trial, store, PER_ROUND, Bar())
    options = trial.options() | {"cpu_workers": 2, "units": 96, "buckets": 16}
    plain_run(store, tmp_path / "run", **options | {"target_loss": trial.target})
    validated = read_run(tmp_path / "run").validated
    assert [p.loss for p in record.curve] == [r.validation.loss for r in validated if r.validation]
    assert [p.elapsed for p in record.curve] == [r.number for r in validated]
    assert record.curve[-1].epochs == validated[-1].epoch


def test_a_trial_of_large_batches_averages_after_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 sequences in batches of 2 x 32, or one for each of their buckets, which are 16."""
    monkeypatch.setitem(trials.PASSES, 2, 2)
    trial = Trial("characters", 2, 1, Setting(1e-6, LARGE_BATCH))
    record = modelled.train(trial, tiny_store(tmp_path / "store", 25), PER_ROUND, Bar())
    first, second = (point.elapsed for point in record.curve)
    assert 1 < first <= 16
    assert second == 2 * first


def test_a_trial_that_is_lost_ends_after_a_third_of_its_passes(tmp_path: Path) -> None:
    trial = Trial("characters", 1, 1, Setting(1e-6))
    others = Bar(([Point(1, 0.0, 1.0)],))
    record = modelled.train(trial, tiny_store(tmp_path / "store"), COSTS, others)
    assert (record.end, len(record.curve)) == ("lost after 3 passes", 3)


def test_a_rule_that_is_not_for_so_few_slots_is_refused_on_record(tmp_path: Path) -> None:
    trial = Trial("characters", 2, 1, Setting(0.02, "median"))
    record = modelled.train(trial, tiny_store(tmp_path / "store"), COSTS, Bar())
    assert record.curve == []
    assert record.end.startswith("refused: ")
