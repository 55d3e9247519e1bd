from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comparisons import round_event, write_cell
from mapreduce_rnn.report import canvas
from mapreduce_rnn.report.roundtimes import Phase, RoundTimes, Task, round_times
from mapreduce_rnn.report.run import Round, read_run
from mapreduce_rnn.report.timeline import KINDS, shares, shown, spans, typical
from mapreduce_rnn.report.timelineplot import Shown, timelines

SECONDS = st.floats(0, 1e4)


@st.composite
def measured(draw: st.DrawFn) -> RoundTimes:
    """A round of real devices, each of which runs its tasks one after the other."""
    devices = draw(st.integers(1, 4))
    tasks, free = [], [0.0] * devices
    for worker in draw(st.lists(st.integers(0, devices - 1), max_size=6)):
        busy, way, pause = (draw(SECONDS) for _ in range(3))
        tasks.append(Task(worker, free[worker] + pause, busy + way, busy))
        free[worker] += pause + busy + way
    phase = Phase(max(free) + draw(SECONDS), tuple(tasks))
    return RoundTimes(
        1.0, phase, draw(SECONDS), Phase(draw(SECONDS)), draw(SECONDS), devices, False
    )


def seconds_by_kind(times: RoundTimes) -> dict[str, float]:
    sums = dict.fromkeys(KINDS, 0.0)
    for span in spans(times):
        sums[span.kind] += span.end - span.start
    return sums


@given(measured())
def test_the_spans_of_each_device_fill_the_round_without_overlap(times: RoundTimes) -> None:
    whole = times.map.seconds + times.reduce + times.validation.seconds + times.checkpoint
    for device in range(times.devices):
        own = [span for span in spans(times) if span.device == device]
        assert sum(s.end - s.start for s in own) == pytest.approx(whole, abs=1e-6)
        for before, after in pairwise(own):
            assert before.end <= after.start + 1e-6


@given(st.lists(measured(), min_size=1, max_size=3))
def test_shares_are_those_of_the_spans_and_add_up_to_the_whole(rounds: list[RoundTimes]) -> None:
    parts = shares(rounds)
    drawn = [seconds_by_kind(times) for times in rounds]
    whole = sum(sum(seconds.values()) for seconds in drawn)
    assert bool(parts) == (whole > 0)
    if parts:
        assert sum(parts.values()) == pytest.approx(1)
        for kind, part in parts.items():
            assert part == pytest.approx(sum(s[kind] for s in drawn) / whole, abs=1e-6)


def test_simulated_devices_train_side_by_side_and_their_transfers_follow_in_turn() -> None:
    times = round_times([round_event(1, count=3, busy=50.0, simulated=True)])[1]
    drawn = [(s.device, s.kind, s.start, s.end) for s in spans(times)]
    assert [d for d in drawn if d[1] == "map"] == [
        (0, "map", 0, 50), (1, "map", 0, 51), (2, "map", 0, 52),
    ]  # fmt: skip
    transfers = [(device, start, end) for device, kind, start, end in drawn if kind == "transfer"]
    assert transfers == [(0, 52, 53), (1, 53, 54), (2, 54, pytest.approx(55))]
    assert times.map.seconds == pytest.approx(55.1)


def test_the_validation_of_simulated_devices_is_counted_as_their_map_is() -> None:
    event = round_event(1, count=3, busy=50.0, simulated=True)
    assert event["validation_seconds"] == pytest.approx(6.1)
    assert round_times([event])[1].validation.seconds == pytest.approx(1.8 + 3 * 0.2 + 0.1)


def test_half_of_a_real_transfer_is_shown_before_the_training_and_half_after() -> None:
    times = round_times([round_event(1, count=1, busy=9.0, simulated=False)])[1]
    drawn = [(span.kind, span.start, span.end) for span in spans(times)]
    assert drawn[:3] == [("transfer", 0.0, 0.5), ("map", 0.5, 9.5), ("transfer", 9.5, 10.0)]


def test_a_device_without_a_task_waits() -> None:
    events = [{"event": "start", "workers": 4}, round_event(1, count=2, busy=9.0, simulated=False)]
    times = round_times(events)[1]
    assert times.devices == 4
    idle = [s for s in spans(times) if s.device == 3]
    assert [s.kind for s in idle] == ["waiting", "reduce", "validation", "checkpoint"]


@pytest.mark.parametrize(
    "damage",
    [
        {"map_seconds": None}, {"tasks": [{"kind": "map", "slot": 0}]}, {"reduce_seconds": "1"},
        {"checkpoint_seconds": -1.0}, {"simulated": {"devices": 2, "map_seconds": []}},
    ],
    ids=repr,
)  # fmt: skip
def test_a_round_whose_times_are_damaged_counts_for_nothing(damage: dict[str, Any]) -> None:
    whole = round_event(1, count=2, busy=9.0, simulated=False)
    times = round_times([whole | damage])[1]
    good = round_times([whole])[1]
    assert shares([times]) == {}
    assert spans(times) == ()
    assert shares([times, good]) == shares([good])


def rounds_of(*lengths: float) -> list[Round]:
    """Rounds of one device whose map phase took so long; NaN: unknown."""
    return [
        Round(n, n, math.nan, 1.0, 0.1, None, 0, 0,
              RoundTimes(1.0, Phase(s), 0.1, Phase(0.1), 0.1, 1, False))
        for n, s in enumerate(lengths, 1)
    ]  # fmt: skip


def test_a_picture_shows_the_first_two_rounds_and_a_typical_later_one() -> None:
    rounds = rounds_of(9.0, 5.0, 4.0, math.nan, 8.0, 6.0)
    assert [round.number for round in shown(rounds)] == [1, 2, 6]
    assert [round.number for round in shown(rounds[:1])] == [1]
    assert typical(rounds_of(math.nan)) is None
    assert shown([dataclasses.replace(rounds[0], times=None)]) == ()


def test_the_figure_has_a_row_per_device_and_one_scale(tmp_path: Path) -> None:
    runs = [read_run(write_cell(tmp_path, count, rounds=1)) for count in (1, 6)]
    with canvas.settings():
        drawing = timelines([Shown("a", run.times[0]) for run in runs])
    one, six = drawing.figure.axes
    assert one.get_xlim() == six.get_xlim()
    assert one.get_xlabel() == "time since the round began (s, simulated)"
    assert list(six.get_yticks()) == [1, 2, 3, 4, 5, 6]
    assert six.get_legend_handles_labels()[1] == list(KINDS)
