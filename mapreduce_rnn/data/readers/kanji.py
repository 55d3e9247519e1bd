"""One character of KanjiVG: its strokes, its components, its labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
from defusedxml import EntitiesForbidden
from defusedxml.ElementTree import fromstring
from numpy.typing import NDArray

from mapreduce_rnn.data.readers.bezier import sample_paths

BOX = 109.0  # side of a character's square, in SVG units
SPACING = 8.0  # between points: about 71 a character
MIN_CHARACTERS = 20  # training characters with a component, for it to be a label

# A full-width 6 in 禺 and its relatives, the character for one in 吞.
_TYPE_TYPOS = {"\uff16": "㇀", "一": "㇐"}


class Component(NamedTuple):
    """A group of strokes that is a component, or one part of it."""

    element: str
    group: int  # unique in the character
    whole: int  # group of the component's first part; of the component itself if it is in one


class Stroke(NamedTuple):
    """A stroke as the file has it."""

    path: str  # what an SVG path has as d
    type: str  # base type
    components: tuple[Component, ...]  # those it belongs to, outermost first


@dataclass(frozen=True)
class Character:
    """A character with its strokes in writing order."""

    code: int
    strokes: tuple[Stroke, ...]
    points: NDArray[np.complex128]  # (T,), x + iy in boxes, y upward
    starts: NDArray[np.bool_]  # (T,), first points of strokes

    @property
    def text(self) -> str:
        return chr(self.code)


def read_character(file: Path) -> Character:
    """Read an SVG file whose name is the code point in hexadecimal.

    Raises:
        OSError: The file cannot be read.
        xml.etree.ElementTree.ParseError: It is not XML; with line and column.
        ValueError: It declares entities, or holds no strokes as expected.
    """
    strokes = _strokes(file.read_bytes())
    if not strokes:
        raise ValueError("there are no strokes in it")
    sampled = sample_paths([stroke.path for stroke in strokes], SPACING)
    points = np.concatenate(sampled).conj() / BOX + 1j  # SVG counts y downward
    starts = np.zeros(len(points), dtype=bool)
    starts[np.cumsum([0, *(len(part) for part in sampled[:-1])])] = True
    return Character(int(file.stem, 16), tuple(strokes), points, starts)


def _strokes(svg: bytes) -> list[Stroke]:
    """The strokes of a file.

    Names are taken without their namespace, since that differs between versions.
    """
    try:
        root = fromstring(svg)
    except EntitiesForbidden as error:
        raise ValueError(f"expected no entities, got a declaration of {error.name!r}") from error
    walk = _Walk()
    walk.visit(root)
    return walk.strokes


class _Walk:
    """A walk through the groups of a file that numbers them and joins parts."""

    def __init__(self) -> None:
        self.strokes: list[Stroke] = []
        self._components: list[tuple[Component, ...]] = [()]  # those around each open element
        self._groups = 0
        self._first_parts: dict[tuple[str, str], int] = {}  # the latest of each

    def visit(self, element: Element) -> None:
        """Take in an element and what is in it, in order."""
        around, tag = self._components[-1], _local(element.tag)
        values = {_local(name): value for name, value in element.items()}
        if tag == "path":
            self.strokes.append(_stroke(values, around))
        if tag == "g" and "element" in values:
            around = (*around, self._component(values))
        self._components.append(around)
        for child in element:
            self.visit(child)
        self._components.pop()

    def _component(self, values: dict[str, str]) -> Component:
        key = (values["element"], values.get("number", ""))
        self._groups += 1
        if values.get("part", "1") == "1" or key not in self._first_parts:
            self._first_parts[key] = self._groups
        return Component(values["element"], self._groups, self._first_parts[key])


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _stroke(values: dict[str, str], components: tuple[Component, ...]) -> Stroke:
    if "d" not in values or not values.get("type"):
        raise ValueError(f"stroke {values.get('id', '')} without a path or a type")
    return Stroke(values["d"], _base_type(values["type"]), components)


def _base_type(type_: str) -> str:
    """㇔/㇏ and ㇔a are both ㇔: the first alternative, without letters."""
    base = re.sub("[a-z]", "", type_.split("/")[0])
    return _TYPE_TYPOS.get(base, base)


def label(character: Character, components: Collection[str]) -> list[str]:
    """Labels of a character in writing order, given the components that are labels.

    A stroke belongs to its smallest component, unless still smaller ones of ``components`` lie
    beside it in there: then, or without any component, it stands for itself, by its type.
    明 gives 日 月.
    """
    chains = [[c for c in s.components if c.element in components] for s in character.strokes]
    divided = {component.group for chain in chains for component in chain[:-1]}
    labels: dict[tuple[str, int], str] = {}  # by what is labelled, in order of appearance
    for position, (stroke, chain) in enumerate(zip(character.strokes, chains, strict=True)):
        if chain and chain[-1].group not in divided:
            labels["component", chain[-1].whole] = chain[-1].element
        else:
            labels["stroke", position] = stroke.type
    return list(labels.values())


def label_components(training: Iterable[Character]) -> frozenset[str]:
    """Components that are labels: in enough training characters, and deepest in one of them."""
    training = list(training)
    frequent = _frequent(training)
    deepest = {symbol for character in training for symbol in label(character, frequent)}
    return frozenset(frequent & deepest)


def _frequent(characters: Iterable[Character]) -> set[str]:
    counts: Counter[str] = Counter()
    for character in characters:
        counts.update({c.element for stroke in character.strokes for c in stroke.components})
    return {element for element, count in counts.items() if count >= MIN_CHARACTERS}
