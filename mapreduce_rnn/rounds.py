"""Who does what in a round: a pure state machine.

Events go in (a worker is ready, answered, failed, was lost), actions come out (assign a task,
accept or discard an answer, start a worker again, abort). No socket, no clock, no process: the
master performs the actions. The same events give the same actions.

Because a map task is a pure function of its message, it does not matter who runs it or how often:
a task whose worker is lost is assigned again under the next attempt number, and an answer counts
once, whichever attempt it belongs to, as long as its worker still holds that attempt.

So a straggler need not be waited for (Dean and Ghemawat 2004, MapReduce, section 3.6): with backup
tasks an idle worker runs a copy of a task that takes twice the median, and the first answer wins.
The other worker goes on with its copy, into the next phase if need be, and what it sends then is
discarded: no work is ended half-way, and no process has to start anew for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from mapreduce_rnn.protocol.messages import TaskKey

FAILED_STARTS = 3
"""Starts in a row of workers that end before they are given a task: then their place is closed."""

RAISED_TWICE = 2
"""A task is pure: what failed on two workers fails on every one."""

STRAGGLES = 2.0
"""Times the median of a phase's finished tasks, after which a running one gets a copy."""


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
    """A task raised an exception in a worker, or what it answered is malformed."""

    place: int
    key: TaskKey
    attempt: int
    traceback: str


@dataclass(frozen=True)
class Tick:
    """Time has passed; the only event that says which time it is."""

    now: float  # seconds on a clock that never goes back


Event = Ready | Lost | Answered | Raised | Tick


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
    since: float  # when it was given


@dataclass(frozen=True)
class State:
    """All that decides the next action.

    Attributes:
        places: Worker places that are open, in order.
        idle: Ready workers without a task, in order of becoming idle.
        running: The task each busy worker holds.
        waiting: Tasks nobody holds, in slot order.
        open: Tasks of the current phase without an accepted answer.
        starts: How often each task of the phase was given to a worker.
        seconds: How long each answered task of the phase took.
        lost: How often each task was lost with its worker.
        raised: On which places each task raised.
        failed_starts: Starts in a row whose worker ended before it was given a task, by place.
    """

    places: tuple[int, ...]
    max_attempts: int
    backup_tasks: bool = False
    now: float = 0.0
    idle: tuple[int, ...] = ()
    running: Mapping[int, Running] = field(default_factory=dict)
    waiting: tuple[TaskKey, ...] = ()
    open: frozenset[TaskKey] = frozenset()
    starts: Mapping[TaskKey, int] = field(default_factory=dict)
    seconds: tuple[float, ...] = ()
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
        return not self.open


Step = tuple[State, tuple[Action, ...]]


def set_up(state: State) -> Step:
    """Between phases: what all tasks share has changed, so no worker is ready any more.

    There are no stragglers: what comes before a second set-up runs without copies.
    """
    return replace(state, idle=()), tuple(SetUp(place) for place in state.idle)


def begin(state: State, tasks: Iterable[TaskKey]) -> Step:
    """Start a phase: these tasks, all to be done before the next phase begins."""
    tasks = tuple(sorted(tasks))
    return _assign(
        replace(
            state, waiting=tasks, open=frozenset(tasks), starts={}, seconds=(), lost={}, raised={}
        )
    )


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
        case Tick(now):
            return _backups(replace(state, now=now))


def _ready(state: State, event: Ready) -> Step:
    if event.place not in state.places or event.place in state.idle:
        return state, ()
    if event.place in state.running:
        return state, ()
    return _assign(replace(state, idle=(*state.idle, event.place)))


def _answered(state: State, event: Answered) -> Step:
    held = state.running.get(event.place)
    if held is None or (held.key, held.attempt) != (event.key, event.attempt):
        reason = "the worker does not hold this attempt"
        return state, (Discard(event.place, event.key, reason),)
    if event.key not in state.open:
        return _too_late(state, event)
    seconds = (*state.seconds, state.now - held.since)
    state = replace(state, open=state.open - {event.key}, seconds=seconds)
    state = replace(state, waiting=tuple(k for k in state.waiting if k != event.key))
    state, actions = _assign(_free(state, event.place))
    return state, (Accept(event.place, event.key), *actions)


def _too_late(state: State, event: Answered | Raised) -> Step:
    """A copy of a task that another worker has answered: the worker is free, that is all."""
    state, actions = _assign(_free(state, event.place))
    return state, (Discard(event.place, event.key, "another worker was faster"), *actions)


def _raised(state: State, event: Raised) -> Step:
    held = state.running.get(event.place)
    if held is None or (held.key, held.attempt) != (event.key, event.attempt):
        reason = "the worker does not hold this attempt"
        return state, (Discard(event.place, event.key, reason),)
    if event.key not in state.open:
        return _too_late(state, event)
    where = (*state.raised.get(event.key, ()), event.place)
    if len(where) >= RAISED_TWICE:
        between = "\n" if "\n" in event.traceback else " "
        told = f"{describe(event.key)} failed twice, the last time:{between}{event.traceback}"
        return state, (Abort(told),)
    state = replace(state, raised={**state.raised, event.key: where})
    return _assign(_requeue(_free(state, event.place), event.key))


def _lost(state: State, event: Lost) -> Step:
    if event.place not in state.places:
        return state, ()
    held = state.running.get(event.place)
    state = _forget(state, event.place)
    if held is None:  # while it started, or for no reason of ours: it could go on for ever
        return _failed_start(state, event)
    if held.key not in state.open:
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
    """Somebody has to run the task, unless a copy of it is running."""
    if any(running.key == key for running in state.running.values()):
        return state
    return replace(state, waiting=tuple(sorted((*state.waiting, key))))


def _assign(state: State) -> Step:
    """Give waiting tasks to idle workers: lowest slot first, longest idle worker first."""
    actions: list[Action] = []
    for key in state.waiting:
        place = _worker_for(state, key)
        if place is not None:
            state, assigned = _give(state, key, place)
            actions.append(assigned)
    return state, tuple(actions)


def _give(state: State, key: TaskKey, place: int) -> tuple[State, Assign]:
    attempt = state.starts.get(key, 0) + 1
    state = replace(
        _forget(state, place),
        running={**state.running, place: Running(key, attempt, state.now)},
        waiting=tuple(k for k in state.waiting if k != key),
        starts={**state.starts, key: attempt},
        failed_starts={p: times for p, times in state.failed_starts.items() if p != place},
    )
    return state, Assign(place, key, attempt)


def _backups(state: State) -> Step:
    """Copies of stragglers for workers that have nothing else to do, the longest running first."""
    if not (state.backup_tasks and state.seconds and state.idle) or state.waiting:
        return state, ()
    actions: list[Action] = []
    for key in _stragglers(state):
        place = _worker_for(state, key)
        if place is not None:
            state, assigned = _give(state, key, place)
            actions.append(assigned)
    return state, tuple(actions)


def _stragglers(state: State) -> list[TaskKey]:
    """Open tasks that one worker has held for twice the median time, the longest held first."""
    limit = STRAGGLES * median(state.seconds)
    holders = Counter(running.key for running in state.running.values())
    late = [
        running
        for running in state.running.values()
        if running.key in state.open
        and holders[running.key] == 1
        and state.now - running.since > limit
    ]
    return [running.key for running in sorted(late, key=lambda r: (r.since, r.key))]


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
