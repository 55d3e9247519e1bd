"""A figure in the two forms that a report has it in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapreduce_rnn.report.canvas import Drawing, Tile


@dataclass(frozen=True)
class Picture:
    """A figure as a PNG file, and as SVG elements of which a page shows the tiles."""

    name: str
    title: str
    caption: str
    png: bytes
    svg: str
    tiles: tuple[Tile, ...]


def picture(name: str, title: str, caption: str, drawing: Drawing) -> Picture:
    """Both forms of a drawing; within :func:`mapreduce_rnn.report.canvas.settings`."""
    from mapreduce_rnn.report.canvas import png, svg

    return Picture(name, title, caption, png(drawing.figure), svg(drawing.figure), drawing.tiles)
