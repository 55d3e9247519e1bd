"""The files a run writes about itself: strict JSON lines, read back even when damaged."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.errors import CheckpointError
from mapreduce_rnn.runlog import (
    JsonLines,
    dumps,
    loads,
    log_to,
    read_lines,
    truncate,
    write_json,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def without_infinity(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [without_infinity(item) for item in value]
    if isinstance(value, dict):
        return {key: without_infinity(item) for key, item in value.items()}
    return value


@given(values)
def test_any_value_passes_a_strict_reader_with_null_for_what_is_not_finite(value: Any) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in strict JSON")

    assert json.loads(dumps(value), parse_constant=refuse) == without_infinity(value)
    assert "\n" not in dumps(value)


@given(st.dictionaries(st.text(), st.integers()))
def test_equal_records_are_equal_bytes_whatever_the_order_of_their_keys(
    record: dict[str, int],
) -> None:
    assert dumps(record) == dumps(dict(reversed(record.items())))


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"loss": [1, np.int64(3)]}, "$.loss[1]"),
        ({"loss": np.float32(1.5)}, "$.loss"),
        ({"at": Path("x")}, "$.at"),
        ({"a": {1: 2}}, "$.a"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_place(value: Any, place: str) -> None:
    with pytest.raises(TypeError) as error:
        dumps(value)
    assert f"JSON can't hold {place}:" in str(error.value)


@pytest.mark.parametrize("text", ["NaN", '{"loss": Infinity}', "[-Infinity]"])
def test_the_reader_is_strict(text: str) -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        loads(text)


def test_a_line_can_be_read_as_soon_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with JsonLines(path) as log:
        for number in (1, 2):
            size = log.write({"round": number, "train_loss": math.nan})
            assert size == path.stat().st_size
            assert read_lines(path).records[-1] == {"round": number, "train_loss": None}
    assert read_lines(path).problem is None


@given(cut=st.integers(min_value=1, max_value=len('{"round":2}\n')))
def test_reading_stops_at_a_damaged_last_line_and_says_so(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    whole = b'{"round":1}\n{"round":2}\n'
    path.write_bytes(whole[:-cut])
    lines = read_lines(path)
    assert lines.records == ({"round": 1},)
    if cut < len('{"round":2}\n'):
        assert lines.problem is not None
        assert "metrics.jsonl is damaged at line 2" in lines.problem


@pytest.mark.parametrize("line", [b"\xff\n", b"[1]\n", b'{"a":NaN}\n', b"\n"])
def test_what_is_no_strict_record_counts_as_damage(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"a":1}\n' + line + b'{"a":2}\n')
    lines = read_lines(tmp_path / "x.jsonl")
    assert lines.records == ({"a": 1},)
    assert "line 2" in str(lines.problem)


def test_a_missing_file_is_a_problem_not_an_error(tmp_path: Path) -> None:
    lines = read_lines(tmp_path / "events.jsonl")
    assert (lines.records, lines.problem) == ((), "events.jsonl is missing")


def test_a_new_record_is_not_glued_to_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event":"start"}\n{"event":"rou')
    with JsonLines(path) as log:
        log.write({"event": "resume"})
    lines = read_lines(path)
    assert [record["event"] for record in lines.records] == ["start", "resume"]
    assert lines.problem is None


def test_metrics_are_cut_back_to_the_size_that_was_noted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with JsonLines(path) as log:
        noted = log.write({"round": 1})
        kept = path.read_bytes()
        log.write({"round": 2})
    truncate(path, noted)
    assert path.read_bytes() == kept


@pytest.mark.parametrize("content", [None, b"{}\n"])
def test_a_file_shorter_than_the_checkpoint_counted_is_refused(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "metrics.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"expected the 12 bytes .* got [03]"):
        truncate(path, 12)


def test_a_json_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "examples.json"
    write_json(path, {"items": [math.inf]})
    with pytest.raises(TypeError):
        write_json(path, {"items": {1, 2}})
    assert loads(path.read_bytes()) == {"items": [None]}
    assert [p.name for p in tmp_path.iterdir()] == ["examples.json"]


def test_the_log_file_takes_the_packages_records_until_it_is_closed(tmp_path: Path) -> None:
    logger = logging.getLogger("mapreduce_rnn")  # the parent of all of the package's
    before = (logger.level, list(logger.handlers))
    with log_to(tmp_path / "master.log"):
        logging.getLogger("mapreduce_rnn.pool").info("worker %d lost 漢\udc80", 3)
    logger.warning("after the end")
    text = (tmp_path / "master.log").read_text(encoding="utf-8")
    assert text.endswith("INFO worker 3 lost 漢\\udc80\n")
    assert (logger.level, logger.handlers) == before
