"""Who does what in a round: a pure state machine.

Events go in (a worker is ready, answered, failed, was lost), actions come out (assign a task,
accept or discard an answer, start a worker again, abort). No socket, no clock, no process: the
master performs the actions. The same events give the same actions.

Because a map task is a pure function of its message, it does not matter who runs it or how often:
a task whose worker is lost is assigned again under the next attempt number, and an answer counts
once, whichever attempt it belongs to, as long as its worker still holds that attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mapreduce_rnn.protocol.messages import TaskKey

FAILED_STARTS = 3
"""Starts in a row that do not get ready, after which a worker's place is closed."""

RAISED_TWICE = 2
"""A task is pure: what raised on two workers raises on every one."""


# Events


@dataclass(frozen=True)
class Ready:
    """A worker is set up and can take tasks."""

    place: int


@dataclass(frozen=True)
class Lost:
    """A worker's process ended, or it was ended because it was silent."""

    place: int
    reason: str


@dataclass(frozen=True)
class Answered:
    """A worker sent the result of a task."""

    place: int
    key: TaskKey
    attempt: int


@dataclass(frozen=True)
class Raised:
    """A task raised an exception in a worker."""

    place: int
    key: TaskKey
    attempt: int
    traceback: str


Event = Ready | Lost | Answered | Raised


# Actions


@dataclass(frozen=True)
class Assign:
    """Send this task to this worker."""

    place: int
    key: TaskKey
    attempt: int


@dataclass(frozen=True)
class Accept:
    """The answer just received is the one that counts for its task."""

    place: int
    key: TaskKey


@dataclass(frozen=True)
class Discard:
    """The answer just received changes nothing; ``reason`` goes to the log."""

    place: int
    key: TaskKey
    reason: str


@dataclass(frozen=True)
class SetUp:
    """Tell this worker what all tasks share from now on; it will say that it is ready again."""

    place: int


@dataclass(frozen=True)
class Restart:
    """Start a new worker process in this place."""

    place: int


@dataclass(frozen=True)
class Abort:
    """The run cannot go on."""

    reason: str


Action = Assign | Accept | Discard | SetUp | Restart | Abort


# State


@dataclass(frozen=True)
class Running:
    """A task in the hands of a worker."""

    key: TaskKey
    attempt: int


@dataclass(frozen=True)
class State:
    """All that decides the next action.

    Attributes:
        places: Worker places that are open, in order.
        idle: Ready workers without a task, in order of becoming idle.
        running: The task each busy worker holds.
        waiting: Tasks nobody holds, in slot order.
        done: Tasks of the current phase whose answer was accepted.
        lost: How often each task was lost with its worker.
        raised: On which places each task raised.
        failed_starts: Starts in a row that did not get ready, by place.
    """

    places: tuple[int, ...]
    max_attempts: int
    idle: tuple[int, ...] = ()
    running: Mapping[int, Running] = field(default_factory=dict)
    waiting: tuple[TaskKey, ...] = ()
    done: frozenset[TaskKey] = frozenset()
    lost: Mapping[TaskKey, int] = field(default_factory=dict)
    raised: Mapping[TaskKey, tuple[int, ...]] = field(default_factory=dict)
    failed_starts: Mapping[int, int] = field(default_factory=dict)

    @property
    def all_ready(self) -> bool:
        """Whether every open place has a worker that can take tasks."""
        return all(place in self.idle or place in self.running for place in self.places)

    @property
    def finished(self) -> bool:
        """Whether every task of the phase has its answer."""
        return not self.waiting and not self.running


Step = tuple[State, tuple[Action, ...]]


def set_up(state: State) -> Step:
    """Between phases: what all tasks share has changed, so no worker is ready any more."""
    return replace(state, idle=()), tuple(SetUp(place) for place in state.idle)


def begin(state: State, tasks: Iterable[TaskKey]) -> Step:
    """Start a phase: these tasks, all to be done before the next phase begins."""
    fresh = replace(state, waiting=tuple(sorted(tasks)), done=frozenset(), lost={}, raised={})
    return _assign(fresh)


def step(state: State, event: Event) -> Step:
    """The next state and what to do now."""
    match event:
        case Ready():
            return _ready(state, event)
        case Lost():
            return _lost(state, event)
        case Answered():
            return _answered(state, event)
        case Raised():
            return _raised(state, event)


def _ready(state: State, event: Ready) -> Step:
    if event.place not in state.places or event.place in state.idle:
        return state, ()
    if event.place in state.running:
        return state, ()
    starts = {**state.failed_starts, event.place: 0}
    return _assign(replace(state, idle=(*state.idle, event.place), failed_starts=starts))


def _answered(state: State, event: Answered) -> Step:
    reason = _why_late(state, event)
    if reason:
        return state, (Discard(event.place, event.key, reason),)
    state = replace(state, done=state.done | {event.key})
    state, actions = _assign(_free(state, event.place))
    return state, (Accept(event.place, event.key), *actions)


def _why_late(state: State, event: Answered | Raised) -> str | None:
    held = state.running.get(event.place)
    if held == Running(event.key, event.attempt):
        return None
    if event.key in state.done:
        return "the task is already done"
    return "the worker does not hold this attempt"


def _raised(state: State, event: Raised) -> Step:
    reason = _why_late(state, event)
    if reason:
        return state, (Discard(event.place, event.key, reason),)
    where = (*state.raised.get(event.key, ()), event.place)
    if len(where) >= RAISED_TWICE:
        return state, (Abort(f"{describe(event.key)} raised twice:\n{event.traceback}"),)
    state = replace(state, raised={**state.raised, event.key: where})
    return _assign(_requeue(_free(state, event.place), event.key))


def _lost(state: State, event: Lost) -> Step:
    if event.place not in state.places:
        return state, ()
    held = state.running.get(event.place)
    was_ready = held is not None or event.place in state.idle
    state = _forget(state, event.place)
    if not was_ready:
        return _failed_start(state, event)
    if held is None:
        return state, (Restart(event.place),)
    times = state.lost.get(held.key, 0) + 1
    if times >= state.max_attempts:
        told = f"{describe(held.key)} was lost with its worker {times} times"
        return state, (Abort(f"{told}; the last: {event.reason}"),)
    state = replace(state, lost={**state.lost, held.key: times})
    state, actions = _assign(_requeue(state, held.key))
    return state, (Restart(event.place), *actions)


def _failed_start(state: State, event: Lost) -> Step:
    times = state.failed_starts.get(event.place, 0) + 1
    state = replace(state, failed_starts={**state.failed_starts, event.place: times})
    if times < FAILED_STARTS:
        return state, (Restart(event.place),)
    state = replace(state, places=tuple(p for p in state.places if p != event.place))
    if state.places:
        return _assign(state)  # what raised elsewhere may have been waiting for this place
    return state, (
        Abort(
            f"no worker starts; the last of {times} tries (worker {event.place}, see its log): "
            f"{event.reason}"
        ),
    )


def _forget(state: State, place: int) -> State:
    return replace(
        state,
        idle=tuple(p for p in state.idle if p != place),
        running={p: r for p, r in state.running.items() if p != place},
    )


def _free(state: State, place: int) -> State:
    state = _forget(state, place)
    return replace(state, idle=(*state.idle, place))


def _requeue(state: State, key: TaskKey) -> State:
    return replace(state, waiting=tuple(sorted((*state.waiting, key))))


def _assign(state: State) -> Step:
    """Give waiting tasks to idle workers: lowest slot first, longest idle worker first."""
    actions: list[Action] = []
    for key in state.waiting:
        place = _worker_for(state, key)
        if place is None:
            continue
        attempt = 1 + state.lost.get(key, 0) + len(state.raised.get(key, ()))
        state = replace(
            _forget(state, place),
            running={**state.running, place: Running(key, attempt)},
            waiting=tuple(k for k in state.waiting if k != key),
        )
        actions.append(Assign(place, key, attempt))
    return state, tuple(actions)


def _worker_for(state: State, key: TaskKey) -> int | None:
    """An idle worker; not one on which the task raised, unless there is no other place."""
    avoid = state.raised.get(key, ())
    others = [p for p in state.places if p not in avoid]
    return next((p for p in state.idle if not others or p not in avoid), None)


def describe(key: TaskKey) -> str:
    """The task in words, for messages to people."""
    if key.kind == "probe":
        return "the probe of batch times"
    what = {"map": "training", "score": "validation"}[key.kind]
    return f"{what} of slot {key.slot} in round {key.round}"
