"""Lines of at most 80 columns, and an output that outlives its reader.

Columns are counted as a terminal does: a Chinese or Japanese character takes two.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import TextIO

WIDTH = 80
_INDENT = 9  # columns of a block's labels


class Output:
    """A text stream whose reader may go away: from then on it takes everything in silence.

    What the stream's encoding lacks is written as an escape. Has what tqdm wants of a file.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.encoding = (getattr(stream, "encoding", None) or "utf-8") if stream else "utf-8"

    def isatty(self) -> bool:
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:  # closed
            return False

    def write(self, text: str) -> int:
        if self._stream is not None:
            safe = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
            try:
                self._stream.write(safe)
            except (OSError, ValueError):
                self._give_up(self._stream)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._give_up(self._stream)

    def _give_up(self, stream: TextIO) -> None:
        """Lead what the stream still holds to nowhere, or the interpreter's exit would fail."""
        self._stream = None
        try:
            descriptor = stream.fileno()
        except (OSError, ValueError):  # not a file of the system, or closed
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def columns(text: str) -> int:
    """Columns that a terminal gives to ``text``."""
    return sum(_columns_of(character) for character in text)


def _columns_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def printable(text: str) -> str:
    """``text`` with line ends, escape codes and the like spelt out: "\\x1b"."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def item(label: str, text: str) -> list[str]:
    """A labelled text, wrapped between words under its own beginning."""
    return [
        f"{label if i == 0 else '':<{_INDENT}}{line}"
        for i, line in enumerate(_wrap(printable(text).split(" "), WIDTH - _INDENT))
    ]


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns two spaces apart, aligned to the right."""
    cells = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in cells]


def _wrap(words: Iterable[str], width: int) -> list[str]:
    lines = [""]
    for word in words:
        for piece in _pieces(word, width):
            longer = f"{lines[-1]} {piece}".lstrip(" ")
            if columns(longer) <= width:
                lines[-1] = longer
            else:
                lines.append(piece)
    return lines


def _pieces(word: str, width: int, quoted: bool = False) -> list[str]:
    """``word`` in pieces of at most ``width`` columns, each counted as the shell needs it."""
    pieces = [""]
    for character in word:
        longer = pieces[-1] + character
        if columns(quote(longer) if quoted else longer) <= width:
            pieces[-1] = longer
        else:
            pieces.append(character)
    return pieces


def path_lines(label: str, path: Path) -> list[str]:
    """A labelled path, from the current folder where that is shorter.

    It stays whole, so that it can be copied: too long for the labelled line it gets a line of its
    own, too long for a line it goes on as a shell would read it, behind a backslash.
    """
    text = printable(shorter_path(path))
    line = f"{label:<{_INDENT}}{text}"
    if columns(line) <= WIDTH:
        return [line]
    return [label, *([text] if columns(text) <= WIDTH else _shell_word(text))]


def shorter_path(path: Path) -> str:
    """The absolute path or the one from the current folder, whichever is shorter."""
    absolute = os.path.abspath(path)
    return min(os.path.relpath(path), absolute, key=len)


def command_lines(label: str, command: Sequence[str]) -> list[str]:
    """A labelled command that a shell takes as it stands, over several lines if need be."""
    rows = [f"{label:<{_INDENT - 1}}"]
    for word in command:
        first, *others = _shell_word(printable(word))
        if columns(rows[-1]) + 1 + columns(first) <= WIDTH - 2:
            rows[-1] += f" {first}"
        else:
            rows[-1] += " \\"
            rows.append(first)
        rows += others
    return rows


def _shell_word(word: str) -> list[str]:
    """A quoted word; every line but the last ends in a backslash, which joins it to the next."""
    *whole, last = [quote(piece) for piece in _pieces(word, WIDTH - 3, quoted=True)]
    return [*(f"{piece}\\" for piece in whole), last]
