"""The report's tables and its verdict, as text cells."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mapreduce_rnn.report.fields import section
from mapreduce_rnn.report.run import Round, Run
from mapreduce_rnn.report.timeline import KINDS
from mapreduce_rnn.text import (
    NOTHING,
    Verdict,
    counted,
    duration,
    network,
    number,
    percent,
    verdict,
)

CPU_NOTE = "CPU figures, not GPU figures"
SHARES_NOTE = (
    "Shares of the devices' time over all rounds, validation included; they add up to 100 %."
)


@dataclass(frozen=True)
class Table:
    """Rows of text cells under a header; in a cell, what follows a line end is a detail."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 0  # columns from the left that say what a row is of


def shares_table(
    header: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], Mapping[str, float]]]
) -> Table:
    """Parts of the devices' time, each row after cells of its own; empty shares give no row.

    Args:
        header: of the cells before the shares.
        rows: those cells, and :func:`mapreduce_rnn.report.timeline.shares`.
    """
    told = ((*cells, *map(percent, parts.values())) for cells, parts in rows if parts)
    return Table((*header, *KINDS), tuple(told), names=len(header))


def validation_table(run: Run) -> Table:
    """One row per validation, a missing number as "-"."""
    simulated = "training " if run.simulated is None else "simulated "
    header = (
        "epoch", "round", f"{simulated}time (min:s)", "train loss", "val. loss", "label error",
        "learning rate",
    )  # fmt: skip
    return Table(header, tuple(_row(round) for round in run.validated))


def _row(at: Round) -> tuple[str, ...]:
    validation = at.validation
    return (
        NOTHING if math.isnan(at.epoch) else f"{at.epoch:.4g}",
        f"{at.number}",
        _clock(at.elapsed),
        number(at.train_loss),
        number(validation.loss if validation else None),
        percent(validation.label_error if validation else None),
        NOTHING if math.isnan(at.learning_rate) else f"{at.learning_rate:.2g}",
    )


def _clock(seconds: float) -> str:
    if math.isnan(seconds):
        return NOTHING
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def run_verdict(run: Run) -> Verdict:
    """The best model's label error beside that of the best constant output."""
    best = run.best
    error = best.validation.label_error if best and best.validation else None
    return verdict(error, run.plan.constant_label_error)


def summary(run: Run) -> tuple[tuple[str, str], ...]:
    """What ran, on what, and how it ended: pairs of a name and a text, unknown ones left out."""
    pairs = (
        ("State", _state(run)),
        ("Best round", _scores(run.best)),
        ("Last round", _scores(run.rounds[-1] if run.rounds else None)),
        ("Training time", _time(run)),
        ("Store", _store(run)),
        ("Model", _model(run)),
        ("Workers", _workers(run)),
        ("Reduce", _reduce(run)),
        ("Machine", machine(run.start)),
        ("Software", software(run.start)),
        ("Left out", _left_out(run)),
        ("Command", _command(run.start.get("command"))),
    )
    return tuple((name, text) for name, text in pairs if text)


def _state(run: Run) -> str:
    resumed = "".join(f"; resumed after round {n}" for n in run.resumed)
    if run.end is None:
        return f"not ended: still going, or killed{resumed}"
    return f"ended: {run.end.get('reason', 'no reason given')}{resumed}"


def _scores(round: Round | None) -> str:
    if round is None:
        return ""
    if round.validation is None:
        return f"{round.number}: train loss {number(round.train_loss)}, not validated"
    loss, error = round.validation.loss, round.validation.label_error
    return f"{round.number}: validation loss {number(loss)}, label error {percent(error)}"


def _time(run: Run) -> str:
    if not run.rounds:
        return ""
    seconds = run.end.get("seconds") if run.end else None
    simulated = "" if run.simulated is None else ", simulated"
    total = f"; {duration(seconds)} with start-up and validation" if _is_number(seconds) else ""
    rounds = counted(len(run.rounds), "round")
    return f"{duration(run.rounds[-1].elapsed)} in {rounds}{simulated}{total}"


def _store(run: Run) -> str:
    plan, store = run.plan, section(run.config, "store")
    sequences = _listed(
        f"{plan.train_sequences:,} training" if plan.train_sequences is not None else "",
        counted(plan.validation_sequences, "validation sequence")
        if plan.validation_sequences is not None else "",
        f"{plan.infeasible:,} left out, too short for their labels" if plan.infeasible else "",
    )  # fmt: skip
    return ": ".join(text for text in (str(store.get("path", "")), sequences) if text)


def _model(run: Run) -> str:
    model, plan = section(run.config, "model"), run.plan
    layers, units = model.get("layers"), model.get("units")
    bidirectional = model.get("bidirectional", True)  # older runs had no other kind
    return _listed(
        network(layers, units, bidirectional=bool(bidirectional))
        if isinstance(layers, int) and isinstance(units, int) else "",
        counted(plan.parameters, "parameter") if plan.parameters is not None else "",
        f"{plan.kernel} kernel" if plan.kernel else "",
    )  # fmt: skip


def _workers(run: Run) -> str:
    plan, workers = run.plan, run.start.get("workers")
    kind = {"cpu": "CPU ", "cuda": "GPU "}.get(plan.device or "", "")
    text = _listed(
        counted(workers, f"{kind}worker") if isinstance(workers, int) else "",
        f"{counted(plan.threads, 'thread')} each" if plan.threads is not None else "",
        f"{counted(plan.slots, 'map task')} per round" if plan.slots is not None else "",
        "" if run.simulated is None else f"for {run.simulated} simulated",
    )
    return f"{text} ({CPU_NOTE})" if plan.device == "cpu" else text


def _reduce(run: Run) -> str:
    options = section(run.config, "mapreduce")
    chosen, epochs = options.get("reduce_option"), options.get("local_epochs")
    period = ""
    if isinstance(options.get("sync_steps"), int):
        period = f"every {counted(options['sync_steps'], 'batch', 'batches')} of each slot"
    elif isinstance(epochs, int) and "reduce" in options:
        period = "every epoch" if epochs == 1 else f"every {epochs} epochs"
    return _listed(
        str(options.get("reduce", "")),
        *(map(str, chosen) if isinstance(chosen, list) else ()),
        period,
    )


def machine(start: Mapping[str, Any]) -> str:
    """Host, CPU and GPUs of a start event."""
    devices = start.get("devices")
    gpus = [str(d) for d in devices if d != "cpu"] if isinstance(devices, list) else []
    return _listed(str(start.get("host", "")), str(start.get("cpu", "")), *dict.fromkeys(gpus))


def software(start: Mapping[str, Any]) -> str:
    """Versions in a start event."""
    return _listed(*(f"{k}\N{NO-BREAK SPACE}{v}" for k, v in section(start, "versions").items()))


def _command(command: Any) -> str:
    return shlex.join(map(str, command)) if isinstance(command, list) else str(command or "")


def _left_out(run: Run) -> str:
    rejected = sum(round.rejected for round in run.rounds)
    skipped = sum(round.skipped_steps for round in run.rounds)
    return _listed(
        f"{counted(rejected, 'contribution')} with numbers that are not finite" if rejected else "",
        f"{counted(skipped, 'batch', 'batches')} with such a gradient" if skipped else "",
    )


def _listed(*texts: str) -> str:
    return ", ".join(text for text in texts if text)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
