"""KanjiVG: kanji as pen strokes with their components (Ulrich Apel, CC BY-SA 3.0).

A character is an SVG file, its strokes are paths in writing order, its components nested groups.
It becomes

* frames: each stroke sampled every 8 of the 109 units of the character's box. Per point: x and y
  (y upward), direction inside the stroke, jump of the lifted pen, start of a stroke;
* labels, in writing order: the deepest components that at least 20 training characters contain;
  strokes beside them by their base type (㇆ for ㇆a, ㇔ for ㇔/㇏). A component in two parts, with
  other strokes between them, counts once, where it starts.

Lines of 1, 2, 3, .. characters side by side (geometric, p = 0.4: 2.5 on average) make lengths as
heavy-tailed as those of real handwriting: one line starts from each character, the others are
drawn from the same split.

Scaling: x and y are 0 to 1 inside the first box, x goes on along a line; a direction is a step
divided by the spacing, so about 1 long; jumps are in boxes.
"""

from __future__ import annotations

import importlib.metadata
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import ParseError

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.data.format import SPLITS, Sequence, Unreadable
from mapreduce_rnn.data.readers.base import Import
from mapreduce_rnn.data.readers.kanji import (
    BOX,
    SPACING,
    Character,
    label,
    label_components,
    read_character,
)
from mapreduce_rnn.errors import ImportRefused

PACKAGE = "kanjivg"
ATTRIBUTION = "KanjiVG (https://kanjivg.tagaini.net), Ulrich Apel, CC BY-SA 3.0"
FEATURES = ("x", "y", "direction_x", "direction_y", "jump_x", "jump_y", "stroke_start")
PEN = {"x": 0, "y": 1, "pen_up": 6}

LINE_P = 0.4  # geometric parameter of the number of characters in a line
ADVANCE = (BOX + 11.0) / BOX  # from a character of a line to the next, in boxes

# Plain names only: 04e00-Kaisho.svg and the like are other hands of the same character.
_PLAIN_NAME = re.compile(r"[0-9a-f]{5}")
_KANJI_BLOCKS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))


@dataclass(frozen=True)
class _Labelled:
    """A character with the numbers of its labels, ready to be put into a line."""

    character: Character
    labels: NDArray[np.int32]  # (L,)


def read(folder: Path | None, *, lines: bool, seed: int) -> Import:
    """Read KanjiVG from a folder of SVG files; None: from the installed package ``kanjivg``.

    The split is fixed, and so are the validation lines: only training lines depend on ``seed``,
    so runs on stores of different seeds are scored on the same sequences.

    Raises:
        ImportRefused: The package is missing, or no training character can be read.
    """
    files = _package_files() if folder is None else list(folder.glob("*.svg"))
    files = sorted((f for f in files if _is_kanji(f)), key=lambda file: file.name)
    characters, unreadable = _read_all(files)
    training = [c for c in characters if not in_validation(c.code)]
    if not training:
        raise ImportRefused(_nothing(folder, len(files), unreadable))
    components = label_components(training)
    alphabet = sorted({symbol for c in training for symbol in label(c, components)})
    labelled, unknown = _number_labels(characters, components, alphabet)
    kind = f"lines, seed {seed}" if lines else "single characters"
    return Import(
        sequences=_sequences(labelled, [*unreadable, *unknown], seed if lines else None),
        alphabet=tuple(alphabet), feature_names=FEATURES, attribution=ATTRIBUTION, pen=PEN,
        source=f"KanjiVG, {len(characters)} characters, {kind}",
    )  # fmt: skip


def in_validation(code: int) -> bool:
    """Whether a character belongs to the fixed tenth that is never trained on.

    The residue 9 is one that leaves no component or stroke type to validation alone.
    """
    return zlib.crc32(code.to_bytes(4, "big")) % 10 == 9


def _package_files() -> list[Path]:
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise ImportRefused(
            f"the package {PACKAGE} is not installed: pip install 'mapreduce-rnn[demo]', "
            "or name a folder with the SVG files"
        ) from None
    return [Path(str(file.locate())) for file in files if file.suffix == ".svg"]


def _nothing(folder: Path | None, files: int, unreadable: list[Unreadable]) -> str:
    where = folder if folder is not None else f"the package {PACKAGE}"
    first = f", the first, {unreadable[0].id}: {unreadable[0].reason}" if unreadable else ""
    return (
        f"expected SVG files of KanjiVG, such as 04e00.svg, in {where}: "
        f"{files} found, {len(unreadable)} unreadable{first}"
    )


def _is_kanji(file: Path) -> bool:
    if not _PLAIN_NAME.fullmatch(file.stem):
        return False
    return any(low <= int(file.stem, 16) <= high for low, high in _KANJI_BLOCKS)


def _read_all(files: Iterable[Path]) -> tuple[list[Character], list[Unreadable]]:
    characters, unreadable = [], []
    for file in files:
        try:
            characters.append(read_character(file))
        except (OSError, ParseError, ValueError) as error:
            unreadable.append(Unreadable(file.name, str(error)))
    return characters, unreadable


def _number_labels(
    characters: Iterable[Character], components: frozenset[str], alphabet: list[str]
) -> tuple[list[_Labelled], list[Unreadable]]:
    """Characters ready for lines, and those with a label that no training character has."""
    number = {symbol: k for k, symbol in enumerate(alphabet, start=1)}
    labelled, unknown = [], []
    for character in characters:
        symbols = label(character, components)
        new = [symbol for symbol in symbols if symbol not in number]
        if new:
            reason = f"no training character has the label {new[0]}"
            unknown.append(Unreadable(character.text, reason))
        else:
            labels = np.array([number[symbol] for symbol in symbols], dtype=np.int32)
            labelled.append(_Labelled(character, labels))
    return labelled, unknown


def _sequences(
    characters: list[_Labelled], unreadable: list[Unreadable], seed: int | None
) -> Iterator[Sequence | Unreadable]:
    """Lines, training ones first, or single characters where ``seed`` is None."""
    yield from unreadable
    for split, stream in (("train", seed), ("validation", 0)):
        held_out = split == "validation"
        members = [c for c in characters if in_validation(c.character.code) == held_out]
        sequence = np.random.SeedSequence(stream or 0, spawn_key=(SPLITS.index(split),))
        rng = np.random.default_rng(sequence)
        for first in members:
            line = [first] if seed is None else [first, *_more(members, rng)]
            text = "".join(c.character.text for c in line)
            labels = np.concatenate([c.labels for c in line])
            yield Sequence(text, _frames([c.character for c in line]), labels, split)


def _more(members: list[_Labelled], rng: np.random.Generator) -> list[_Labelled]:
    """The characters of a line after its first."""
    count = rng.geometric(LINE_P) - 1
    return [members[k] for k in rng.integers(len(members), size=count)]


def _frames(line: list[Character]) -> NDArray[np.float32]:
    """Features of a line, (T, 7), as in FEATURES."""
    points = np.concatenate([c.points + k * ADVANCE for k, c in enumerate(line)])
    starts = np.concatenate([c.starts for c in line])
    steps = np.diff(points, prepend=points[0])
    direction = np.where(starts, 0, steps) * (BOX / SPACING)
    jump = np.where(starts, steps, 0)
    columns = [part for z in (points, direction, jump) for part in (z.real, z.imag)]
    return np.stack([*columns, starts], axis=1).astype(np.float32)
