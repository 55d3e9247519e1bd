"""When a worker counts as lost or hung."""

from __future__ import annotations

import pytest

from mapreduce_rnn.liveness import Limits, Pulse, fault, slowest_of

LIMITS = Limits(silence_seconds=30.0, hang_seconds=300.0)


def at(now: float, pulse: Pulse, slowest: float = 0.0, *, idle: bool = False) -> str | None:
    return fault(pulse, LIMITS, slowest, now, idle=idle)


def test_silence_is_noticed_whatever_the_worker_does() -> None:
    pulse = Pulse(0.0).message(10.0)
    for idle in (False, True):
        assert at(40.0, pulse, idle=idle) is None
        assert at(41.0, pulse, idle=idle) == "silent for 31 s"


def test_heartbeats_without_a_step_are_a_hang() -> None:
    pulse = Pulse(0.0).message(0.0).busy(0.0)
    for now in range(0, 302, 2):
        pulse = pulse.message(float(now)).beat(7 if now >= 20 else 0, 0.5, float(now))
    assert at(320.0, pulse) is None
    assert at(321.0, pulse) == "hung: no step for 301 s"


def test_a_long_step_is_no_hang_where_steps_are_long() -> None:
    pulse = Pulse(0.0).message(400.0).busy(0.0)
    assert at(401.0, pulse) == "hung: no step for 401 s"
    assert at(401.0, pulse, slowest=30.0) is None


def test_idle_workers_need_not_get_on() -> None:
    assert at(9999.0, Pulse(0.0).message(9998.0), idle=True) is None


def test_a_process_that_never_speaks_is_given_the_time_of_a_hang() -> None:
    assert at(300.0, Pulse(0.0)) is None
    assert at(301.0, Pulse(0.0)) == "started, but silent for 301 s"


@pytest.mark.parametrize("steps", [0, 5])
def test_a_new_task_starts_the_clock_anew(steps: int) -> None:
    pulse = Pulse(0.0).beat(5, 0.1, 10.0).busy(200.0).beat(steps, 0.1, 202.0).message(550.0)
    assert at(501.0, pulse) == ("hung: no step for 301 s" if steps == 0 else None)


def test_the_slowest_batch_is_that_of_any_worker() -> None:
    pulses = [Pulse(0.0).beat(1, 2.0, 1.0).beat(2, 1.0, 2.0), Pulse(0.0)]
    assert slowest_of(pulses) == 2.0
    assert slowest_of([]) == 0.0
