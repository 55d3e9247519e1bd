"""Who does what: assign, retry, late, done."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn import rounds
from mapreduce_rnn.protocol.messages import TaskKey
from mapreduce_rnn.rounds import (
    Abort,
    Accept,
    Answered,
    Assign,
    Discard,
    Lost,
    Raised,
    Ready,
    Restart,
    SetUp,
    State,
    Tick,
)


def keys(n: int, round: int = 1) -> list[TaskKey]:
    return [TaskKey(round, "map", slot) for slot in range(n)]


def started(
    places: int, tasks: int, max_attempts: int = 5, *, backup_tasks: bool = False
) -> tuple[State, list[rounds.Action]]:
    """A phase with all workers ready, and the actions so far."""
    state = State(tuple(range(places)), max_attempts, backup_tasks)
    state, first = rounds.begin(state, keys(tasks))
    actions = list(first)
    for place in range(places):
        state, more = rounds.step(state, Ready(place))
        actions += more
    return state, actions


def test_tasks_go_to_ready_workers_in_slot_order() -> None:
    _, actions = started(places=2, tasks=3)
    assert actions == [Assign(0, keys(3)[0], 1), Assign(1, keys(3)[1], 1)]


def test_an_answer_is_accepted_and_its_worker_takes_the_next_task() -> None:
    state, _ = started(places=2, tasks=3)
    state, actions = rounds.step(state, Answered(1, keys(3)[1], 1))
    assert actions == (Accept(1, keys(3)[1]), Assign(1, keys(3)[2], 1))
    assert not state.finished


def test_a_phase_is_finished_when_every_task_has_its_answer() -> None:
    state, _ = started(places=2, tasks=2)
    state, _ = rounds.step(state, Answered(1, keys(2)[1], 1))
    state, _ = rounds.step(state, Answered(0, keys(2)[0], 1))
    assert state.finished


def test_a_lost_workers_task_runs_again_under_the_next_attempt() -> None:
    state, _ = started(places=2, tasks=2)
    state, actions = rounds.step(state, Lost(0, "signal 9"))
    assert actions == (Restart(0),)
    state, actions = rounds.step(state, Answered(1, keys(2)[1], 1))
    assert Assign(1, keys(2)[0], 2) in actions


def test_an_answer_of_an_attempt_that_was_given_away_is_discarded() -> None:
    state, _ = started(places=1, tasks=2)
    state, _ = rounds.step(state, Lost(0, "signal 9"))
    state, _ = rounds.step(state, Ready(0))  # holds attempt 2 now
    state, actions = rounds.step(state, Answered(0, keys(2)[0], 1))
    assert [type(a) for a in actions] == [Discard]
    assert keys(2)[0] in state.open


def test_an_answer_to_a_task_that_is_done_is_discarded() -> None:
    state, _ = started(places=2, tasks=1)
    state, _ = rounds.step(state, Lost(0, "silent"))  # worker 1 holds the task now
    state, _ = rounds.step(state, Answered(1, keys(1)[0], 2))
    _, actions = rounds.step(state, Answered(0, keys(1)[0], 1))
    assert [type(a) for a in actions] == [Discard]


def test_a_lost_task_goes_before_those_of_later_slots() -> None:
    state, _ = started(places=1, tasks=3)
    state, _ = rounds.step(state, Lost(0, "signal 9"))
    _, actions = rounds.step(state, Ready(0))
    assert actions == (Assign(0, keys(3)[0], 2),)


def test_a_busy_worker_that_says_it_is_ready_gets_nothing_more() -> None:
    state, _ = started(places=1, tasks=2)
    assert rounds.step(state, Ready(0)) == (state, ())


def test_an_answer_from_an_earlier_round_is_discarded() -> None:
    state, _ = started(places=1, tasks=1)
    state, actions = rounds.step(state, Answered(0, TaskKey(0, "map", 0), 1))
    assert [type(a) for a in actions] == [Discard]


def test_a_task_that_raised_runs_once_more_on_another_worker() -> None:
    state, _ = started(places=2, tasks=1)
    state, actions = rounds.step(state, Raised(0, keys(1)[0], 1, "boom"))
    assert actions == (Assign(1, keys(1)[0], 2),)


def test_a_task_that_raised_on_the_only_worker_runs_once_more_there() -> None:
    state, _ = started(places=1, tasks=1)
    state, actions = rounds.step(state, Raised(0, keys(1)[0], 1, "boom"))
    assert actions == (Assign(0, keys(1)[0], 2),)


def test_a_task_that_raises_twice_ends_the_run_with_its_traceback() -> None:
    state, _ = started(places=2, tasks=1)
    state, _ = rounds.step(state, Raised(0, keys(1)[0], 1, "boom"))
    _, actions = rounds.step(state, Raised(1, keys(1)[0], 2, "boom again"))
    (abort,) = actions
    assert isinstance(abort, Abort)
    assert "slot 0 in round 1 failed twice" in abort.reason
    assert "boom again" in abort.reason


def test_a_task_lost_too_often_ends_the_run() -> None:
    state, _ = started(places=1, tasks=1, max_attempts=2)
    state, _ = rounds.step(state, Lost(0, "signal 9"))
    state, _ = rounds.step(state, Ready(0))
    _, actions = rounds.step(state, Lost(0, "signal 11"))
    (abort,) = actions
    assert isinstance(abort, Abort)
    assert "lost with its worker 2 times" in abort.reason
    assert "signal 11" in abort.reason


def test_a_new_phase_counts_losses_anew() -> None:
    state, _ = started(places=1, tasks=1, max_attempts=2)
    state, _ = rounds.step(state, Lost(0, "signal 9"))
    state, _ = rounds.step(state, Ready(0))
    state, _ = rounds.step(state, Answered(0, keys(1)[0], 2))
    state, actions = rounds.begin(state, keys(1, round=2))
    assert actions == (Assign(0, keys(1, round=2)[0], 1),)


def test_a_new_set_up_goes_to_every_ready_worker_and_none_is_ready_until_it_says_so() -> None:
    state, _ = started(places=2, tasks=0)
    assert state.all_ready
    state, actions = rounds.set_up(state)
    assert actions == (SetUp(0), SetUp(1))
    state, _ = rounds.step(state, Ready(1))
    assert not state.all_ready
    state, actions = rounds.begin(state, keys(2))
    assert actions == (Assign(1, keys(2)[0], 1),)


def test_a_worker_lost_in_a_new_set_up_is_started_again() -> None:
    state, _ = started(places=1, tasks=0)
    state, _ = rounds.set_up(state)
    state, actions = rounds.step(state, Lost(0, "signal 9"))
    assert actions == (Restart(0),)
    state, _ = rounds.step(state, Ready(0))
    assert state.all_ready


def test_a_place_whose_starts_fail_is_closed_and_the_others_go_on() -> None:
    state = State(places=(0, 1), max_attempts=5)
    state, _ = rounds.begin(state, keys(1))
    for _ in range(rounds.FAILED_STARTS - 1):
        state, actions = rounds.step(state, Lost(0, "exit code 1"))
        assert actions == (Restart(0),)
    state, actions = rounds.step(state, Lost(0, "exit code 1"))
    assert actions == ()
    assert state.places == (1,)


def test_a_task_that_waited_for_a_place_that_closes_runs_where_it_raised() -> None:
    """It raised on place 0 and is kept for place 1, which never starts again."""
    state, _ = started(places=2, tasks=1)
    state, _ = rounds.step(state, Lost(1, "signal 9"))
    state, _ = rounds.step(state, Raised(0, keys(1)[0], 1, "boom"))
    for _ in range(rounds.FAILED_STARTS - 1):
        state, actions = rounds.step(state, Lost(1, "exit code 1"))
    assert actions == (Assign(0, keys(1)[0], 2),)


def test_no_place_left_ends_the_run() -> None:
    state = State(places=(0,), max_attempts=5)
    state, _ = rounds.begin(state, keys(1))
    for _ in range(rounds.FAILED_STARTS):
        state, actions = rounds.step(state, Lost(0, "exit code 1"))
    (abort,) = actions
    assert isinstance(abort, Abort)
    assert "no worker starts" in abort.reason


def test_a_place_whose_worker_gets_ready_and_ends_again_and_again_is_closed() -> None:
    """It never had a task that could count as lost too often."""
    state, _ = started(places=2, tasks=0)
    for _ in range(rounds.FAILED_STARTS - 1):
        state, actions = rounds.step(state, Lost(0, "signal 9"))
        assert actions == (Restart(0),)
        state, _ = rounds.step(state, Ready(0))
    state, actions = rounds.step(state, Lost(0, "signal 9"))
    assert actions == ()
    assert state.places == (1,)


def test_a_worker_that_is_given_a_task_makes_up_for_failed_starts() -> None:
    state = State(places=(0,), max_attempts=5)
    state, _ = rounds.begin(state, keys(1))
    for _ in range(rounds.FAILED_STARTS - 1):
        state, _ = rounds.step(state, Lost(0, "exit code 1"))
    state, _ = rounds.step(state, Ready(0))
    state, _ = rounds.step(state, Lost(0, "signal 9"))
    for _ in range(rounds.FAILED_STARTS - 1):
        state, actions = rounds.step(state, Lost(0, "exit code 1"))
        assert actions == (Restart(0),)


def straggling() -> State:
    """Worker 0 has held slot 0 for 21 s, worker 1 answered slots 1 and 2 after 10 s each."""
    state, _ = started(places=2, tasks=3, backup_tasks=True)
    for now, slot in ((10.0, 1), (20.0, 2)):
        state, _ = rounds.step(state, Tick(now))
        state, _ = rounds.step(state, Answered(1, keys(3)[slot], 1))
    state, actions = rounds.step(state, Tick(20.0))
    assert actions == ()  # not yet twice the median
    return state


def test_a_task_that_takes_twice_the_median_gets_a_copy_and_no_third() -> None:
    state, actions = rounds.step(straggling(), Tick(21.0))
    assert actions == (Assign(1, keys(3)[0], 2),)
    _, actions = rounds.step(state, Tick(99.0))
    assert actions == ()


def test_without_backup_tasks_stragglers_are_waited_for() -> None:
    state, actions = rounds.step(replace(straggling(), backup_tasks=False), Tick(99.0))
    assert actions == ()
    assert not state.finished


@pytest.mark.parametrize(("winner", "attempt"), [(0, 1), (1, 2)])
def test_the_first_answer_of_two_copies_counts(winner: int, attempt: int) -> None:
    state, _ = rounds.step(straggling(), Tick(21.0))
    state, actions = rounds.step(state, Answered(winner, keys(3)[0], attempt))
    assert actions == (Accept(winner, keys(3)[0]),)
    assert state.finished
    _, actions = rounds.step(state, Answered(1 - winner, keys(3)[0], 3 - attempt))
    assert [type(a) for a in actions] == [Discard]


def test_a_straggler_answers_into_the_next_phase_and_then_gets_its_task() -> None:
    state, _ = rounds.step(straggling(), Tick(21.0))
    state, _ = rounds.step(state, Answered(1, keys(3)[0], 2))
    state, actions = rounds.begin(state, keys(2, round=2))
    assert actions == (Assign(1, keys(2, round=2)[0], 1),)
    state, actions = rounds.step(state, Answered(0, keys(3)[0], 1))
    assert [type(a) for a in actions] == [Discard, Assign]


def test_a_copy_that_is_lost_leaves_the_other_to_answer() -> None:
    state, _ = rounds.step(straggling(), Tick(21.0))
    state, actions = rounds.step(state, Lost(0, "signal 9"))
    assert actions == (Restart(0),)
    assert state.waiting == ()
    _, actions = rounds.step(state, Lost(1, "signal 9"))
    assert actions == (Restart(1),)


@given(
    places=st.integers(1, 4),
    tasks=st.integers(1, 6),
    chaos=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40),
    copies=st.booleans(),
)
def test_whatever_happens_every_task_is_accepted_once(
    places: int, tasks: int, chaos: list[tuple[int, bool]], copies: bool
) -> None:
    """Losses and answers in any order: no task held too often, none forgotten, each done once."""
    with mock.patch.object(rounds, "FAILED_STARTS", 10**6):
        _chaos(places, tasks, chaos, copies)


def _chaos(places: int, tasks: int, chaos: list[tuple[int, bool]], copies: bool) -> None:
    state, _ = started(places, tasks, max_attempts=10**6, backup_tasks=copies)
    calm = [(place, False) for place in range(places)] * 2 * (tasks + 1)
    accepted: list[TaskKey] = []
    for second, (place, lost) in enumerate(chaos + calm):
        state, _ = rounds.step(state, Tick(float(second)))
        state, actions = rounds.step(state, event(state, place % places, lost))
        accepted += [a.key for a in actions if isinstance(a, Accept)]
        held = Counter(running.key for running in state.running.values())
        assert all(times <= 1 + copies for times in held.values())
        assert set(held).isdisjoint(state.waiting)
    assert sorted(accepted) == keys(tasks)
    assert state.finished


def event(state: State, place: int, lost: bool) -> rounds.Event:
    """An event that can follow: a place that is down gets ready, a busy one answers or is lost."""
    held = state.running.get(place)
    if held is None and place not in state.idle:
        return Ready(place)
    if lost:
        return Lost(place, "signal 9")
    if held is None:
        return Answered(place, TaskKey(0, "map", 0), 1)  # late: from an earlier round
    return Answered(place, held.key, held.attempt)
