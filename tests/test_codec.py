"""Frames of bytes: what goes in comes out, and what did not go in is refused."""

from __future__ import annotations

import dataclasses
import pickle
import warnings
import zlib
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mapreduce_rnn.errors import ProtocolError
from mapreduce_rnn.protocol import messages
from mapreduce_rnn.protocol.codec import (
    HEADER_BYTES,
    NO_RUN,
    DecodeError,
    Fault,
    decode,
    encode,
    run_of,
)
from mapreduce_rnn.protocol.messages import MapResult, MapTask, Message, Setup, TaskFailed

RUN = "run-1"


DTYPES = ("?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")


def result(**arrays: np.ndarray) -> MapResult:
    return MapResult(1, 0, 1, 12, {"loss": 1.5}, 0.25, arrays)


def trip(message: Message) -> Any:
    return decode(encode(message, RUN), RUN)


def assert_same(a: Message, b: Message) -> None:
    assert type(a) is type(b)
    for field in dataclasses.fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if field.name != "arrays":
            assert x == y
            continue
        assert list(x) == list(y)
        for name in x:
            assert (x[name].dtype, x[name].shape) == (y[name].dtype, y[name].shape)
            assert x[name].tobytes() == y[name].tobytes()


EVERY_KIND = [
    messages.Refused("it runs mapreduce_rnn 0"),
    messages.Hello("0.1.0", "cuda:GPU-8932f937", 4711),
    messages.Setup({"run": {"seed": 2**64 - 1, "threads": None}, "devices": ["0", "1"]}, "sha"),
    MapTask(1, 0, 1, 1, arrays={"model/w": np.ones((2, 3), np.float32)}),
    result(bias=np.arange(3)),
    messages.ScoreTask(1, 0, 1, {"indices": np.arange(4)}),
    messages.ScoreResult(1, 0, 1, 0.5, {"loss": np.zeros(2)}),
    messages.ProbeTask(0, 0, 1, {"indices": np.arange(4)}),
    messages.ProbeResult(0, 0, 1, 0.5, {"seconds": np.zeros(2)}),
    TaskFailed(None, 0, 0, 0, "Traceback: 木"),
    TaskFailed("map", 1, 0, 1, ""),
    TaskFailed("probe", 0, 0, 1, ""),
    messages.Heartbeat(17, 0.25),
    messages.Alive(),
    messages.Stop(),
]


@pytest.mark.parametrize("message", EVERY_KIND, ids=lambda m: type(m).__name__)
def test_every_kind_of_message_comes_back_equal(message: Message) -> None:
    assert_same(trip(message), message)


@given(
    hnp.arrays(
        st.sampled_from(DTYPES).map(np.dtype),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    )
)
def test_any_array_keeps_its_type_shape_and_bytes(array: np.ndarray) -> None:
    assert_same(trip(result(a=array, b=array.T)), result(a=array, b=array.T))


def test_scalar_and_empty_arrays_keep_their_shapes() -> None:
    arrays = trip(result(scalar=np.array(3, np.int64), empty=np.zeros((0, 3), np.float32))).arrays
    assert arrays["scalar"].shape == ()
    assert arrays["scalar"].dtype == np.int64
    assert arrays["empty"].shape == (0, 3)
    assert arrays["empty"].dtype == np.float32


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), plain_values, max_size=4))
def test_plain_values_keep_their_types(statistics: dict[str, Any]) -> None:
    message = MapResult(1, 0, 1, 12, statistics, 0.25)
    # repr tells 1 from 1.0 and True, and finds nan equal to nan.
    assert repr(trip(message).statistics) == repr(statistics)


@pytest.mark.parametrize(
    ("statistics", "named"),
    [
        ({0: 1.5}, "statistics: key 0"),
        ({"loss": np.float32(1.5)}, "statistics.loss: cannot send a float32"),
        ({"loss": np.float64(1.5)}, "statistics.loss: cannot send a float64"),
        ({"n": np.int64(3)}, "statistics.n: cannot send a int64"),
        ({"seed": 2**64}, "statistics.seed: a number beyond 64 bits"),
        ({"labels": [1, (2, 3)]}, r"statistics.labels\[1\]: cannot send a tuple"),
        ({"raw": b"x"}, "statistics.raw: cannot send a bytes"),
        ({"text": "\ud800"}, "not valid Unicode"),
    ],
)
def test_what_would_change_on_the_way_is_refused_by_its_key(statistics: Any, named: str) -> None:
    with pytest.raises(ProtocolError, match=named):
        encode(MapResult(1, 0, 1, 12, statistics, 0.25), RUN)


@pytest.mark.parametrize(
    "array",
    [
        np.array([object()]),
        np.array(["text"]),
        np.zeros(2, ">f4"),
        np.zeros(2, np.complex64),
        np.zeros(2, "datetime64[s]"),
        [1.0],
    ],
    ids=["object", "str", "big-endian", "complex", "datetime", "list"],
)
def test_arrays_that_raw_bytes_cannot_carry_are_refused_by_name(array: Any) -> None:
    with pytest.raises(ProtocolError, match=r"arrays\.model/w: cannot send"):
        encode(MapTask(1, 0, 1, 1, arrays={"model/w": array}), RUN)


def test_received_arrays_are_read_only_and_can_be_sent_on_unchanged() -> None:
    torch = pytest.importorskip("torch")
    sent = MapTask(1, 0, 1, 1, arrays={"model/w": np.arange(4, dtype=np.float32)})
    received = trip(sent)
    array = received.arrays["model/w"]
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.setflags(write=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.tensor(array).add_(1.0)  # trained in place, on a copy
    assert_same(trip(received), sent)


def test_frames_are_the_memory_of_the_arrays_and_read_only() -> None:
    array = np.zeros(1000)
    _, frame = encode(result(w=array), RUN)
    array += 1.0
    assert bytes(frame) == array.tobytes()
    assert memoryview(frame).readonly


def test_names_of_thousands_of_arrays_fit_into_the_header() -> None:
    arrays = {
        f"state/encoder.layers.{layer}.attention.weight_{name}/{key}": np.zeros(name, np.float32)
        for layer in range(100)
        for name in range(20)
        for key in ("exp_avg", "exp_avg_sq", "step")
    }
    frames = encode(result(**arrays), RUN)
    assert len(frames[0]) < HEADER_BYTES
    assert list(decode(frames, RUN).arrays) == list(arrays)


def test_a_header_that_is_too_long_is_refused_by_the_sender() -> None:
    with pytest.raises(ProtocolError, match=f"TaskFailed: header of .* limit {HEADER_BYTES}"):
        encode(TaskFailed("map", 1, 0, 1, "x" * HEADER_BYTES), RUN)


def test_a_message_over_the_limit_is_refused_at_both_ends_with_both_sizes() -> None:
    message = result(w=np.zeros(1000))
    with pytest.raises(ProtocolError, match=r"8\d\d\d bytes, .* at most 8000"):
        encode(message, RUN, max_bytes=8000)
    with pytest.raises(DecodeError, match=r"8\d\d\d bytes, limit 8000") as caught:
        decode(encode(message, RUN), RUN, max_bytes=8000)
    assert caught.value.fault is Fault.OVERSIZED


def test_a_task_of_110_mebibytes_passes() -> None:
    array = np.zeros(110 * 2**18, np.float32)
    array[-1] = 1.0
    received = trip(MapTask(1, 0, 1, 1, arrays={"model/w": array}))
    assert received.arrays["model/w"][-1] == 1.0


def test_messages_of_other_runs_and_versions_are_told_apart() -> None:
    frames = encode(messages.Alive(), "run-2")
    with pytest.raises(DecodeError) as other_run:
        decode(frames, RUN)
    with pytest.raises(DecodeError) as other_version:
        decode([msgpack.packb([messages.PROTOCOL + 1, "whatever follows"])], RUN)
    assert other_run.value.fault is Fault.OTHER_RUN
    assert other_version.value.fault is Fault.OTHER_VERSION


# Hostile bytes


def header(kind: Any, fields: Any, table: Any = b"") -> bytes:
    return bytes(msgpack.packb([messages.PROTOCOL, RUN, kind, fields, table]))


def table(*rows: Any) -> bytes:
    return zlib.compress(msgpack.packb(list(rows)))


FIELDS = {"round": 1, "slot": 0, "attempt": 1}
MALFORMED = {
    "no frames": [],
    "empty header": [b""],
    "another type": [msgpack.packb({"a": 1})],
    "deeply nested": [b"\x91" * 1000 + b"\x90"],
    "nested where the version is": [b"\x91" + b"\x91" * 900 + b"\x90"],
    "trailing bytes": [header("Alive", {}) + b"\x00"],
    "extension type": [msgpack.packb([messages.PROTOCOL, RUN, msgpack.ExtType(1, b""), {}, b""])],
    "unknown kind": [header("Backdoor", {})],
    "kind that cannot be hashed": [header([], {})],
    "missing field": [header("Heartbeat", {})],
    "extra field": [header("Heartbeat", {"steps": 1, "more": 2})],
    "bool for int": [header("Heartbeat", {"steps": True})],
    "text for int": [header("Heartbeat", {"steps": "1"})],
    "float for int": [header("Heartbeat", {"steps": 1.0})],
    "unknown literal": [
        header("TaskFailed", FIELDS | {"kind": "eval", "traceback": ""}),
    ],
    "list for dict": [header("Setup", {"config": [], "fingerprint": ""})],
    "arrays for a kind without": [header("Alive", {}, table(["a", "<f4", [1]])), b"1234"],
    "no table": [header("ScoreTask", FIELDS, None)],
    "table that is no zlib": [header("ScoreTask", FIELDS, b"\x00")],
    "table cut short": [header("ScoreTask", FIELDS, table(["a", "<f4", [1]])[:-1]), b"1234"],
    "table that explodes": [header("ScoreTask", FIELDS, zlib.compress(bytes(30_000_000)))],
    "row of another length": [header("ScoreTask", FIELDS, table(["a", "<f4"])), b"1234"],
    "object dtype": [header("ScoreTask", FIELDS, table(["a", "|O", [1]])), b"12345678"],
    "too few bytes": [header("ScoreTask", FIELDS, table(["a", "<f4", [2]])), b"1234"],
    "negative dimension": [header("ScoreTask", FIELDS, table(["a", "<f4", [-1, -1]])), b"1234"],
    "bool dimension": [header("ScoreTask", FIELDS, table(["a", "<f4", [True]])), b"1234"],
    "huge empty shape": [
        header("ScoreTask", FIELDS, table(["a", "<f4", [0, 2**40, 2**40]])), b"",
    ],
    "too many dimensions": [header("ScoreTask", FIELDS, table(["a", "<f4", [1] * 70])), b"1234"],
    "frame without a row": [header("ScoreTask", FIELDS), b"1234"],
    "name twice": [
        header("ScoreTask", FIELDS, table(["a", "<f4", [1]], ["a", "<f4", [1]])), b"1234", b"1234",
    ],
}  # fmt: skip


@pytest.mark.parametrize("frames", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_messages_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        decode(frames, RUN)


def test_a_pickle_in_an_array_is_never_opened(tmp_path: Any) -> None:
    marker = tmp_path / "marker"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (marker.touch, ())

    data = pickle.dumps(Bomb())
    for dtype in ("|O", "object", "O8"):
        with pytest.raises(DecodeError, match="dtype"):
            decode([header("ScoreTask", FIELDS, table(["a", dtype, [1]])), data], RUN)
    assert not marker.exists()


@given(st.lists(st.binary(max_size=60), max_size=3))
def test_random_bytes_give_a_decode_error_and_nothing_else(frames: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        decode(frames, RUN)


@given(st.sampled_from(EVERY_KIND), st.integers(0, 5), st.integers(0, 300), st.binary(max_size=4))
def test_a_changed_message_is_a_message_or_a_decode_error(
    message: Message, frame: int, at: int, new: bytes
) -> None:
    frames = [bytes(each) for each in encode(message, RUN)]
    which, old = frame % len(frames), frames[frame % len(frames)]
    frames[which] = old[: at % (len(old) + 1)] + new + old[at % (len(old) + 1) + len(new) :]
    try:
        decoded = decode(frames, RUN)
    except DecodeError:
        return
    assert_same(trip(decoded), decoded)  # whatever it says now, it is a whole message


@given(plain_values)
def test_fields_of_any_value_give_a_message_or_a_decode_error(value: Any) -> None:
    for kind, fields in (("Heartbeat", {"steps": value}), ("Alive", value), (value, {})):
        try:
            data = header(kind, fields)
        except ValueError:  # text that is not valid Unicode cannot even be packed
            return
        if (kind, type(value)) not in (("Heartbeat", int), ("Alive", dict)):
            with pytest.raises(DecodeError):
                decode([data], RUN)


def test_a_config_travels_as_the_command_line_made_it() -> None:
    config = pytest.importorskip("mapreduce_rnn.config")
    plain = config.to_dict(config.TrainConfig())
    assert config.from_dict(trip(Setup(plain, "sha")).config, "test") == config.TrainConfig()


def test_who_knows_no_run_may_say_hello_and_nothing_else() -> None:
    hello = messages.Hello("0.1.0", "cpu", 42, "sha")
    assert decode(encode(hello, NO_RUN), RUN) == hello
    for message in EVERY_KIND:
        if not isinstance(message, messages.Hello):
            with pytest.raises(DecodeError, match="of another run"):
                decode(encode(message, NO_RUN), RUN)


def test_who_knows_no_run_takes_any_and_learns_it() -> None:
    frames = encode(messages.Alive(), RUN)
    assert decode(frames, NO_RUN) == messages.Alive()
    assert run_of(frames) == RUN
    version, _, *rest = msgpack.unpackb(frames[0])
    with pytest.raises(DecodeError, match="of another run"):
        decode([msgpack.packb([version, 7, *rest])], NO_RUN)
