"""A store: variable-length feature sequences with labels, memory-mapped and read-only.

Opening reads headers, sizes, offsets and the sums of the small arrays, not the frames: a store
larger than memory works, and one of a million sequences opens in well under a second.
:meth:`Store.verify` reads everything.

    store = Store.open("kanji.store")
    store.frames(0)                # float32 (T, F)
    store.labels(0)                # int32 (L,), 1..K
    store.split("validation")      # int64 indices

Stores are written by :func:`write_store`, all at once or not at all.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.data import format as layout
from mapreduce_rnn.data.format import SPLITS, Meta, Sequence, Unreadable
from mapreduce_rnn.data.writer import write_store
from mapreduce_rnn.errors import StoreError

__all__ = ["SPLITS", "Meta", "Sequence", "Store", "Unreadable", "write_store"]


class Store:
    """An open store. Safe to open in any number of processes at once."""

    def __init__(
        self, path: Path, meta: Meta, fingerprint: str, arrays: dict[str, NDArray[Any]]
    ) -> None:
        self.path = path
        self.meta = meta
        self.fingerprint = fingerprint  # sha256 of meta.json, which holds all other sums
        self._arrays = arrays
        self._frames = arrays[layout.FRAMES]
        self._frame_offsets = np.array(arrays[layout.FRAME_OFFSETS])
        self._labels = arrays[layout.LABELS]
        self._label_offsets = np.array(arrays[layout.LABEL_OFFSETS])
        self.lengths: NDArray[np.int64] = np.diff(self._frame_offsets)  # (n,)
        self.label_lengths: NDArray[np.int64] = np.diff(self._label_offsets)  # (n,)

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Open the store in a folder.

        Raises:
            StoreError: The folder is missing, not a store, of another version, or damaged; one
                line.
        """
        path = Path(path)
        meta, fingerprint = _read_meta(path)
        for name, size in meta.sizes.items():
            _check_size(path / name, size)
        arrays = {name: _map_array(path, name, meta) for name in layout.stored_shapes(meta)}
        for name in arrays.keys() - {layout.FRAMES}:
            _check_sum(path / name, layout.array_sum(arrays[name]), meta.sha256[name])
        return cls(path, meta, fingerprint, arrays)

    def __len__(self) -> int:
        return len(self.lengths)

    def split(self, name: str) -> NDArray[np.int64]:
        """Indices of the sequences of a split, ascending: int64 (n_split,), maybe empty.

        Raises:
            StoreError: Stores have no split of that name.
        """
        if name not in SPLITS:
            raise StoreError(f"no split {name!r}: a store has {', '.join(SPLITS)}")
        return np.flatnonzero(self._arrays[layout.SPLIT] == SPLITS.index(name))

    def frames(self, index: int) -> NDArray[np.float32]:
        """Frames of a sequence, float32 (T, features), not normalised; a copy."""
        start, stop = self._frame_offsets[index : index + 2]
        frames = np.array(self._frames[start:stop], dtype=np.float32)
        return frames if self.meta.scale == 1.0 else frames * np.float32(self.meta.scale)

    def labels(self, index: int) -> NDArray[np.int32]:
        """Labels of a sequence, int32 (L,), 1..K; a copy."""
        start, stop = self._label_offsets[index : index + 2]
        return np.array(self._labels[start:stop])

    def repeated_labels(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many labels of each sequence equal the one before: int64 (n,)."""
        same = np.zeros(len(self._labels) + 2, dtype=bool)  # and room for an empty last sequence
        same[1 : len(self._labels)] = self._labels[1:] == self._labels[:-1]
        first, stop = self._label_offsets[indices], self._label_offsets[indices + 1]
        edges = np.stack((first + 1, stop), axis=1).reshape(-1)
        counts = np.add.reduceat(same, edges, dtype=np.int64)[::2]
        return np.where(stop - first > 1, counts, 0)  # where nothing lies between, one is given

    def id(self, index: int) -> str:
        """Name of a sequence, unique in the store."""
        text, starts = self._ids
        start, after = starts[index : index + 2]
        return text[start : after - 1].decode()

    @cached_property
    def _ids(self) -> tuple[bytes, NDArray[np.int64]]:
        """ids.txt and where its lines start, (n + 1,): as strings they take five times as much."""
        text = (self.path / layout.IDS).read_bytes()
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
        return text, np.concatenate(([0], ends + 1, [len(text) + 1]))

    def verify(self) -> None:
        """Read everything and compare the sums.

        Raises:
            StoreError: A file is damaged; it is named.
        """
        for name, array in self._arrays.items():
            _check_sum(self.path / name, layout.array_sum(array), self.meta.sha256[name])
        ids = self.path / layout.IDS
        _check_sum(ids, hashlib.sha256(ids.read_bytes()).hexdigest(), self.meta.sha256[layout.IDS])


def _read_meta(path: Path) -> tuple[Meta, str]:
    """meta.json and the sha256 of its bytes."""
    try:
        content = (path / layout.META).read_bytes()
    except FileNotFoundError:
        raise StoreError(_missing(path)) from None
    except OSError as error:
        raise StoreError(f"cannot read {path / layout.META}: {error.strerror}") from None
    return _parse_meta(path, content), hashlib.sha256(content).hexdigest()


def _missing(path: Path) -> str:
    if not path.exists():
        return f"no store at {path}: make one with `mapreduce-rnn data import FORMAT {path}`"
    return f"{path} is not a store: it has no {layout.META}"


def _parse_meta(path: Path, content: bytes) -> Meta:
    try:
        values = json.loads(content)
        version = values["version"]
        if version == layout.VERSION:
            return Meta.from_dict(values)
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{path / layout.META} is damaged: import the store again") from None
    raise StoreError(
        f"{path} has store format {version!r}, this program reads {layout.VERSION}: "
        "import it again with this version"
    )


def _check_size(file: Path, size: int) -> None:
    try:
        found = file.stat().st_size
    except OSError as error:
        raise StoreError(f"cannot read {file}: {error.strerror}; import the store again") from None
    if found != size:
        raise StoreError(
            f"{file} is damaged: expected {size} bytes, found {found}; import the store again"
        )


def _map_array(path: Path, name: str, meta: Meta) -> NDArray[Any]:
    """Map an array file, checked against meta.json as far as its header goes."""
    shape, dtype = layout.stored_shapes(meta)[name]
    try:
        array: NDArray[Any] = np.load(path / name, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path / name} is damaged ({error}); import the store again") from None
    fits = len(array.shape) == len(shape) and all(
        expected in (None, got) for expected, got in zip(shape, array.shape, strict=True)
    )
    if array.dtype != dtype or not fits or not array.flags.c_contiguous:
        raise StoreError(
            f"{path / name} does not fit {layout.META}: expected {dtype} {shape}, "
            f"found {array.dtype} {array.shape}; import the store again"
        )
    # Of the same map: numpy.memmap takes several times as long to slice.
    return array.view(np.ndarray)


def _check_sum(file: Path, found: str, expected: str) -> None:
    if found != expected:
        raise StoreError(
            f"{file} is damaged: its sha256 is not the one in {layout.META}; import the store again"
        )
