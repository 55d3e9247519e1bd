"""Checkpoints: whole or absent, found damaged, the same bytes for the same content."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Never

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from mapreduce_rnn import checkpoint
from mapreduce_rnn.checkpoint import Arrays
from mapreduce_rnn.errors import CheckpointError

MODEL: Arrays = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "steps": np.array(7, np.int64),
    "none": np.zeros((0, 3), np.float32),
}
STATE = {"slot-0/w/exp_avg": np.full(3, 0.5)}
CONTENT = {
    "epoch": 3,
    "größe": [1, 2.5, True],
    "best": {"round": 2, "loss": 1.25},
    "target": None,
    "metrics_bytes": 812,
}


def save(
    run: Path,
    number: int,
    model: Arrays = MODEL,
    state: Arrays = STATE,
    content: Mapping[str, Any] = CONTENT,
) -> Path:
    return checkpoint.save(run, number, model, state, content)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_equal(arrays: Arrays, expected: Arrays) -> None:
    assert list(arrays) == sorted(expected)
    for name, array in expected.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(arrays[name], array)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("gone")


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    folder = save(tmp_path, 12)
    assert folder == tmp_path / "checkpoints" / "round-000012"
    assert names(folder) == ["manifest.json", "model.safetensors", "state.safetensors"]
    loaded = checkpoint.load(tmp_path)
    assert (loaded.round, loaded.content, loaded.warnings) == (12, CONTENT, ())
    assert_equal(loaded.model, MODEL)
    assert_equal(loaded.state, STATE)


def test_empty_state_and_transposed_views_survive(tmp_path: Path) -> None:
    model = {"t": np.arange(6.0).reshape(2, 3).T}
    save(tmp_path, 1, model, {}, {})
    loaded = checkpoint.load(tmp_path)
    assert_equal(loaded.model, model)
    assert (loaded.state, loaded.content) == ({}, {})


def test_whole_number_keys_come_back_as_text(tmp_path: Path) -> None:
    save(tmp_path, 1, content={"slots": {2: "b", 10: "a"}})
    loaded = checkpoint.load(tmp_path)
    assert (loaded.content, loaded.warnings) == ({"slots": {"2": "b", "10": "a"}}, ())


def test_manifest_is_strict_json_with_sorted_keys_and_sums_of_the_files(tmp_path: Path) -> None:
    folder = save(tmp_path, 3)
    text = (folder / "manifest.json").read_text()
    facts = json.loads(text)
    assert list(facts) == sorted(facts)
    for name, digest in facts["sha256"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert str(tmp_path) not in text
    with pytest.raises(ValueError, match="JSON"):
        save(tmp_path, 4, content={"loss": float("nan")})
    assert names(tmp_path / "checkpoints") == ["round-000003"]


def test_the_same_content_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    code = """if True:
        import sys, numpy as np
        from mapreduce_rnn import checkpoint
        names = sys.argv[2].split(",")
        arrays = {n: np.full(3, len(n), np.float32) for n in names}
        checkpoint.save(sys.argv[1], 1, arrays, arrays, {n: len(n) for n in names})
    """
    for run, order in [("a", "x,yy,zzz"), ("b", "zzz,x,yy")]:
        subprocess.run([sys.executable, "-c", code, str(tmp_path / run), order], check=True)
    one, other = (tmp_path / run / "checkpoints" / "round-000001" for run in "ab")
    assert names(one) == names(other)
    for name in names(one):
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_newest_is_by_number_and_stray_names_are_ignored(tmp_path: Path) -> None:
    for number in [9, 10, 100, 1_000_000, 999_999]:
        save(tmp_path, number)
    for stray in ["round-", "round-latest", "round-99", "notes", "round-9000000.bak"]:
        (tmp_path / "checkpoints" / stray).mkdir()
    (tmp_path / "checkpoints" / "round-9999999").write_text("a file")
    loaded = checkpoint.load(tmp_path)
    assert (loaded.round, loaded.warnings) == (1_000_000, ())
    assert checkpoint.load(tmp_path, 9).round == 9


HARMS = [damage, truncate, empty, Path.unlink, link_to_nothing, make_a_folder]
PARTS = ["model.safetensors", "state.safetensors", "manifest.json"]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", PARTS)
def test_a_damaged_checkpoint_is_named_and_passed_over(
    tmp_path: Path, harm: Callable[[Path], None], name: str
) -> None:
    save(tmp_path, 1)
    harm(save(tmp_path, 2) / name)
    loaded = checkpoint.load(tmp_path)
    assert loaded.round == 1
    (warning,) = loaded.warnings
    assert "round 2 is damaged" in warning
    assert name in warning
    with pytest.raises(CheckpointError, match="round 2 is damaged"):
        checkpoint.load(tmp_path, 2)


def test_a_file_that_may_not_be_read_is_named_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No permissions are set: root may read everything."""
    save(tmp_path, 1)
    forbidden = save(tmp_path, 2) / "state.safetensors"
    read = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path == forbidden:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    loaded = checkpoint.load(tmp_path)
    assert loaded.round == 1
    assert loaded.warnings == (
        "checkpoint of round 2 is damaged: state.safetensors: Permission denied",
    )


@given(st.sampled_from(PARTS), st.data())
def test_any_bit_that_flips_is_found(name: str, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = save(Path(folder), 1) / name
        content = bytearray(path.read_bytes())
        bit = data.draw(st.integers(0, 8 * len(content) - 1))
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=f"round 1 is damaged: {name}"):
            checkpoint.load(Path(folder))


@pytest.mark.parametrize(
    "manifest",
    ["[]", "{}", '{"version": 1}', '{"version": 1, "round": 1}', "[" * 10_000, "NaN"],
)
def test_a_manifest_that_was_made_up_is_damage(tmp_path: Path, manifest: str) -> None:
    """Also where its own sum is right, as after an edit by a careful hand."""
    (save(tmp_path, 1) / "manifest.json").write_bytes(manifest.encode())
    with pytest.raises(CheckpointError, match=r"round 1 is damaged: manifest.json"):
        checkpoint.load(tmp_path)
    if manifest[0] == "{":
        sealed = checkpoint._sealed(json.loads(manifest))
        (tmp_path / "checkpoints" / "round-000001" / "manifest.json").write_bytes(sealed)
        with pytest.raises(CheckpointError, match=r"round 1 is damaged: manifest.json"):
            checkpoint.load(tmp_path)


def test_files_of_another_round_are_not_taken_for_this_one(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2).rename(tmp_path / "checkpoints" / "round-000005")
    loaded = checkpoint.load(tmp_path)
    assert loaded.round == 1
    assert "expected version 1, round 5" in loaded.warnings[0]


def test_no_whole_checkpoint_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is none; start a new run"):
        checkpoint.load(tmp_path)
    damage(save(tmp_path, 4) / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"round 4 is damaged: model.safetensors") as error:
        checkpoint.load(tmp_path)
    assert "\n" not in str(error.value)


def test_saving_a_round_again_replaces_it(tmp_path: Path) -> None:
    save(tmp_path, 2, content={"epoch": 1})
    save(tmp_path, 2, content={"epoch": 2})
    assert checkpoint.load(tmp_path).content == {"epoch": 2}
    assert names(tmp_path / "checkpoints") == ["round-000002"]


@pytest.mark.parametrize("failing", ["fsync", "rename"])
def test_a_failed_save_leaves_the_older_ones_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    save(tmp_path, 1)

    def full(*_args: object) -> Never:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(CheckpointError, match=r"round-000002: .*No space left"):
        save(tmp_path, 2)
    monkeypatch.undo()
    assert names(tmp_path / "checkpoints") == ["round-000001"]
    assert checkpoint.load(tmp_path).round == 1


def test_what_a_killed_process_left_is_ignored_and_removed_at_the_next_save(tmp_path: Path) -> None:
    save(tmp_path, 1)
    left = tmp_path / "checkpoints" / ".tmp-round-000002"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    assert checkpoint.load(tmp_path).round == 1
    save(tmp_path, 2)
    assert names(tmp_path / "checkpoints") == ["round-000001", "round-000002"]


@pytest.mark.parametrize(
    ("keep", "also", "kept"),
    [
        (2, set(), [10, 100]),
        (1, set(), [100]),
        (1, {9, 77}, [9, 100]),
        ("all", set(), [8, 9, 10, 100]),
    ],
)
def test_the_newest_are_kept_by_number_and_strays_are_left_alone(
    tmp_path: Path, keep: int | str, also: set[int], kept: list[int]
) -> None:
    """Text order puts 9 after 10 and 100."""
    for number in [8, 9, 10, 100]:
        save(tmp_path, number)
    stray = ["latest", "round-9", "round-9000000.bak"]
    for name in stray:
        (tmp_path / "checkpoints" / name).mkdir()
    checkpoint.prune(tmp_path, 100, keep=keep, also=also)
    expected = sorted([*(f"round-{number:06d}" for number in kept), *stray])
    assert names(tmp_path / "checkpoints") == expected
    assert checkpoint.load(tmp_path).round == 100


def test_a_damaged_checkpoint_of_a_later_round_does_not_count_as_the_newest(
    tmp_path: Path,
) -> None:
    """A resume passed it over and has come to round 3 since."""
    for number in [1, 2, 3, 12]:
        damage(save(tmp_path, number) / "manifest.json")
    checkpoint.prune(tmp_path, 3, keep=2)
    assert names(tmp_path / "checkpoints") == ["round-000002", "round-000003"]


def test_a_checkpoint_that_cannot_be_deleted_is_named_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in [1, 2]:
        save(tmp_path, number)

    def refused(*_args: object) -> Never:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refused)
    checkpoint.prune(tmp_path, 2, keep=1)
    assert "cannot be deleted: [Errno 13] Permission denied" in caplog.text
    assert checkpoint.load(tmp_path).round == 2


def test_save_model_replaces_a_file_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    checkpoint.save_model(path, {"w": np.zeros(2)})
    checkpoint.save_model(path, MODEL)
    assert_equal(dict(sorted(load_file(path).items())), MODEL)
    before = path.read_bytes()

    def full(*_args: object) -> Never:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"cannot write model .*No space left"):
        checkpoint.save_model(path, {"w": np.zeros(2)})
    assert path.read_bytes() == before
    assert names(tmp_path) == ["model.safetensors"]
