"""One character of KanjiVG: its strokes, its components, its labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
from defusedxml.ElementTree import parse
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


@dataclass(frozen=True)
class Stroke:
    """A stroke as it is drawn."""

    points: NDArray[np.complex128]  # (T,), x + iy in boxes, y upward
    type: str  # base type
    components: tuple[Component, ...]  # those it belongs to, outermost first


@dataclass(frozen=True)
class Character:
    """A character with its strokes in writing order."""

    code: int
    strokes: tuple[Stroke, ...]


def read_character(file: Path) -> Character:
    """Read an SVG file whose name is the code point in hexadecimal.

    Raises
    ------
    OSError, xml.etree.ElementTree.ParseError, defusedxml.DefusedXmlException, ValueError
        The file cannot be read, is not XML, is an attack, or holds no strokes as expected.
    """
    root = parse(file).getroot()
    drawn = list(_Walk().strokes(root, ())) if root is not None else []
    if not drawn:
        raise ValueError("there are no strokes in it")
    sampled = sample_paths([path for path, _, _ in drawn], SPACING)
    strokes = tuple(
        Stroke(points.conj() / BOX + 1j, type_, components)  # SVG counts y downward
        for points, (_, type_, components) in zip(sampled, drawn, strict=True)
    )
    return Character(int(file.stem, 16), strokes)


_Drawn = tuple[str, str, tuple[Component, ...]]


@dataclass
class _Walk:
    """A walk through the groups of a file that numbers them and joins parts."""

    groups: int = 0
    first_parts: dict[tuple[str, str], int] = field(default_factory=dict)  # the latest of each

    def strokes(self, group: Element, components: tuple[Component, ...]) -> Iterator[_Drawn]:
        """Path, base type and components of each stroke."""
        for child in group:
            tag = _local(child.tag)
            if tag == "path":
                yield *_path_and_type(_attributes(child)), components
            elif tag == "g":
                yield from self.strokes(child, (*components, *self._component(child)))

    def _component(self, group: Element) -> list[Component]:
        """The component that a group is; none if it only holds others together."""
        values = _attributes(group)
        if "element" not in values:
            return []
        key = (values["element"], values.get("number", ""))
        self.groups += 1
        if values.get("part", "1") == "1" or key not in self.first_parts:
            self.first_parts[key] = self.groups
        return [Component(values["element"], self.groups, self.first_parts[key])]


def _attributes(element: Element) -> dict[str, str]:
    """By local name: the URI of the kvg namespace differs between versions."""
    return {_local(name): value for name, value in element.attrib.items()}


def _local(name: str) -> str:
    """{uri}name without the URI."""
    return name.rpartition("}")[2]


def _path_and_type(values: dict[str, str]) -> tuple[str, str]:
    if "d" not in values or not values.get("type"):
        raise ValueError(f"stroke {values.get('id', '')} without a path or a type")
    return values["d"], _base_type(values["type"])


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
