"""Messages as frames of bytes, and back.

    frame 0        msgpack [PROTOCOL, run id, kind, {field: value}, table], at most 64 kB
    frame 1 ...    one raw frame per array, in the order of the table: C order, little-endian

The table is zlib-compressed msgpack [[name, dtype, [dimension, ...]], ...]: names of tensors repeat
each other, so thousands of them stay inside the header. Nothing is ever unpickled.

What plain values may be: :mod:`mapreduce_rnn.protocol.fields`.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Sequence
from enum import StrEnum
from reprlib import repr as brief
from typing import Any

import msgpack
import numpy as np

from mapreduce_rnn.errors import ProtocolError
from mapreduce_rnn.protocol.fields import KINDS, PLAIN_FIELDS, check_fields, check_key
from mapreduce_rnn.protocol.messages import PROTOCOL, Arrays, Hello, Message

NO_RUN = ""
"""Run id of a worker that does not know the run yet: all it may say is Hello, and it takes any."""

HEADER_BYTES = 64 * 1024
TABLE_BYTES = 1024 * 1024  # decompressed; bounds what a small hostile header can grow to
MAX_DIMENSIONS = 8
MOST_ARRAYS = 1 << 16

_DTYPES = {
    dtype.str: dtype
    for dtype in map(
        np.dtype, ("?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
    )
}

Frame = bytes | memoryview
Frames = Sequence[Frame]


class Fault(StrEnum):
    """What is wrong with bytes that came in; the receiver counts and logs by it."""

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    OTHER_VERSION = "of another protocol version"
    OTHER_RUN = "of another run"
    FLOOD = "too much at once"


class DecodeError(ProtocolError):
    """Bytes that are not a message of this run."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(f"message {fault}: {detail}")
        self.fault = fault


def encode(message: Message, run_id: str, max_bytes: int | None = None) -> list[Frame]:
    """The header of ``message``, and its arrays' own memory: copied by whoever keeps it for later.

    Args:
        max_bytes: The receiver's limit for all frames together, None for no limit.

    Raises:
        ProtocolError: A value that would not arrive as it is, with its key; a header over 64 kB;
            a message over ``max_bytes``.
    """
    arrays = getattr(message, "arrays", {})
    fields = {name: getattr(message, name) for name in PLAIN_FIELDS[type(message)]}
    check_fields(type(message), fields)
    kind = type(message).__name__
    header = _pack([PROTOCOL, run_id, kind, fields, _pack_table(arrays)], kind)
    if len(header) > HEADER_BYTES:
        raise ProtocolError(
            f"{kind}: header of {len(header)} bytes, limit {HEADER_BYTES}: "
            f"too many or too long names ({len(arrays)} arrays) or texts"
        )
    frames: list[Frame] = [header, *map(raw, arrays.values())]
    _check_size(frames, max_bytes, kind)
    return frames


def decode(frames: Frames, run_id: str, max_bytes: int | None = None) -> Message:
    """The message in ``frames``.

    Its arrays are read-only views of the received bytes (several receivers may share them):
    whoever changes one, or wraps it in a tensor, copies it first.

    Args:
        run_id: Of the only run whose messages are taken, besides a Hello to any; NO_RUN: of all.
        frames: Bytes, or read-only views of memory that does not change.
        max_bytes: Limit for all frames together, None for no limit.

    Raises:
        DecodeError: For anything that :func:`encode` does not make, and nothing else.
    """
    _check_received_size(frames, max_bytes)
    version, *rest = _unpack(frames[0], list)
    if version != PROTOCOL:
        raise DecodeError(Fault.OTHER_VERSION, f"{brief(version)}, expected {PROTOCOL}")
    if len(rest) != 4:
        raise _malformed("a header of another length")
    run, kind, fields, table = rest
    if not _is_for(run_id, run, kind):
        raise DecodeError(Fault.OTHER_RUN, f"{brief(run)}, expected {run_id!r}")
    if not isinstance(kind, str) or kind not in KINDS:
        raise _malformed(f"unknown kind {brief(kind)}")
    return _build(KINDS[kind], fields, _views(table, frames[1:]))


def run_of(frames: Frames) -> str:
    """The run id in a message that :func:`decode` has accepted."""
    return str(msgpack.unpackb(frames[0])[1])


# Header


def _is_for(run_id: str, run: Any, kind: Any) -> bool:
    asks = run == NO_RUN and kind == Hello.__name__
    return run == run_id or asks or (run_id == NO_RUN and isinstance(run, str))


def _build(kind: type[Any], fields: Any, arrays: dict[str, np.ndarray]) -> Message:
    if not isinstance(fields, dict):
        raise _malformed(f"{kind.__name__} without fields")
    try:
        check_fields(kind, fields)
    except ProtocolError as error:
        raise _malformed(str(error)) from None
    takes_arrays = any(f.name == "arrays" for f in dataclasses.fields(kind))
    if arrays and not takes_arrays:
        raise _malformed(f"{kind.__name__} with arrays")
    message: Message = kind(**fields, arrays=arrays) if takes_arrays else kind(**fields)
    return message


def _pack(value: Any, kind: str) -> bytes:
    try:
        return bytes(msgpack.packb(value))
    except UnicodeEncodeError as error:  # a lone surrogate; all else has been checked
        raise ProtocolError(f"{kind}: text that is not valid Unicode: {error.reason}") from error


def _unpack(data: Frame, expected: type) -> Any:
    """One msgpack value of type ``expected``, not empty."""
    try:
        value = msgpack.unpackb(data)
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise _malformed(f"not msgpack ({type(error).__name__})") from error
    if type(value) is not expected or not value:
        raise _malformed(f"expected a {expected.__name__}, got {brief(value)}")
    return value


# Arrays


def raw(array: np.ndarray) -> memoryview:
    """Read-only bytes of an array in C order: its own memory, where that has this order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data.toreadonly()


def _pack_table(arrays: Arrays) -> bytes:
    """The table of a message's arrays; empty without any."""
    rows = [[name, *_describe(name, array)] for name, array in arrays.items()]
    if len(rows) > MOST_ARRAYS:
        raise ProtocolError(f"{len(rows)} arrays, limit {MOST_ARRAYS}")
    table = _pack(rows, "arrays") if rows else b""
    if len(table) > TABLE_BYTES:
        raise ProtocolError(
            f"the table of {len(rows)} arrays has {len(table)} bytes, limit {TABLE_BYTES}"
        )
    return zlib.compress(table) if table else b""


def _describe(name: Any, array: Any) -> tuple[str, list[int]]:
    check_key(name, "arrays")
    if not isinstance(array, np.ndarray) or array.dtype.str not in _DTYPES:
        found = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else type(array)
        raise ProtocolError(f"arrays.{name}: cannot send {found}; expected {', '.join(_DTYPES)}")
    if array.ndim > MAX_DIMENSIONS:
        raise ProtocolError(f"arrays.{name}: {array.ndim} dimensions, limit {MAX_DIMENSIONS}")
    return array.dtype.str, list(array.shape)


def _views(table: Any, frames: Frames) -> dict[str, np.ndarray]:
    rows = _unpack_table(table)
    if len(rows) != len(frames):
        raise _malformed(f"{len(frames)} arrays, {len(rows)} in the table")
    arrays: dict[str, np.ndarray] = {}
    for row, frame in zip(rows, frames, strict=True):
        name, dtype, shape = _check_row(row)
        if name in arrays:
            raise _malformed(f"two arrays named {brief(name)}")
        arrays[name] = _view(name, dtype, shape, frame)
    return arrays


def _unpack_table(table: Any) -> list[Any]:
    if type(table) is not bytes:
        raise _malformed("no table of arrays")
    if not table:
        return []
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(table, TABLE_BYTES)
    except zlib.error as error:
        raise _malformed(f"table of arrays: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise _malformed(f"table of arrays: cut, or over {TABLE_BYTES} bytes")
    return list(_unpack(data, list))


def _check_row(row: Any) -> tuple[str, np.dtype[Any], list[int]]:
    if type(row) is not list or len(row) != 3:
        raise _malformed(f"table row {brief(row)}")
    name, dtype, shape = row
    if type(name) is not str or type(dtype) is not str or type(shape) is not list:
        raise _malformed(f"table row {brief(row)}")
    if dtype not in _DTYPES:
        raise _malformed(f"{brief(name)}: dtype {brief(dtype)}")
    if len(shape) > MAX_DIMENSIONS or any(type(d) is not int or d < 0 for d in shape):
        raise _malformed(f"{brief(name)}: shape {brief(shape)}")
    return name, _DTYPES[dtype], shape


def _view(name: str, dtype: np.dtype[Any], shape: list[int], frame: Frame) -> np.ndarray:
    if math.prod(shape) * dtype.itemsize != len(frame):
        raise _malformed(f"{brief(name)}: {len(frame)} bytes for {dtype} of shape {brief(shape)}")
    # A dimension of 0 makes any other one fit; NumPy cannot hold the product of huge ones.
    if 0 in shape and math.prod(max(d, 1) for d in shape) * dtype.itemsize >= 2**63:
        raise _malformed(f"{brief(name)}: shape {brief(shape)}")
    return np.frombuffer(frame, dtype).reshape(shape)


# Sizes


def _check_size(frames: Frames, max_bytes: int | None, kind: str) -> None:
    size = sum(map(len, frames))
    if max_bytes is not None and size > max_bytes:
        raise ProtocolError(f"{kind}: {size} bytes, but the receiver takes at most {max_bytes}")


def _check_received_size(frames: Frames, max_bytes: int | None) -> None:
    if not frames:
        raise _malformed("no frames")
    if len(frames) > 1 + MOST_ARRAYS:
        raise DecodeError(Fault.OVERSIZED, f"more than {MOST_ARRAYS} arrays")
    size = sum(map(len, frames))
    if max_bytes is not None and size > max_bytes:
        raise DecodeError(Fault.OVERSIZED, f"{size} bytes, limit {max_bytes}")
    if len(frames[0]) > HEADER_BYTES:
        raise DecodeError(Fault.OVERSIZED, f"header over {HEADER_BYTES} bytes")


def _malformed(detail: str) -> DecodeError:
    return DecodeError(Fault.MALFORMED, detail)
