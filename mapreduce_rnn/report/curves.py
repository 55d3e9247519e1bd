"""curves.csv: the numbers behind the curves of a report, a row per round and run."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence

from mapreduce_rnn.report.run import Round, Run
from mapreduce_rnn.report.setting import setting_of

Value = str | int | float | None

COLUMNS = (
    "count", "kind", "buckets", "seed", "simulated", "round", "epoch", "seconds",
    "train_loss", "validation_loss", "label_error", "learning_rate",
)  # fmt: skip
"""``seconds`` is training time, simulated where ``simulated`` says yes; losses are nats."""


def curves(runs: Iterable[Run]) -> bytes:
    """The file for some runs, in their order."""
    return table_file(COLUMNS, (row for run in runs for row in _rows(run)))


def table_file(header: Sequence[str], rows: Iterable[Sequence[Value]]) -> bytes:
    """A CSV file; what is missing or not finite is empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return file.getvalue().encode()


def yes_no(value: bool) -> str:
    """A truth value as a CSV cell."""
    return "yes" if value else "no"


def _cell(value: Value) -> Value:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rows(run: Run) -> Iterator[Sequence[Value]]:
    setting, seed = setting_of(run)
    told: tuple[Value, ...] = (
        (setting.count, setting.kind, setting.buckets) if setting else (None, None, None)
    )
    simulated = yes_no(run.simulated is not None)
    return ((*told, seed, simulated, *_numbers(round)) for round in run.rounds)


def _numbers(round: Round) -> tuple[Value, ...]:
    validation = round.validation
    return (
        round.number,
        round.epoch,
        round.elapsed,
        round.train_loss,
        validation.loss if validation else None,
        validation.label_error if validation else None,
        round.learning_rate,
    )
