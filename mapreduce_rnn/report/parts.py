"""The parts of a page: skeleton, verdict, lists, tables and pictures, and the files beside it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from mapreduce_rnn.ondisk import write_whole
from mapreduce_rnn.report.picture import Picture
from mapreduce_rnn.report.style import style_sheet
from mapreduce_rnn.report.tables import Table
from mapreduce_rnn.text import Verdict

_LONG_TABLE = 40  # rows from which a table scrolls by itself
_NAME = ' class="name"'
_VERDICT_CLASS = {True: "better", False: "worse", None: "unknown"}


def save(folder: Path, page: str, pictures: Iterable[Picture], tables: Mapping[str, bytes]) -> Path:
    """Write report.html, figures/*.png and the files of ``tables``; returns the page's path.

    Raises:
        OSError: one of them can't be written.
    """
    (folder / "figures").mkdir(exist_ok=True)
    for picture in pictures:
        write_whole(folder / "figures" / f"{picture.name}.png", picture.png)
    for name, content in tables.items():
        write_whole(folder / name, content)
    path = folder / "report.html"
    write_whole(path, page.encode("utf-8", "replace"))
    return path


def skeleton(name: str, kind: str, sections: Iterable[str]) -> str:
    """The whole page: one file that needs no other and no network.

    Args:
        name: What the report is of.
        kind: "Training report", say.
        sections: HTML; empty ones are left out.
    """
    title, body = escape(name), "\n".join(section for section in sections if section)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{title}: {kind.lower()}</title>\n'
        f"<style>\n{style_sheet()}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{title}</h1>\n<p class="muted">{kind}</p>\n{body}\n'
        "</main>\n</body>\n</html>\n"
    )


def verdict(said: Verdict) -> str:
    """The one sentence that matters most."""
    words = text(said.text[0].upper() + said.text[1:])
    return f'<p class="verdict {_VERDICT_CLASS[said.better]}">{words}.</p>'


def problems(lines: Iterable[str]) -> str:
    """What the report lacks; nothing if it lacks nothing."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<div class="problems">What this report lacks:<ul>{items}</ul></div>' if items else ""


def definitions(title: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they mean, under a heading."""
    items = "\n".join(f"<dt>{escape(name)}</dt><dd>{text(value)}</dd>" for name, value in pairs)
    return f"<h2>{escape(title)}</h2>\n<dl>\n{items}\n</dl>"


def files(title: str, folder: Path, known: Iterable[tuple[str, str]]) -> str:
    """Links to those files that are there, with what they hold."""
    items = "\n".join(
        f'<dt><a href="{escape(name)}">{escape(name)}</a></dt><dd>{escape(what)}</dd>'
        for name, what in known
        if (folder / name).exists()
    )
    return f"<h2>{escape(title)}</h2>\n<dl>\n{items}\n</dl>"


def text(words: str) -> str:
    """Escaped, and no line ends between a number and its percent sign."""
    return escape(words).replace(" %", "&nbsp;%")


def table(content: Table, note: str, *, bold: Container[int] = ()) -> str:
    """A table below a note; the details of a cell are set smaller below the rest.

    Args:
        bold: numbers of rows, from 0.
    """
    head = "".join(
        f'<th scope="col"{_NAME if n < content.names else ""}>{_cell(cell)}</th>'
        for n, cell in enumerate(content.header)
    )
    scroll = "scroll long" if len(content.rows) > _LONG_TABLE else "scroll"
    rows = "\n".join(_row(row, content.names, bold=n in bold) for n, row in enumerate(content.rows))
    return (
        f'<p class="muted">{text(note)}</p>\n<div class="{scroll}" tabindex="0"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _row(cells: Sequence[str], names: int, bold: bool) -> str:
    kind = ' class="best"' if bold else ""
    head = "".join(f'<th scope="row"{_NAME}>{_cell(cell)}</th>' for cell in cells[:names])
    rest = "".join(f"<td>{_cell(cell)}</td>" for cell in cells[names:])
    return f"<tr{kind}>{head}{rest}</tr>"


def _cell(content: str) -> str:
    first, *below = content.split("\n")
    return text(first) + "".join(f"<small>{text(line)}</small>" for line in below)


def figure(picture: Picture | None) -> str:
    """A picture under its title, its tiles beside or below each other as the width allows."""
    if picture is None:
        return ""
    caption, panels = escape(picture.caption), "\n".join(tiles(picture))
    return (
        f"<h2>{escape(picture.title)}</h2>\n{drawing(picture)}\n"
        f'<figure class="panels" role="img" aria-label="{caption}">\n{panels}\n'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def drawing(picture: Picture) -> str:
    """What the tiles are cut from; by itself it shows nothing."""
    return (
        '<svg class="source" width="0" height="0" aria-hidden="true"><defs>'
        f'<g id="{picture.name}">{picture.svg}</g></defs></svg>'
    )


def tiles(picture: Picture) -> list[str]:
    """A window on each part of the drawing."""
    return [
        f'<svg viewBox="{_points(tile.left, tile.top, tile.width, tile.height)}"'
        f' width="{_points(tile.width)}" height="{_points(tile.height)}" aria-hidden="true">'
        f'<use href="#{picture.name}"/></svg>'
        for tile in picture.tiles
    ]


def _points(*inches: float) -> str:
    return " ".join(f"{72 * length:.4g}" for length in inches)
