"""Reads a run folder, whole, unfinished or broken, into one frozen dataclass."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.report.fields import (
    Record,
    integer,
    last,
    of_kind,
    real,
    records,
    section,
    text,
    words,
)
from mapreduce_rnn.report.roundtimes import RoundTimes, round_times
from mapreduce_rnn.runlog import loads, read_lines

_MAX_EXAMPLES = 6


@dataclass(frozen=True)
class Validation:
    """Scores on the validation sequences; NaN where the run has no number."""

    loss: float  # mean CTC loss per sequence, nats
    label_error: float  # edits / reference labels, 1.0 is 100 %


@dataclass(frozen=True)
class Round:
    """One round; NaN where the run has no number."""

    number: int
    epoch: float  # epochs done, with the part of the last one
    elapsed: float  # training seconds since round 1 began, simulated ones where the run is
    train_loss: float  # mean CTC loss per sequence, nats
    learning_rate: float
    validation: Validation | None  # None: this round was not validated
    rejected: int  # contributions left out of the mean
    skipped_steps: int  # batches whose gradient was not finite
    times: RoundTimes | None = None  # None: events.jsonl has none of this round


@dataclass(frozen=True)
class Example:
    """A validation sequence with what the best model makes of it."""

    id: str
    reference: tuple[str, ...]
    hypothesis: tuple[str, ...]
    edits: int
    points: tuple[tuple[float, float, bool], ...]  # x, y (upward), begins after a jump


@dataclass(frozen=True)
class Plan:
    """What was settled before round 1; None or empty where config.toml doesn't say."""

    slots: int | None = None
    threads: int | None = None
    kernel: str | None = None
    parameters: int | None = None
    train_sequences: int | None = None
    validation_sequences: int | None = None
    infeasible: int | None = None
    boundaries: tuple[int, ...] = ()
    planned_cost: tuple[float, ...] = ()  # of an epoch of slot 0 with 1, 2, .. buckets
    bucket_choice: str | None = None  # why so many buckets; None: their number was given
    expected_padding: float = math.nan
    constant_label_error: float = math.nan
    steps_per_epoch: int | None = None
    device: str | None = None  # "cpu" or "cuda"
    attribution: str = ""


@dataclass(frozen=True)
class Run:
    """Everything that a report tells."""

    path: Path
    config: Record = field(default_factory=dict)
    plan: Plan = field(default_factory=Plan)
    start: Record = field(default_factory=dict)  # the last start event
    end: Record | None = None  # None: still going, or killed
    resumed: tuple[int, ...] = ()  # rounds after which it went on
    rounds: tuple[Round, ...] = ()
    examples: tuple[Example, ...] = ()
    attribution: str = ""  # of the data; belongs under every picture of it
    faults: tuple[str, ...] = ()  # what is missing or damaged of its course, a line each
    examples_fault: str | None = None  # the same of its examples

    @property
    def problems(self) -> tuple[str, ...]:
        """What a report lacks, a line each."""
        return self.faults if self.examples_fault is None else (*self.faults, self.examples_fault)

    @property
    def simulated(self) -> int | None:
        """The number of devices whose time was simulated; None: the time was measured."""
        return integer(self.start.get("simulated_devices"))

    @property
    def times(self) -> tuple[RoundTimes, ...]:
        """Of the rounds that have any."""
        return tuple(round.times for round in self.rounds if round.times is not None)

    @property
    def validated(self) -> tuple[Round, ...]:
        return tuple(r for r in self.rounds if r.validation is not None)

    @property
    def best(self) -> Round | None:
        """The round of lowest validation loss; ties keep the earlier, NaN never is."""
        scored = [r for r in self.validated if r.validation and not math.isnan(r.validation.loss)]
        return min(scored, key=lambda r: r.validation.loss if r.validation else 0.0, default=None)

    @property
    def shown(self) -> tuple[Example, ...]:
        """The examples of a report, those with strokes first: figure and page number alike."""
        return tuple(sorted(self.examples, key=lambda e: not e.points)[:_MAX_EXAMPLES])

    @property
    def drawn(self) -> tuple[Example, ...]:
        """Those of ``shown`` that have strokes."""
        return tuple(example for example in self.shown if example.points)


def is_run(path: Path) -> bool:
    """Whether a folder holds any of the files that a report of a run begins with."""
    return any((path / name).is_file() for name in ("config.toml", "metrics.jsonl"))


def read_run(path: Path) -> Run:
    """Read a run folder. What is missing or damaged is named in ``problems``.

    Raises:
        UsageError: the folder isn't there, or holds none of a run's files.
    """
    if not is_run(path):
        what = "a folder without config.toml and metrics.jsonl" if path.is_dir() else "no folder"
        raise UsageError(f"{path}: expected the folder of a run, got {what}; give the --run-dir")
    config, config_problem = _config(path / "config.toml")
    metrics, events = read_lines(path / "metrics.jsonl"), read_lines(path / "events.jsonl")
    examples, examples_problem = _examples(path / "examples.json")
    plan = _plan(config)
    end, end_problem = _end(events.records)
    faults = (config_problem, metrics.problem, events.problem, end_problem)
    return Run(
        path=path,
        config=config,
        plan=plan,
        start=last(events.records, "start"),
        end=end,
        resumed=tuple(integer(e.get("round")) or 0 for e in of_kind(events.records, "resume")),
        rounds=_rounds(metrics.records, events.records),
        examples=tuple(_example(item) for item in records(examples.get("items"))),
        attribution=str(examples.get("attribution") or plan.attribution),
        faults=tuple(fault for fault in faults if fault),
        examples_fault=examples_problem,
    )


def _config(path: Path) -> tuple[Record, str | None]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")), None
    except FileNotFoundError:
        return {}, f"{path.name} is missing: options and plan can't be shown"
    except ValueError as error:
        return {}, f"{path.name} is damaged ({error}): options and plan can't be shown"


def _examples(path: Path) -> tuple[Record, str | None]:
    try:
        examples = loads(path.read_bytes())
    except FileNotFoundError:
        return {}, f"{path.name} is missing: it is written when a run ends"
    except ValueError:
        examples = None
    if isinstance(examples, dict):
        return examples, None
    return {}, f"{path.name} is damaged: no examples can be shown"


def _plan(config: Record) -> Plan:
    plan = section(config, "plan")
    boundaries = plan.get("boundaries")
    return Plan(
        **{name: integer(plan.get(name)) for name in (
            "slots", "threads", "parameters", "train_sequences", "validation_sequences",
            "infeasible", "steps_per_epoch",
        )},
        kernel=text(plan.get("kernel")),
        device=text(plan.get("device")),
        boundaries=tuple(b for b in boundaries if integer(b)) if isinstance(boundaries, list)
        else (),
        planned_cost=_costs(plan.get("planned_cost")),
        bucket_choice=text(plan.get("bucket_choice")),
        expected_padding=real(plan.get("expected_padding")),
        constant_label_error=real(plan.get("constant_label_error")),
        attribution=str(plan.get("attribution") or ""),
    )  # fmt: skip


def _costs(value: Any) -> tuple[float, ...]:
    """All of them, or none if one can't be drawn."""
    costs = tuple(map(real, value)) if isinstance(value, list) else ()
    return costs if all(0 < cost < math.inf for cost in costs) else ()


def _rounds(metrics: Iterable[Record], events: Iterable[Record]) -> tuple[Round, ...]:
    times = round_times(events)
    return tuple(_round(record, times.get(integer(record.get("round")) or 0)) for record in metrics)


def _round(record: Record, times: RoundTimes | None) -> Round:
    rejected = record.get("rejected")
    return Round(
        number=integer(record.get("round")) or 0,
        epoch=real(record.get("epochs_done")),
        elapsed=times.elapsed if times else math.nan,
        train_loss=real(record.get("train_loss")),
        learning_rate=real(record.get("learning_rate")),
        validation=_validation(record.get("validation")),
        rejected=len(rejected) if isinstance(rejected, list) else 0,
        skipped_steps=integer(record.get("skipped_steps")) or 0,
        times=times,
    )


def _validation(record: Any) -> Validation | None:
    if not isinstance(record, dict):
        return None
    return Validation(real(record.get("loss")), real(record.get("label_error")))


def _example(item: Record) -> Example:
    points = item.get("points")
    return Example(
        id=str(item.get("id", "")),
        reference=words(item.get("reference")),
        hypothesis=words(item.get("hypothesis")),
        edits=integer(item.get("edits")) or 0,
        points=tuple(
            (real(p[0]), real(p[1]), bool(p[2]))
            for p in (points if isinstance(points, list) else ())
            if isinstance(p, list) and len(p) == 3
        ),
    )


def _end(events: tuple[Record, ...]) -> tuple[Record | None, str | None]:
    session = [e for e in events if e.get("event") in ("start", "resume", "end")]
    if session and session[-1].get("event") == "end":
        return session[-1], None
    return None, "the run has not ended: it is still going, or it was killed"
