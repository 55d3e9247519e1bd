"""KanjiVG: kanji as pen strokes with their components (Ulrich Apel, CC BY-SA 3.0).

A character is an SVG file, its strokes are paths in writing order, its components nested groups.
It becomes

* frames: each stroke sampled every 8 of the 109 units of the character's box. Per point: x and y
  (y upward), direction inside the stroke, jump of the lifted pen, start of a stroke;
* labels, in writing order: the deepest components that at least 20 training characters contain;
  strokes beside them by their base type (㇆ for ㇆a, ㇔ for ㇔/㇏). A component in two parts, with
  other strokes between them, counts once, where it starts.

Lines of 1, 2, 3, .. characters side by side (geometric, p = 0.4: 2.5 on average) make lengths as
heavy-tailed as those of real handwriting.

Scaling: x and y are 0 to 1 inside the first box, x goes on beyond 1 along a line; a direction is
a step divided by the spacing, so of length 1; jumps are in boxes.
"""

from __future__ import annotations

import importlib.metadata
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence as Items
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, ParseError

import numpy as np
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import parse
from numpy.typing import NDArray

from mapreduce_rnn.data.format import Sequence, Unreadable
from mapreduce_rnn.data.readers.base import Import
from mapreduce_rnn.data.readers.bezier import sample_path
from mapreduce_rnn.errors import ImportRefused

ATTRIBUTION = "KanjiVG (https://kanjivg.tagaini.net), Ulrich Apel, CC BY-SA 3.0"
FEATURES = ("x", "y", "direction_x", "direction_y", "jump_x", "jump_y", "stroke_start")
PEN = {"x": 0, "y": 1, "pen_up": 6}

BOX = 109.0  # side of a character's square, in SVG units
SPACING = 8.0  # between points: about 71 a character
GAP = 11.0  # between the boxes of a line
MIN_CHARACTERS = 20  # training characters with a component, for it to be a label
LINE_P = 0.4  # geometric parameter of a line's length

# Plain names only: 04e00-Kaisho.svg and the like are other hands of the same character.
_PLAIN_NAME = re.compile(r"[0-9a-f]{5}")
_KANJI_BLOCKS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_TYPE_TYPOS = {"６": "㇀", "一": "㇐"}  # 禺 and its relatives; 吞


class Component(NamedTuple):
    """A component in one place of a character; parts of it share the place."""

    element: str
    place: int


@dataclass(frozen=True)
class Stroke:
    """A stroke as it is drawn."""

    points: NDArray[np.complex128]  # (T,), x + iy in boxes, y upward
    type: str  # base type
    components: tuple[Component, ...]  # outermost first


@dataclass(frozen=True)
class Character:
    """A character with its strokes in writing order."""

    code: int
    strokes: tuple[Stroke, ...]


def read(folder: Path | None, *, lines: bool, seed: int) -> Import:
    """Read KanjiVG from a folder of SVG files; None: from the installed package ``kanjivg``.

    Raises ImportRefused if there is no package or no file of a kanji.
    """
    files = _kanji_files(_package_files() if folder is None else sorted(folder.glob("*.svg")))
    if not files:
        raise ImportRefused(f"no KanjiVG file, such as 04e00.svg, in {folder or 'the package'}")
    characters, unreadable = _read_all(files)
    alphabet, labels = _label(characters)
    usable = [c for c in characters if labels[c.code].issubset(alphabet)]
    raise NotImplementedError
