"""The workers of a run: processes, messages and the decisions of :mod:`mapreduce_rnn.rounds`.

This is where events become real: a message or the end of a process goes into the state machine,
and what comes out is sent, started or logged.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable

from mapreduce_rnn import rounds
from mapreduce_rnn.answers import misfit
from mapreduce_rnn.config import WorkerConfig
from mapreduce_rnn.errors import TrainingFailed
from mapreduce_rnn.launch.base import Launcher, Unfit
from mapreduce_rnn.liveness import Limits, Pulse, fault, slowest_of
from mapreduce_rnn.protocol.messages import (
    AnyResult,
    AnyTask,
    Heartbeat,
    Hello,
    MapResult,
    Message,
    ProbeResult,
    Ready,
    Refused,
    ScoreResult,
    Setup,
    Stop,
    TaskFailed,
    TaskKey,
)
from mapreduce_rnn.protocol.oddities import Oddities
from mapreduce_rnn.protocol.transport import MasterSocket, share

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1  # how soon the end of a process is noticed; messages are noticed at once
STOP_SECONDS = 2.0  # for workers to end by themselves before they are killed


@dataclasses.dataclass(frozen=True)
class Done:
    """A task's result and where and when it was computed, for the timeline."""

    result: AnyResult
    place: int
    sent: float  # seconds since the phase began
    received: float


class Pool:
    """Runs phases of tasks on worker processes. A context manager; exit stops every worker."""

    def __init__(
        self,
        socket: MasterSocket,
        launcher: Launcher,
        places: Iterable[int],
        *,
        version: str,
        options: WorkerConfig,
        check_signals: Callable[[], None],
        on_worker: Callable[..., None],
    ) -> None:
        self._socket = socket
        self._launcher = launcher
        self._version = version
        self._check_signals = check_signals
        self._on_worker = on_worker
        self._setup: Setup | None = None
        self._greeted: set[str] = set()  # workers whose Hello was answered
        self._oddities = Oddities()
        self._names: dict[int, str] = {}  # place -> the name its current process has on the socket
        self._pulses: dict[int, Pulse] = {}
        self._limits = Limits(options.silence_seconds, options.hang_seconds)
        self._state = rounds.State(
            places=tuple(places),
            max_attempts=options.max_attempts,
            backup_tasks=options.backup_tasks,
        )

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            for name in self._names.values():
                self._socket.send(name, Stop())
        finally:  # also when the socket's thread has failed, or a second signal came
            self._launcher.stop_all(STOP_SECONDS)

    def start(self) -> None:
        """Start the workers, unless that was done. They get ready once :meth:`set_up` is called."""
        for place in self._state.places:
            if place not in self._names:
                self._start(place)

    def set_up(self, setup: Setup) -> None:
        """Tell every worker what all tasks share from now on, and wait until all are ready.

        May be called again between phases: with what a probe measured, say.

        Raises as :meth:`run`.
        """
        phase = _Phase({}, lambda steps: None)
        if self._setup is not None:  # else a late answer to it could be taken for one to the new
            self._wait_until_ready(phase)
        self._setup = setup
        self.start()
        self._state, actions = rounds.set_up(self._state)
        self._perform(actions, phase)
        self._wait_until_ready(phase)

    def _wait_until_ready(self, phase: _Phase) -> None:
        while not self._state.all_ready:
            self._turn(phase)

    def run(self, tasks: Iterable[AnyTask], on_steps: Callable[[int], None]) -> dict[TaskKey, Done]:
        """Run tasks to the end, wherever and however often it takes.

        Args:
            tasks: one phase; each is sent under the attempt number it is given here. Arrays that
                several of them hold are copied once for all.
            on_steps: called with the batches done in all tasks together.

        Raises:
            TrainingFailed: a task raises, is lost too often, or no worker is left.
            Interrupted: through ``check_signals``.
        """
        phase = _Phase({task.key: task for task in share(tasks)}, on_steps)
        self._state, actions = rounds.begin(self._state, phase.tasks)
        self._perform(actions, phase)
        while not self._state.finished:
            self._turn(phase)
        return phase.done

    def _turn(self, phase: _Phase) -> None:
        """Take in what happened, waiting for something to happen only for a moment."""
        self._check_signals()
        for name, message in self._socket.receive(POLL_SECONDS):
            self._handle(name, message, phase)
        for place, reason in self._launcher.poll():
            self._lose(place, reason, phase)
        self._end_silent_and_hung(phase)
        self._event(rounds.Tick(time.monotonic()), phase)

    def _end_silent_and_hung(self, phase: _Phase) -> None:
        """A worker's process is gone for sure before its task is given to another."""
        now, slowest = time.monotonic(), slowest_of(self._pulses.values())
        faults = {
            place: fault(pulse, self._limits, slowest, now, idle=place in self._state.idle)
            for place, pulse in self._pulses.items()
        }
        for place, reason in faults.items():
            if reason is not None:
                self._launcher.stop(place)
                self._lose(place, reason, phase)

    def _handle(self, name: str, message: Message, phase: _Phase) -> None:
        place = next((p for p, n in self._names.items() if n == name), None)
        if place is None:
            self._unknown(name, message, phase)
            return
        now = time.monotonic()
        pulse = self._pulses[place] = self._pulses[place].message(now)
        match message:
            case Hello():  # of a remote worker it comes again until it is answered
                if name not in self._greeted:
                    self._greet(place, name, message)
            case Ready() if place in self._state.idle or place in self._state.running:
                self._odd(name, "ready although it was", "ignored")
            case Ready():
                self._on_worker(place=place, what="ready")
                if message.notes:
                    log.info("worker %d: %s", place, message.notes)
                self._event(rounds.Ready(place), phase)
            case Heartbeat():
                self._pulses[place] = pulse.beat(message.steps, message.slowest, now)
                phase.progress(place, message.steps)
            case MapResult() | ScoreResult() | ProbeResult():
                self._event(self._looked_at(place, name, message, phase), phase)
            case TaskFailed(kind=None) if self._launcher.remote:
                self._refuse(name, "it cannot go on")
                self._launcher.stop(place)
                self._lose(place, message.traceback, phase)
            case TaskFailed(kind=None):
                raise TrainingFailed(f"worker {place} cannot be set up: {message.traceback}")
            case TaskFailed():
                failure = _raised(place, message)
                self._tell(failure)
                self._event(failure, phase)
            case _:
                self._odd(name, f"a {type(message).__name__}", "ignored")

    def _looked_at(
        self, place: int, name: str, answer: AnyResult, phase: _Phase
    ) -> rounds.Answered | rounds.Raised:
        """A malformed answer is a task that raised: it runs once more, elsewhere if it can."""
        task = phase.tasks.get(answer.key)
        wrong = misfit(task, answer) if task is not None else None
        if wrong is not None:
            self._odd(name, "a malformed answer", wrong)
            told = f"the answer of worker {place} is malformed: {wrong}"
            return rounds.Raised(place, answer.key, answer.attempt, told)
        phase.candidate = answer
        return rounds.Answered(place, answer.key, answer.attempt)

    def _tell(self, failure: rounds.Raised) -> None:
        """What a task raised, also where the run goes on; a peer can only fail what it holds."""
        held = self._state.running.get(failure.place)
        if held is not None and (held.key, held.attempt) == (failure.key, failure.attempt):
            told = rounds.describe(failure.key)
            log.warning("%s raised on worker %d:\n%s", told, failure.place, failure.traceback)

    def _odd(self, name: str, kind: str, told: str) -> None:
        """Log what a worker should not have sent, once per worker and kind."""
        who = self._oddities.add(name, kind)
        if who is not None:
            log.warning("from worker %s: %s: %s; more like it are only counted", who, kind, told)

    def _unknown(self, name: str, message: Message, phase: _Phase) -> None:
        """A worker that came by itself, or what one that was given up still sends."""
        if isinstance(message, Hello):
            self._admit(name, message, phase)
            return
        if isinstance(message, AnyResult):
            told = f"discarded its answer to {rounds.describe(message.key)}"
            self._odd(name, "it was given up", told)
        elif not self._launcher.remote:
            self._odd(name, f"a {type(message).__name__}", "it is gone: ignored")
        if self._launcher.remote:
            self._refuse(name, "it was given up, silent or hung: start it again")

    def _admit(self, name: str, hello: Hello, phase: _Phase) -> None:
        """Without a place for it a worker stays connected and asks again."""
        try:
            place = self._launcher.admit(hello)
        except Unfit as unfit:
            self._refuse(name, str(unfit))
            return
        if place is not None:
            self._seat(place, name)
            self._handle(name, hello, phase)
        elif (who := self._oddities.add(name, "without a place")) is not None:
            log.info("worker %s has no place: it waits for one", who)

    def _refuse(self, name: str, reason: str) -> None:
        self._socket.send(name, Refused(reason))
        if (who := self._oddities.add(name, "refused")) is not None:
            log.warning("worker %s is refused: %s", who, reason)
            self._on_worker(what="refused", name=who, reason=reason)

    def _event(self, event: rounds.Event, phase: _Phase) -> None:
        self._state, actions = rounds.step(self._state, event)
        self._perform(actions, phase)

    def _perform(self, actions: Iterable[rounds.Action], phase: _Phase) -> None:
        for action in actions:
            match action:
                case rounds.Assign():
                    self._assign(action, phase)
                case rounds.Accept(place, key):
                    phase.accept(place, key)
                case rounds.Discard(place, key, reason):
                    self._odd(
                        self._names[place],
                        reason,
                        f"discarded its answer to {rounds.describe(key)}",
                    )
                case rounds.SetUp(place):
                    self._tell_setup(self._names[place])
                case rounds.Restart(place):
                    self._start(place)
                case rounds.Abort(reason):
                    raise TrainingFailed(reason)

    def _assign(self, action: rounds.Assign, phase: _Phase) -> None:
        """Send a task. A worker that just went is noticed by its process's end, not here."""
        task = dataclasses.replace(phase.tasks[action.key], attempt=action.attempt)
        phase.assigned(action.place, action.key)
        self._pulses[action.place] = self._pulses[action.place].busy(time.monotonic())
        if action.attempt > 1:
            log.info("%s: attempt %d", rounds.describe(action.key), action.attempt)
        self._socket.send(self._names[action.place], task)

    def _start(self, place: int) -> None:
        name = self._launcher.start(place)
        if name is not None:
            self._seat(place, name)

    def _seat(self, place: int, name: str) -> None:
        self._names[place] = name
        self._pulses[place] = Pulse(moved=time.monotonic())

    def _lose(self, place: int, reason: str, phase: _Phase) -> None:
        log.warning("worker %d is gone: %s", place, reason)
        self._on_worker(place=place, what="lost", reason=reason)
        self._greeted.discard(self._names.pop(place, ""))  # a place may be awaited in vain
        self._pulses.pop(place, None)
        self._event(rounds.Lost(place, reason), phase)

    def _greet(self, place: int, name: str, hello: Hello) -> None:
        if hello.version != self._version:
            raise TrainingFailed(
                f"worker {place} runs mapreduce_rnn {hello.version}, the master {self._version}: "
                "install one version"
            )
        self._greeted.add(name)
        self._tell_setup(name)
        self._on_worker(place=place, what="started", name=name, pid=hello.pid, device=hello.device)

    def _tell_setup(self, name: str) -> None:
        assert self._setup is not None
        self._socket.send(name, self._setup)
        place = next(p for p, n in self._names.items() if n == name)
        self._pulses[place] = self._pulses[place].busy(time.monotonic())


def _raised(place: int, message: TaskFailed) -> rounds.Raised:
    assert message.kind is not None
    key = TaskKey(message.round, message.kind, message.slot)
    return rounds.Raised(place, key, message.attempt, message.traceback)


class _Phase:
    """The tasks of one phase, their results so far, and how far the running ones are."""

    def __init__(self, tasks: dict[TaskKey, AnyTask], on_steps: Callable[[int], None]) -> None:
        self.tasks = tasks
        self.done: dict[TaskKey, Done] = {}
        self.candidate: AnyResult | None = None
        self._on_steps = on_steps
        self._began = time.monotonic()
        self._held: dict[int, tuple[TaskKey, float]] = {}
        self._steps: dict[TaskKey, int] = {}

    def assigned(self, place: int, key: TaskKey) -> None:
        self._held[place] = (key, time.monotonic() - self._began)
        self._steps[key] = 0

    def progress(self, place: int, steps: int) -> None:
        if place in self._held:
            self._steps[self._held[place][0]] = steps
            self._on_steps(sum(self._steps.values()))

    def accept(self, place: int, key: TaskKey) -> None:
        assert self.candidate is not None
        _, sent = self._held.pop(place)
        self.done[key] = Done(self.candidate, place, sent, time.monotonic() - self._began)
        if isinstance(self.candidate, MapResult):
            self._steps[key] = self.candidate.statistics["steps"]
            self._on_steps(sum(self._steps.values()))
