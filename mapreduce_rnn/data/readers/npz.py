"""Anyone's data, as arrays in one .npz file made by numpy.savez.

    frames          (total_frames, F)   all sequences one after the other; float16 and uint8 are
                                        stored as they are, other numbers as float32
    offsets         (n + 1,) integers   sequence i is frames[offsets[i]:offsets[i + 1]]

and labels, in one of two ways:

    texts           (n,) strings        each character is a label
    labels          (total,) integers   1..K, all sequences one after the other
    label_offsets   (n + 1,) integers   sequence i has labels[o[i]:o[i + 1]]

and whatever of this you have:

    alphabet        (K,) strings        what label 1, 2, .. is; else the characters of the training
                                        texts, or the numbers 1..K
    groups          (n,) any            who wrote or spoke it: a group is in one split only
    split           (n,) strings        train, validation or test; else a tenth of the groups, or
                                        of the sequences, is for validation, always the same ones
    ids             (n,) strings        unique names; else 0, 1, ..
    feature_names   (F,) strings        else f0, f1, ..
    pen             (3,) integers       features that draw the strokes: x, y upward, and 1 where a
                                        stroke starts; only for figures
    scale           number              uint8 only: what a step of 1 means (1/255 for pictures)
    attribution     string              shown under every figure that draws the data

The file is read into memory; for more data than that write the store from Python, see
mapreduce_rnn.data.store.write_store.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.data.format import DTYPES, SPLITS, Sequence, Unreadable
from mapreduce_rnn.data.readers.base import Import
from mapreduce_rnn.errors import ImportRefused

Arrays = dict[str, NDArray[Any]]

_VALIDATION = 10  # one group in ten, if the file has no split

_KINDS = {"numbers": "fiub", "integers": "iu", "strings": "U", "strings or integers": "Uiu"}
_LAYOUT: Mapping[str, tuple[int, str]] = {  # number of dimensions, kind
    "frames": (2, "numbers"),
    "offsets": (1, "integers"),
    "texts": (1, "strings"),
    "labels": (1, "integers"),
    "label_offsets": (1, "integers"),
    "alphabet": (1, "strings"),
    "groups": (1, "strings or integers"),
    "split": (1, "strings"),
    "ids": (1, "strings or integers"),
    "feature_names": (1, "strings"),
    "pen": (1, "integers"),
    "scale": (0, "numbers"),
    "attribution": (0, "strings"),
}


_PER_SEQUENCE = ("texts", "groups", "split", "ids")


class _LayoutError(Exception):
    """What is wrong with the arrays, without the file's name."""


def read(file: Path) -> Import:
    """Read a file of the layout above.

    Raises:
        ImportRefused: It cannot be read or has another layout; in one line.
    """
    try:
        return _to_import(file.name, _load(file))
    except OSError as error:
        raise ImportRefused(f"cannot read {file}: {error.strerror or error}") from None
    except _LayoutError as error:
        raise ImportRefused(f"{file}: {error}") from None


def _load(file: Path) -> Arrays:
    with file.open("rb") as opened:
        if not zipfile.is_zipfile(opened):
            raise _LayoutError("not an .npz file, or not a whole one; write it with numpy.savez")
    arrays: Arrays = {}
    with np.load(file, allow_pickle=False) as archive:
        for name in archive.files:
            if name not in _LAYOUT:
                raise _LayoutError(f"unknown array {name!r}, expected some of {', '.join(_LAYOUT)}")
            try:
                arrays[name] = archive[name]
            except (ValueError, EOFError, zipfile.BadZipFile, zlib.error):
                raise _LayoutError(f"array {name!r} is damaged or holds Python objects") from None
    return arrays


def _to_import(name: str, arrays: Arrays) -> Import:
    _check_types(arrays)
    frames = arrays["frames"]
    ids = _check_lengths(arrays)
    splits = _splits(arrays, ids)
    alphabet = _alphabet(arrays, splits)
    dtype = frames.dtype.name if frames.dtype.name in DTYPES else "float32"
    names = arrays.get("feature_names", [f"f{k}" for k in range(frames.shape[1])])
    pen = arrays.get("pen")
    return Import(
        sequences=_sequences(arrays, ids, splits, alphabet), alphabet=alphabet,
        feature_names=tuple(str(name) for name in names), source=name, dtype=dtype,
        scale=float(arrays.get("scale", 1.0)), attribution=str(arrays.get("attribution", "")),
        pen=None if pen is None else dict(zip(("x", "y", "pen_up"), pen.tolist(), strict=True)),
    )  # fmt: skip


def _check_types(arrays: Arrays) -> None:
    labels = {"texts"} & arrays.keys() or {"labels", "label_offsets"}
    if missing := sorted(({"frames", "offsets"} | labels) - arrays.keys()):
        raise _LayoutError(f"array {missing[0]!r} is missing; see `data import npz --help`")
    if "texts" in arrays and {"labels", "label_offsets"} & arrays.keys():
        raise _LayoutError("expected either texts or labels, got both")
    for name, array in arrays.items():
        dimensions, kind = _LAYOUT[name]
        if array.ndim != dimensions or array.dtype.kind not in _KINDS[kind]:
            raise _LayoutError(
                f"expected {name} to be {kind} in {dimensions} dimensions, "
                f"got {array.dtype} of shape {array.shape}"
            )


def _check_lengths(arrays: Arrays) -> list[str]:
    """Check that the arrays fit together; returns the ids."""
    _check_offsets("offsets", arrays["offsets"], len(arrays["frames"]))
    n = len(arrays["offsets"]) - 1
    expected = dict.fromkeys(_PER_SEQUENCE, n)
    expected |= {"feature_names": arrays["frames"].shape[1], "pen": 3}
    if "labels" in arrays:
        expected["label_offsets"] = n + 1
        _check_offsets("label_offsets", arrays["label_offsets"], len(arrays["labels"]))
    for name in expected.keys() & arrays.keys():
        if len(arrays[name]) != expected[name]:
            raise _LayoutError(f"expected {expected[name]} {name}, got {len(arrays[name])}")
    return [str(name) for name in arrays.get("ids", np.arange(n)).tolist()]


def _check_offsets(name: str, offsets: NDArray[Any], total: int) -> None:
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != total:
        ends = f"{offsets[0]} .. {offsets[-1]}" if len(offsets) else "none"
        raise _LayoutError(
            f"expected {name} from 0 to {total}, one more than sequences, got {ends}"
        )
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        raise _LayoutError(f"expected {name} that never decrease, got a fall after [{falls[0]}]")


def _splits(arrays: Arrays, ids: list[str]) -> list[str]:
    """Split of each sequence; a group is in one only."""
    groups = [str(group) for group in arrays.get("groups", np.array(ids)).tolist()]
    if "split" not in arrays:
        held_out = _held_out(set(groups))
        return ["validation" if group in held_out else "train" for group in groups]
    splits: list[str] = arrays["split"].tolist()
    if unknown := sorted(set(splits) - set(SPLITS)):
        raise _LayoutError(f"expected split to be {', '.join(SPLITS)}, got {unknown[0]!r}")
    _check_apart(groups, splits)
    return splits


def _check_apart(groups: list[str], splits: list[str]) -> None:
    first: dict[str, str] = {}
    for group, split in zip(groups, splits, strict=True):
        if first.setdefault(group, split) != split:
            raise _LayoutError(f"group {group!r} is in both {first[group]} and {split}")


def _held_out(groups: set[str]) -> set[str]:
    """A tenth of the groups, at least one if there are two; the same ones in any order."""
    ranked = sorted(groups, key=lambda group: hashlib.sha256(group.encode()).digest())
    return set(ranked[: max(round(len(ranked) / _VALIDATION), int(len(ranked) > 1))])


def _alphabet(arrays: Arrays, splits: list[str]) -> tuple[str, ...]:
    if "alphabet" in arrays:
        return tuple(arrays["alphabet"].tolist())
    training = np.flatnonzero(np.array(splits) == "train")
    if "texts" in arrays:
        found = sorted(set("".join(arrays["texts"][training].tolist())))
    else:
        highest = max((_labels(arrays, int(i)).max(initial=0) for i in training), default=0)
        found = [str(k) for k in range(1, int(highest) + 1)]
    if not found:
        raise _LayoutError("no training sequence has a label")
    return tuple(found)


def _sequences(
    arrays: Arrays, ids: list[str], splits: list[str], alphabet: tuple[str, ...]
) -> Iterator[Sequence | Unreadable]:
    number = {symbol: k for k, symbol in enumerate(alphabet, start=1)}
    offsets = arrays["offsets"]
    for i, name in enumerate(ids):
        text = str(arrays["texts"][i]) if "texts" in arrays else ""
        if unknown := sorted(set(text) - number.keys()):
            yield Unreadable(name, f"characters outside the alphabet: {''.join(unknown)!r}")
            continue
        labels = [number[c] for c in text] if "texts" in arrays else _labels(arrays, i)
        yield Sequence(name, arrays["frames"][offsets[i] : offsets[i + 1]], labels, splits[i])


def _labels(arrays: Arrays, index: int) -> NDArray[Any]:
    start, stop = arrays["label_offsets"][index : index + 2]
    labels: NDArray[Any] = arrays["labels"][start:stop]
    return labels
