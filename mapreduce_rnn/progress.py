"""What a run says on the terminal: its start, its rounds, its end.

On a terminal a bar with the time left runs during a round. Into a file, a pipe or a dumb terminal
go plain lines only: no carriage return, no escape code, one line a round. No line is wider than
80 columns, and a reader that goes away early never ends a run.
"""

from __future__ import annotations

import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, TextIO

from tqdm import tqdm

from mapreduce_rnn.config import StopConfig
from mapreduce_rnn.lines import WIDTH, Output, command_lines, item, path_lines
from mapreduce_rnn.text import NOTHING, counted, duration, number, percent, verdict

if TYPE_CHECKING:
    _Tqdm = tqdm[None]
else:
    _Tqdm = tqdm

_RECENT = 5  # rounds whose mean time tells when the run will end
_COLUMNS = "{:>8}  {:>5}  {:>10}  {:>9}  {:>17}  {:>7}  {:>11}"

_HEADER = _COLUMNS.format(
    "round", "epoch", "train loss", "val. loss", "error / constant", "s/round", "time left"
)


@dataclass(frozen=True)
class StartSummary:
    """What is settled before round 1."""

    store: str  # name of the store
    train_sequences: int
    validation_sequences: int
    infeasible: int  # left out: too few frames for their labels
    devices: str  # "2 CPU workers", as the plan words it
    threads: int  # per worker
    slots: int
    model: str  # "bidirectional LSTM, 1 layer of 96 units"
    parameters: int
    buckets: int  # per shard
    expected_padding: float  # fraction of the fed frames
    steps_per_epoch: int  # batches over all slots
    constant_label_error: float | None
    stop: StopConfig
    run_dir: Path | None  # None: a dry run
    resumed_after: int | None = None  # last round of the checkpoint


@dataclass(frozen=True)
class RoundLine:
    """What a round ended with; None: not measured or not finite."""

    epoch: int
    train_loss: float | None
    validation_loss: float | None
    label_error: float | None
    trained: float | None = None  # training seconds so far, where --max-seconds counts them


@dataclass(frozen=True)
class EndSummary:
    """How the run ended; None: there is none."""

    reason: str  # "all 30 epochs done"
    seconds: float  # wall-clock of this session, start-up and validation included
    best_round: int | None
    best_loss: float | None
    best_label_error: float | None
    run_dir: Path
    files: Sequence[str]  # inside the run folder: "model.safetensors (best)", "report.html", ...
    resume: Sequence[str]  # the command that goes on, as an argument list
    simulated: str | None = None  # "2 min on 6 simulated CPU workers"; None: time was real


class Console:
    """The one who speaks for a run. Methods are called in the order start, rounds, end.

    ``stream`` None (a process without standard output) says nothing. ``clock`` gives seconds and
    is read at the begin and end of rounds, for the pace and the time left.
    """

    def __init__(self, stream: TextIO | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = Output(stream)
        self._clock = clock
        self._live = self._out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._bar: _Bar | None = None
        self._constant: float | None = None
        self._max_seconds = float("inf")
        self._begun = self._round_begun = clock()
        self._total: int | None = None
        self._round = self._steps = self._done = 0
        self._pace: list[float] = []  # seconds of the last rounds, without the present one
        self._trained = 0.0  # training seconds, where --max-seconds counts them

    def start(self, summary: StartSummary) -> None:
        """Say what is going to run."""
        self._constant = summary.constant_label_error
        self._max_seconds = summary.stop.max_seconds or float("inf")
        self._say(start_lines(summary))

    def round_begin(self, round: int, total: int | None, steps: int, done: int = 0) -> None:
        """``round`` of ``total`` (None: open end) begins.

        Args:
            steps: Batches of all slots together until the next line: of the round, or of the
                epoch where that takes several rounds.
            done: Those of them that earlier rounds have done.
        """
        now = self._clock()
        if self._round == 0:
            self._say([_HEADER])
        else:
            self._pace = [*self._pace, now - self._round_begun][1 - _RECENT :]
        self._round, self._total, self._steps, self._done = round, total, steps, done
        self._round_begun = now
        if self._live and self._bar is None:
            self._bar = _bar(self._out, self._of_total(), steps)

    def round_progress(self, steps: int) -> None:
        """``steps`` batches are done in this round; fewer than before if a worker was lost."""
        if self._bar is not None:
            self._bar.update(min(self._done + steps, self._steps) - self._bar.n)

    def round_end(self, line: RoundLine) -> None:
        """One line on the round, or on the last of an epoch, in place of the bar."""
        self._close_bar()
        seconds = self._clock() - self._round_begun
        pace = fmean([*self._pace, seconds])
        self._say([_COLUMNS.format(
            self._of_total(), line.epoch, number(line.train_loss), number(line.validation_loss),
            f"{percent(line.label_error)} / {percent(self._constant)}", f"{seconds:.1f}",
            duration(self._time_left(pace, line.trained)),
        )])  # fmt: skip
        self._trained = line.trained or 0.0

    def note(self, text: str) -> None:
        """Say something outside the order: a lost worker, a resumed checkpoint."""
        self._say(item("note", text))

    def end(self, summary: EndSummary) -> None:
        """Say how it ended, how good the model is, where everything lies and how to go on."""
        self._close_bar()
        self._say(end_lines(summary, self._constant))

    def close(self) -> None:
        """Take an unfinished bar off the terminal; for a run that ends without an end."""
        self._close_bar()

    def _of_total(self) -> str:
        return f"{self._round}" if self._total is None else f"{self._round}/{self._total}"

    def _time_left(self, pace: float, trained: float | None) -> float | None:
        if trained is None:
            budget = self._max_seconds - (self._clock() - self._begun)
        else:  # the limit is in training seconds, the answer in real ones
            a_round = trained - self._trained
            budget = (self._max_seconds - trained) / a_round * pace if a_round else math.inf
        if self._total is not None:
            budget = min(budget, (self._total - self._round) * pace)
        return max(0.0, budget)

    def _say(self, lines: Sequence[str]) -> None:
        if self._bar is not None:
            self._bar.clear()
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()
        if self._bar is not None:
            self._bar.refresh()

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def start_lines(summary: StartSummary) -> list[str]:
    """The block that a run begins with: at most 80 columns a line."""
    total = summary.infeasible + summary.train_sequences + summary.validation_sequences
    resumed = f" (resumed after round {summary.resumed_after})" if summary.resumed_after else ""
    return [
        *item("store", f"{summary.store}: {summary.train_sequences:,} training,"
              f" {counted(summary.validation_sequences, 'validation sequence')}"),
        *(item("left out", f"{summary.infeasible:,} of {total:,} sequences: fewer frames than"
               " their labels need") if summary.infeasible else []),
        *item("model", f"{summary.model}, {counted(summary.parameters, 'parameter')}"),
        *item("devices", f"{summary.devices}, {counted(summary.threads, 'thread')} each,"
              f" {counted(summary.slots, 'map task')} per round"),
        *item("buckets", f"{summary.buckets} per shard, {percent(summary.expected_padding)} padding"
              f" expected, {counted(summary.steps_per_epoch, 'batch', 'batches')} per epoch"),
        *item("stop", stop_text(summary.stop) + resumed),
        *(path_lines("run", summary.run_dir) if summary.run_dir else []),
    ]  # fmt: skip


def stop_text(stop: StopConfig) -> str:
    """When the run ends: "after 30 epochs or 300 s"."""
    limits = [
        counted(stop.epochs, "epoch"),
        counted(stop.rounds, "round") if stop.rounds else "",
        duration(stop.max_seconds) if stop.max_seconds else "",
        f"{counted(stop.patience, 'validation')} without a new best" if stop.patience else "",
        f"validation loss {number(stop.target_loss)}" if stop.target_loss is not None else "",
    ]
    return "after " + " or ".join(limit for limit in limits if limit)


def end_lines(summary: EndSummary, constant: float | None) -> list[str]:
    """The block that a run ends with: at most 80 columns a line."""
    best = (
        NOTHING if summary.best_round is None
        else f"round {summary.best_round}: validation loss {number(summary.best_loss)}"
    )  # fmt: skip
    return [
        *item("ended", f"{summary.reason}, {duration(summary.seconds)} in all"),
        *(item("training", summary.simulated) if summary.simulated else []),
        *item("best", best),
        *item("verdict", verdict(summary.best_label_error, constant).text),
        *_where(summary.run_dir),
        *item("files", ", ".join(summary.files)),
        *command_lines("resume", summary.resume),
    ]


def _where(run_dir: Path) -> list[str]:
    """A path that takes several lines stands in the block of the start and in the command."""
    lines = path_lines("run", run_dir)
    return lines if len(lines) == 1 else item("run", "the folder that the command below names")


class _Bar(_Tqdm):
    """tqdm without its monitor thread, which would outlive the run."""

    monitor_interval = 0


_Bar.set_lock(threading.RLock())  # the default makes a semaphore for processes that share a bar


def _bar(out: Output, title: str, steps: int) -> _Bar:
    columns = min(WIDTH, shutil.get_terminal_size().columns) - 1  # the cursor needs one
    layout = "{desc} {percentage:3.0f} % |{bar}| {n_fmt}/{total_fmt} batches, {remaining} left"
    return _Bar(
        desc=f"round {title}", total=steps, file=out, ncols=columns, leave=False, bar_format=layout
    )
