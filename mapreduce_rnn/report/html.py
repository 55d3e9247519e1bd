"""report.html of a run."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import zip_longest
from pathlib import Path

from rapidfuzz.distance import Levenshtein

from mapreduce_rnn.report import parts, tables
from mapreduce_rnn.report.curves import curves
from mapreduce_rnn.report.picture import Picture
from mapreduce_rnn.report.pictures import draw
from mapreduce_rnn.report.run import Example, Run, read_run
from mapreduce_rnn.report.timeline import shares
from mapreduce_rnn.text import counted

_FILES = (
    ("model.safetensors", "the best model"),
    ("checkpoints", "checkpoints, the last one included"),
    ("curves.csv", "the numbers of the curves, a row per round"),
    ("metrics.jsonl", "losses and rates, a line per round"),
    ("events.jsonl", "times, workers, machine"),
    ("config.toml", "every option and the plan"),
    ("master.log", "the master's log"),
    ("figures", "the figures as PNG files"),
)


def write(run_dir: Path) -> Path:
    """Write the report of a run; see :func:`mapreduce_rnn.report.write_report`."""
    run = read_run(run_dir)
    pictures = draw(run)
    tables_ = {"curves.csv": curves([run])}
    return parts.save(run_dir, page(run, pictures), pictures, tables_)


def page(run: Run, pictures: Iterable[Picture]) -> str:
    """The whole page."""
    by_name = {picture.name: picture for picture in pictures}
    sections = (
        parts.verdict(tables.run_verdict(run)),
        parts.problems(run.problems),
        parts.definitions("Summary", tables.summary(run)),
        parts.figure(by_name.get("training")),
        _validations(run),
        parts.figure(by_name.get("timeline")),
        _shares(run),
        _examples(run, by_name.get("examples")),
        parts.figure(by_name.get("buckets")),
        parts.files("Files of the run", run.path, _FILES),
    )
    return parts.skeleton(run.path.absolute().name, "Training report", sections)


def _validations(run: Run) -> str:
    table = tables.validation_table(run)
    if not table.rows:
        return "<h2>Validations</h2>\n<p>No round of this run was validated.</p>"
    best = {n for n, round in enumerate(run.validated) if round == run.best}
    note = "Losses in nats per sequence; the best round is set in bold."
    return f"<h2>Validations</h2>\n{parts.table(table, note, bold=best)}"


def _shares(run: Run) -> str:
    table = tables.shares_table((), [((), shares(run.times))])
    return parts.table(table, tables.SHARES_NOTE) if table.rows else ""


def _examples(run: Run, picture: Picture | None) -> str:
    if not run.examples:
        return ""
    drawn = parts.tiles(picture) if picture else []
    caption = f" {escape(picture.caption)}" if picture else ""
    items = "\n".join(
        _example(number, example, strokes)
        for number, (example, strokes) in enumerate(zip_longest(run.shown, drawn, fillvalue=""), 1)
        if isinstance(example, Example)
    )
    return (
        f"<h2>Examples</h2>\n{parts.drawing(picture) if picture else ''}\n<figure>\n"
        f'<ol class="examples">\n{items}\n</ol>\n'
        f"<figcaption>What differs between reference and output is underlined.{caption}"
        "</figcaption></figure>"
    )


def _example(number: int, example: Example, strokes: str) -> str:
    reference, hypothesis = differing(example.reference, example.hypothesis)
    edits = f"{counted(example.edits, 'edit')} / {counted(len(example.reference), 'label')}"
    return (
        f"<li><strong>{number}</strong> {escape(example.id)}"
        f' <span class="muted">{edits}</span>\n{strokes}<dl class="labels">'
        f"<dt>reference</dt><dd>{_labels(example.reference, reference)}</dd>"
        f"<dt>output</dt><dd>{_labels(example.hypothesis, hypothesis)}</dd></dl></li>"
    )


def differing(
    reference: tuple[str, ...], hypothesis: tuple[str, ...]
) -> tuple[frozenset[int], frozenset[int]]:
    """Positions of a least edit script: in the reference, and in the hypothesis."""
    edits = Levenshtein.editops(reference, hypothesis)
    return (
        frozenset(edit.src_pos for edit in edits if edit.tag != "insert"),
        frozenset(edit.dest_pos for edit in edits if edit.tag != "delete"),
    )


def _labels(labels: tuple[str, ...], marked: frozenset[int]) -> str:
    if not labels:
        return '<span class="muted">nothing</span>'
    return " ".join(
        f"<mark>{escape(label)}</mark>" if i in marked else escape(label)
        for i, label in enumerate(labels)
    )
