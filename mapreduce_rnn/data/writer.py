"""Write a store: streaming, checked, complete or absent.

Sequences go into a hidden folder beside the target, which is synced to disk and renamed at the
very end; whatever stops the import before leaves no store behind.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.data import format as layout
from mapreduce_rnn.data.checks import check_arguments, sequence_problem
from mapreduce_rnn.data.format import SPLITS, Meta, Sequence, Unreadable
from mapreduce_rnn.data.moments import Moments
from mapreduce_rnn.errors import ImportRefused, StoreError, UsageError
from mapreduce_rnn.ondisk import sync_folder, synced

_LISTED = 20  # bad sequences named in the error; more only scroll the first ones away


def write_store(
    path: str | Path,
    sequences: Iterable[Sequence | Unreadable],
    *,
    alphabet: Iterable[str],
    feature_names: Iterable[str],
    dtype: str = "float32",
    scale: float = 1.0,
    source: str = "",
    attribution: str = "",
    pen: Mapping[str, int] | None = None,
    skip_bad: bool = False,
) -> Meta:
    """Write sequences, in their order, into a new store and return its meta data.

    Sequences may come from a generator: only the frames of one are in memory at a time.
    Sequences without frames are left out and named in ``Meta.dropped``.

    Args:
        path: A folder that does not exist yet.
        sequences: Those to write; what could not be read takes the place of a sequence.
        alphabet: What labels 1..K stand for, without the blank.
        feature_names: One per feature of a frame.
        dtype: How frames are stored: "float32", "float16", or "uint8" for frames that already are.
        scale: With uint8 only: stored value x scale = feature.
        source: Where the data came from.
        attribution: Shown wherever the data is shown.
        pen: Which features draw the strokes, as {"x": 0, "y": 1, "pen_up": 4}; None: no pen data.
        skip_bad: Leave bad sequences out and name them in ``Meta.skipped`` instead of refusing.

    Raises:
        ImportRefused: With the list of bad sequences: unreadable, of another shape, not finite,
            labels outside 1..K, ids that repeat; or no training sequence is left.
        UsageError: The target exists, or an argument makes no sense.
        StoreError: The target cannot be written.
    """
    path = Path(path)
    names, symbols = tuple(feature_names), tuple(alphabet)
    check_arguments(names, symbols, dtype, scale, pen)
    with _complete_or_absent(path) as folder, synced(folder / layout.FRAMES) as frames:
        writer = _Writer(folder, frames, len(names), len(symbols), dtype, scale)
        for sequence in sequences:
            writer.add(sequence)
        _refuse_bad(writer, skip_bad)
        return writer.finish(
            version=layout.VERSION, feature_names=names, dtype=dtype, scale=scale,
            alphabet=symbols, source=source, attribution=attribution, pen=pen,
        )  # fmt: skip


class _Writer:
    """Open array files and everything about the sequences but their frames."""

    def __init__(
        self,
        folder: Path,
        frames: BinaryIO,
        features: int,
        symbols: int,
        dtype: str,
        scale: float,
    ) -> None:
        self.folder = folder
        self.features = features
        self.symbols = symbols
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.scale = np.float32(scale)
        self.frames = _FrameFile(frames, features, self.dtype)
        self.moments = Moments(features)
        self.ids: dict[str, None] = {}  # ordered, with a fast look-up
        self.lengths: list[int] = []
        self.labels: list[NDArray[np.int32]] = []
        self.splits: list[int] = []
        self.dropped: list[str] = []
        self.bad: list[str] = []

    def add(self, sequence: Sequence | Unreadable) -> None:
        if isinstance(sequence, Unreadable):
            self.bad.append(f"{sequence.id}: {sequence.reason}")
        elif problem := sequence_problem(
            sequence, self.ids, self.features, self.symbols, self.dtype
        ):
            self.bad.append(f"{sequence.id}: {problem}")
        elif len(sequence.frames) == 0:
            self.dropped.append(sequence.id)
        else:
            self._append(sequence)

    def _append(self, sequence: Sequence) -> None:
        stored = sequence.frames.astype(self.dtype)
        self.frames.append(stored)
        if sequence.split == "train":
            self.moments.add(stored.astype(np.float32) * self.scale)
        self.ids[sequence.id] = None
        self.lengths.append(len(stored))
        self.labels.append(np.asarray(sequence.labels).astype(np.int32))
        self.splits.append(SPLITS.index(sequence.split))

    def finish(self, **facts: Any) -> Meta:
        """Write the remaining files, meta.json last."""
        total, frames_sum = self.frames.finish()
        sums = {layout.FRAMES: frames_sum} | self._write_small()
        mean, std = self.moments.result()
        meta = Meta(
            feature_mean=mean, feature_std=std, total_frames=total,
            counts={name: self.splits.count(k) for k, name in enumerate(SPLITS)},
            dropped=tuple(self.dropped), skipped=tuple(self.bad), sha256=sums,
            sizes={name: (self.folder / name).stat().st_size for name in sums}, **facts,
        )  # fmt: skip
        with synced(self.folder / layout.META) as file:
            file.write(meta.to_bytes())
        return meta

    def _write_small(self) -> dict[str, str]:
        """Write all arrays but the frames, and the ids; their sums by file name."""
        label_lengths = [len(labels) for labels in self.labels]
        arrays: dict[str, NDArray[Any]] = {
            layout.FRAME_OFFSETS: _offsets(self.lengths),
            layout.LABELS: np.concatenate(self.labels).astype("<i4"),
            layout.LABEL_OFFSETS: _offsets(label_lengths),
            layout.SPLIT: np.array(self.splits, dtype=np.int8),
        }
        for name, array in arrays.items():
            with synced(self.folder / name) as file:
                np.save(file, array, allow_pickle=False)
        ids = "\n".join(self.ids).encode()
        with synced(self.folder / layout.IDS) as file:
            file.write(ids)
        sums = {name: layout.array_sum(array) for name, array in arrays.items()}
        return sums | {layout.IDS: hashlib.sha256(ids).hexdigest()}


class _FrameFile:
    """frames.npy, appended to; its header gets the true length at the end."""

    def __init__(self, file: BinaryIO, features: int, dtype: np.dtype[Any]) -> None:
        self._file = file
        self._features = features
        self._dtype = dtype
        self._digest = hashlib.sha256()
        self._total = 0
        self._write_header()

    def _write_header(self) -> None:
        # numpy pads the header so that a first dimension of any length fits in the same bytes.
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._total, self._features),
        }
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, frames: NDArray[Any]) -> None:
        data = frames.tobytes()
        self._file.write(data)
        self._digest.update(data)
        self._total += len(frames)

    def finish(self) -> tuple[int, str]:
        """Number of frames and sha256 of their bytes."""
        self._file.seek(0)
        self._write_header()
        self._file.flush()  # for whoever asks for its size
        return self._total, self._digest.hexdigest()


def _refuse_bad(writer: _Writer, skip_bad: bool) -> None:
    if writer.bad and not skip_bad:
        more = len(writer.bad) - _LISTED
        lines = [f"  {line}" for line in writer.bad[:_LISTED]]
        lines += [f"  and {more} more"] if more > 0 else []
        raise ImportRefused(
            f"{len(writer.bad)} of {len(writer.bad) + len(writer.dropped) + len(writer.ids)} "
            "sequences are bad (--skip-bad leaves them out):\n" + "\n".join(lines)
        )
    if SPLITS.index("train") not in writer.splits:
        raise ImportRefused(
            f"no training sequence: {len(writer.ids)} for other splits, "
            f"{len(writer.dropped)} without frames, {len(writer.bad)} bad"
        )


def refuse_existing(path: Path) -> None:
    """Check that a store can be written there.

    Raises:
        UsageError: There is something already.
    """
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists: choose another name or remove it first")


@contextmanager
def _complete_or_absent(path: Path) -> Iterator[Path]:
    """A folder to fill, renamed to path at the end, or removed if the block raises."""
    refuse_existing(path)
    folder = path.absolute().with_name(f".{path.name}.{os.getpid()}.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
        yield folder
        sync_folder(folder)
        folder.rename(path)
        sync_folder(folder.parent)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _offsets(lengths: list[int]) -> NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, dtype="<i8")
    np.cumsum(lengths, out=offsets[1:])
    return offsets
