"""The plain fields of messages: checked by the sender and again by the receiver.

Plain values are None, bool, int (-2^63 to 2^64 - 1), float, str, lists of them and dicts of them
with str keys: exactly what msgpack gives back unchanged. The sender refuses everything else
(tuples, whole-number keys, NumPy scalars, ...) and names the key, so what arrives always has the
values and the types that were sent.

Numbers that are fields themselves count or measure something: none is negative, no int is beyond
63 bits, every float is finite. What lies inside a dict is free to be anything here.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from reprlib import repr as brief
from typing import Any, Literal

from mapreduce_rnn.errors import ProtocolError
from mapreduce_rnn.protocol.messages import Message

MAX_DEPTH = 16  # of lists and dicts; our own messages need 3


KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in typing.get_args(Message)}


def _declared(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind) if f.name != "arrays"}


PLAIN_FIELDS: dict[type[Any], dict[str, Any]] = {kind: _declared(kind) for kind in KINDS.values()}
"""Types of the fields of each kind of message that travel in the header, by name."""


def check_fields(kind: type[Any], fields: Mapping[str, Any]) -> None:
    """Both ends: exactly the declared fields, each of exactly the declared type."""
    hints = PLAIN_FIELDS[kind]
    if fields.keys() != hints.keys():
        raise ProtocolError(f"{kind.__name__} with other fields than {', '.join(hints)}")
    for name, hint in hints.items():
        where = f"{kind.__name__}.{name}"
        _check_plain(fields[name], where, MAX_DEPTH)
        if not _conforms(fields[name], hint):
            raise ProtocolError(f"{where}: {brief(fields[name])} is no value for it")


def _conforms(value: Any, hint: Any) -> bool:
    """Whether a plain value is of a type that the messages' annotations use."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return value in typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_conforms(value, option) for option in typing.get_args(hint))
    expected = dict if origin is Mapping else hint
    return type(value) is expected and _is_possible(value)


def _is_possible(value: Any) -> bool:
    return not isinstance(value, int | float) or (math.isfinite(value) and 0 <= value < 2**63)


def _check_plain(value: Any, where: str, depth: int) -> None:
    """Raise ProtocolError, naming the key, for what msgpack would lose, change or refuse."""
    if depth == 0:
        raise ProtocolError(f"{where}: more than {MAX_DEPTH} levels of lists and dicts")
    if type(value) is dict:
        for key, item in value.items():
            check_key(key, where)
            _check_plain(item, f"{where}.{key}", depth - 1)
    elif type(value) is list:
        for index, item in enumerate(value):
            _check_plain(item, f"{where}[{index}]", depth - 1)
    elif type(value) is int:
        if not -(2**63) <= value < 2**64:
            raise ProtocolError(f"{where}: a number beyond 64 bits")
    elif type(value) not in (type(None), bool, float, str):
        raise ProtocolError(
            f"{where}: cannot send a {type(value).__name__}; "
            "expected None, bool, int, float, str, list or dict"
        )


def check_key(key: Any, where: str) -> None:
    if type(key) is not str:
        raise ProtocolError(f"{where}: key {brief(key)} is a {type(key).__name__}, expected a str")
