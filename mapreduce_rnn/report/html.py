"""report.html: one file that needs no other and no network."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import zip_longest
from pathlib import Path

from rapidfuzz.distance import Levenshtein

from mapreduce_rnn.ondisk import write_whole
from mapreduce_rnn.report import tables
from mapreduce_rnn.report.pictures import Picture, draw
from mapreduce_rnn.report.run import Example, Run, read_run
from mapreduce_rnn.report.style import style_sheet
from mapreduce_rnn.text import counted

_LONG_TABLE = 40  # rows from which a table scrolls by itself
_VERDICT_CLASS = {True: "better", False: "worse", None: "unknown"}
_FILES = (
    ("model.safetensors", "the best model"),
    ("checkpoints", "checkpoints, the last one included"),
    ("metrics.jsonl", "losses and rates, a line per round"),
    ("events.jsonl", "times, workers, machine"),
    ("config.toml", "every option and the plan"),
    ("master.log", "the master's log"),
    ("figures", "the figures as PNG files"),
)


def write(run_dir: Path) -> Path:
    """See :func:`mapreduce_rnn.report.write_report`."""
    run = read_run(run_dir)
    pictures = draw(run)
    (run_dir / "figures").mkdir(exist_ok=True)
    for picture in pictures:
        write_whole(run_dir / "figures" / f"{picture.name}.png", picture.png)
    path = run_dir / "report.html"
    write_whole(path, page(run, pictures).encode("utf-8", "replace"))
    return path


def page(run: Run, pictures: Iterable[Picture]) -> str:
    """The whole page."""
    name = escape(run.path.absolute().name)
    by_name = {picture.name: picture for picture in pictures}
    sections = (
        _verdict(run),
        _problems(run),
        _summary(run),
        _figure(by_name.get("training")),
        _table(run),
        _examples(run, by_name.get("examples")),
        _figure(by_name.get("buckets")),
        _files(run),
    )
    body = "\n".join(section for section in sections if section)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{name}: training report</title>\n'
        f"<style>\n{style_sheet()}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{name}</h1>\n<p class="muted">Training report</p>\n{body}\n'
        "</main>\n</body>\n</html>\n"
    )


def _verdict(run: Run) -> str:
    verdict = tables.run_verdict(run)
    text = _text(verdict.text[0].upper() + verdict.text[1:])
    return f'<p class="verdict {_VERDICT_CLASS[verdict.better]}">{text}.</p>'


def _problems(run: Run) -> str:
    if not run.problems:
        return ""
    lines = "".join(f"<li>{escape(problem)}</li>" for problem in run.problems)
    return f'<div class="problems">What this report lacks:<ul>{lines}</ul></div>'


def _summary(run: Run) -> str:
    return f"<h2>Summary</h2>\n{_definitions(tables.summary(run))}"


def _definitions(pairs: Iterable[tuple[str, str]]) -> str:
    items = "\n".join(f"<dt>{escape(name)}</dt><dd>{_text(text)}</dd>" for name, text in pairs)
    return f"<dl>\n{items}\n</dl>"


def _text(text: str) -> str:
    """Escaped, and no line ends between a number and its percent sign."""
    return escape(text).replace(" %", "&nbsp;%")


def _figure(picture: Picture | None) -> str:
    if picture is None:
        return ""
    caption = escape(picture.caption)
    panels = "\n".join(_tiles(picture))
    return (
        f"<h2>{picture.title}</h2>\n{_drawing(picture)}\n"
        f'<figure class="panels" role="img" aria-label="{caption}">\n{panels}\n'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _drawing(picture: Picture) -> str:
    """What the tiles are cut from; by itself it shows nothing."""
    return (
        '<svg class="source" width="0" height="0" aria-hidden="true"><defs>'
        f'<g id="{picture.name}">{picture.svg}</g></defs></svg>'
    )


def _tiles(picture: Picture) -> list[str]:
    """A window on each part of the drawing; a page arranges them as its width allows."""
    return [
        f'<svg viewBox="{_points(tile.left, tile.top, tile.width, tile.height)}"'
        f' width="{_points(tile.width)}" height="{_points(tile.height)}" aria-hidden="true">'
        f'<use href="#{picture.name}"/></svg>'
        for tile in picture.tiles
    ]


def _points(*inches: float) -> str:
    return " ".join(f"{72 * length:.4g}" for length in inches)


def _table(run: Run) -> str:
    table = tables.validation_table(run)
    if not table.rows:
        return "<h2>Validations</h2>\n<p>No round of this run was validated.</p>"
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    best = str(run.best.number) if run.best else ""
    scroll = "scroll long" if len(table.rows) > _LONG_TABLE else "scroll"
    rows = "\n".join(_row(row, best=row[1] == best) for row in table.rows)
    return (
        '<h2>Validations</h2>\n<p class="muted">Losses in nats per sequence; the best round is'
        f' set in bold.</p>\n<div class="{scroll}" tabindex="0"><table>\n<thead><tr>{head}</tr>'
        f"</thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _row(cells: tuple[str, ...], best: bool) -> str:
    kind = ' class="best"' if best else ""
    return f"<tr{kind}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _examples(run: Run, picture: Picture | None) -> str:
    if not run.examples:
        return ""
    drawn = _tiles(picture) if picture else []
    caption = f" {escape(picture.caption)}" if picture else ""
    items = "\n".join(
        _example(number, example, strokes)
        for number, (example, strokes) in enumerate(zip_longest(run.shown, drawn, fillvalue=""), 1)
        if isinstance(example, Example)
    )
    return (
        f"<h2>Examples</h2>\n{_drawing(picture) if picture else ''}\n<figure>\n"
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


def _files(run: Run) -> str:
    items = "\n".join(
        f'<dt><a href="{name}">{name}</a></dt><dd>{what}</dd>'
        for name, what in _FILES
        if (run.path / name).exists()
    )
    return f"<h2>Files of the run</h2>\n<dl>\n{items}\n</dl>"
