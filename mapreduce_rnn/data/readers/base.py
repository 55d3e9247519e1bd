"""What a reader hands to the store writer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mapreduce_rnn.data.format import Sequence, Unreadable


@dataclass(frozen=True)
class Import:
    """Sequences and the facts about them: the arguments of write_store, by the same names."""

    sequences: Iterable[Sequence | Unreadable]  # may be a generator; read once
    alphabet: tuple[str, ...]
    feature_names: tuple[str, ...]
    source: str
    dtype: str = "float32"
    scale: float = 1.0
    attribution: str = ""
    pen: Mapping[str, int] | None = None
