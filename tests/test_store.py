"""Stores: what goes in comes out, complete or not at all, and damage is named."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.data.store import Meta, Sequence, Store, Unreadable, write_store
from mapreduce_rnn.errors import ImportRefused, StoreError, UsageError
from stores import tiny_store


def sequence(name: str, length: int = 5, split: str = "train", labels: Any = (1, 2)) -> Sequence:
    rng = np.random.default_rng(length)
    return Sequence(name, rng.normal(size=(length, 2)).astype(np.float32), labels, split)


def write(path: Path, *sequences: Sequence | Unreadable, **options: Any) -> Meta:
    return write_store(path, sequences, alphabet="ab", feature_names=("x", "y"), **options)


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    label_lengths=st.lists(st.integers(0, 4), min_size=6, max_size=6),
)
def test_sequences_come_back_as_they_went_in(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], label_lengths: list[int]
) -> None:
    path = tmp_path_factory.mktemp("any") / "store"
    given_in = [
        sequence(f"é {i}", length, labels=np.full(label_lengths[i], 2))
        for i, length in enumerate(lengths)
    ]
    write(path, *given_in)
    store = Store.open(path)
    assert len(store) == len(given_in)
    assert store.lengths.tolist() == lengths
    assert store.label_lengths.tolist() == label_lengths[: len(lengths)]
    for i, expected in enumerate(given_in):
        assert store.id(i) == expected.id
        np.testing.assert_array_equal(store.frames(i), expected.frames)
        np.testing.assert_array_equal(store.labels(i), expected.labels)


@given(st.lists(st.lists(st.integers(1, 2), max_size=5), min_size=1, max_size=6), st.data())
def test_repeated_labels_are_counted_inside_each_sequence(
    tmp_path_factory: pytest.TempPathFactory, labels: list[list[int]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("any") / "store"
    write(path, *(sequence(f"s{i}", labels=row) for i, row in enumerate(labels)))
    chosen = data.draw(st.lists(st.sampled_from(range(len(labels)))))
    expected = [sum(a == b for a, b in pairwise(labels[i])) for i in chosen]
    repeated = Store.open(path).repeated_labels(np.array(chosen, dtype=np.int64))
    assert repeated.tolist() == expected


@pytest.mark.parametrize("lengths", [(5, 5), (5, 7)])
def test_equal_and_unequal_lengths_give_the_same_types(
    tmp_path: Path, lengths: tuple[int, int]
) -> None:
    write(tmp_path / "s", *(sequence(f"s{i}", length) for i, length in enumerate(lengths)))
    store = Store.open(tmp_path / "s")
    for i, length in enumerate(lengths):
        assert store.frames(i).shape == (length, 2)
        assert store.frames(i).dtype == np.float32
        np.testing.assert_array_equal(store.frames(i), sequence("", length).frames)
        assert store.labels(i).dtype == np.int32


def test_splits_hold_their_own_indices_in_order(tmp_path: Path) -> None:
    splits = ["validation", "train", "train", "validation"]
    write(tmp_path / "s", *(sequence(f"s{i}", split=name) for i, name in enumerate(splits)))
    store = Store.open(tmp_path / "s")
    assert store.split("train").tolist() == [1, 2]
    assert store.split("validation").tolist() == [0, 3]
    assert store.split("test").tolist() == []
    assert store.split("test").dtype == np.int64
    with pytest.raises(StoreError, match="train, validation, test"):
        store.split("dev")


def test_mean_and_deviation_are_those_of_the_training_frames(tmp_path: Path) -> None:
    def shifted(name: str, length: int, split: str = "train") -> Sequence:
        frames = np.random.default_rng(length).normal(4096, size=(length, 2))
        frames[:, 1] = 0.1
        return Sequence(name, frames.astype(np.float32), [1], split)

    parts = [shifted("a", 40), shifted("b", 3), shifted("c", 11)]
    meta = write(tmp_path / "s", *parts, shifted("v", 50, "validation"))
    frames = np.concatenate([part.frames for part in parts]).astype(np.float64)
    np.testing.assert_allclose(meta.feature_mean, frames.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(meta.feature_std, [frames[:, 0].std(), 1.0], rtol=1e-9)


def test_sequences_without_frames_are_dropped_and_named(tmp_path: Path) -> None:
    meta = write(tmp_path / "s", *(sequence(f"s{i}", 0 if i == 2 else 4) for i in range(5)))
    assert meta.dropped == ("s2",)
    assert meta.counts == {"train": 4, "validation": 0, "test": 0}
    store = Store.open(tmp_path / "s")
    assert [store.id(i) for i in range(4)] == ["s0", "s1", "s3", "s4"]


BAD = {
    "not finite": Sequence("bad", np.array([[0, 1], [np.nan, 0]]), [1]),
    "infinite": Sequence("bad", np.array([[0, 1e39]]), [1]),  # as float32
    "too few features": Sequence("bad", np.zeros((3, 1)), [1]),
    "text": Sequence("bad", np.array([["a", "b"]]), [1]),
    "blank": sequence("bad", labels=[1, 0]),
    "outside the alphabet": sequence("bad", labels=[3]),
    "fractions": sequence("bad", labels=[1.5]),
    "unknown split": sequence("bad", split="dev"),
    "unreadable": Unreadable("bad", "line 3, column 7"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_sequences_refuse_the_import_and_leave_nothing(
    tmp_path: Path, bad: Sequence | Unreadable
) -> None:
    with pytest.raises(ImportRefused, match=r"1 of 2 sequences .*--skip-bad.*\n  bad: "):
        write(tmp_path / "s", bad, sequence("good"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_skip_bad_leaves_bad_sequences_out_and_names_them(
    tmp_path: Path, bad: Sequence | Unreadable
) -> None:
    meta = write(tmp_path / "s", bad, sequence("good"), skip_bad=True)
    assert [text.split(":")[0] for text in meta.skipped] == ["bad"]
    store = Store.open(tmp_path / "s")
    assert [store.id(i) for i in range(len(store))] == ["good"]


@pytest.mark.parametrize("name", ["twice", "", "two\nlines", "two\rlines", "\ud800"])
def test_ids_must_be_unique_lines_of_text(tmp_path: Path, name: str) -> None:
    with pytest.raises(ImportRefused, match="id"):
        write(tmp_path / "s", sequence("twice"), sequence(name))


def test_long_lists_of_bad_sequences_are_cut_and_counted(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="30 of 30 sequences") as refused:
        write(tmp_path / "s", *(sequence(f"s{i}", labels=[9]) for i in range(30)))
    assert "and 10 more" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 22


def test_a_store_needs_a_training_sequence(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="no training sequence"):
        write(tmp_path / "s", sequence("v", split="validation"), sequence("empty", 0))


def test_an_existing_target_is_not_touched(tmp_path: Path) -> None:
    target = tmp_path / "s"
    target.mkdir()
    with pytest.raises(UsageError, match="exists"):
        write(target, sequence("a"))
    assert list(target.iterdir()) == []


def test_an_error_in_the_source_leaves_nothing(tmp_path: Path) -> None:
    def breaks() -> Iterator[Sequence]:
        yield sequence("a")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path / "s", breaks(), alphabet="ab", feature_names="xy")
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        write(tmp_path / "file" / "s", sequence("a"))


@pytest.mark.parametrize(
    "options",
    [
        {"alphabet": ()},
        {"alphabet": ("a", "a")},
        {"feature_names": ()},
        {"dtype": "int8"},
        {"scale": 0.5},
        {"dtype": "uint8", "scale": -1.0},
        {"pen": {"x": 0, "y": 1, "pen_up": 2}},
        {"pen": {"x": 0}},
    ],
)
def test_arguments_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    arguments = {"alphabet": "ab", "feature_names": ("x", "y")} | options
    with pytest.raises(UsageError):
        write_store(tmp_path / "s", [sequence("a")], **arguments)


def test_half_precision_comes_back_as_float32(tmp_path: Path) -> None:
    write(tmp_path / "s", sequence("a"), dtype="float16")
    frames = Store.open(tmp_path / "s").frames(0)
    assert frames.dtype == np.float32
    np.testing.assert_array_equal(frames, sequence("a").frames.astype(np.float16))


def test_bytes_come_back_scaled(tmp_path: Path) -> None:
    pixels = np.array([[0, 255], [51, 102]], dtype=np.uint8)
    meta = write(tmp_path / "s", Sequence("a", pixels, [1]), dtype="uint8", scale=1 / 255)
    np.testing.assert_allclose(Store.open(tmp_path / "s").frames(0), pixels / 255, rtol=1e-6)
    np.testing.assert_allclose(meta.feature_mean, [0.1, 0.7], rtol=1e-6)


def test_same_sequences_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = tiny_store(tmp_path / "a"), tiny_store(tmp_path / "b" / "c")
    files = sorted(file.name for file in first.iterdir())
    assert files == sorted(file.name for file in second.iterdir())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in files)
    assert Store.open(first).fingerprint == Store.open(second).fingerprint
    other = tiny_store(tmp_path / "d", seed=1)
    assert Store.open(first).fingerprint != Store.open(other).fingerprint


def test_frames_and_labels_are_the_callers_to_change(tmp_path: Path) -> None:
    store = Store.open(tiny_store(tmp_path / "s"))
    before = store.frames(0).copy(), store.labels(0).copy()
    store.frames(0)[:] = 7
    store.labels(0)[:] = 7
    np.testing.assert_array_equal(store.frames(0), before[0])
    np.testing.assert_array_equal(store.labels(0), before[1])


def test_folders_that_are_no_store_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="data import"):
        Store.open(tmp_path / "missing")
    with pytest.raises(StoreError, match=r"not a store: it has no meta\.json"):
        Store.open(tmp_path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tiny_store(tmp_path / "s")
    meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
    (path / "meta.json").write_text(json.dumps(meta | {"version": 99}))
    with pytest.raises(StoreError, match="format 99, this program reads 1"):
        Store.open(path)


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1}', "{]", "\udc80"])
def test_damaged_facts_are_refused(tmp_path: Path, content: str) -> None:
    path = tiny_store(tmp_path / "s")
    (path / "meta.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(StoreError, match=r"meta\.json is damaged"):
        Store.open(path)


FILES = ["frames", "frame_offsets", "labels", "label_offsets", "split"]


@pytest.mark.parametrize("name", [*(f"{name}.npy" for name in FILES), "ids.txt"])
@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_missing_and_truncated_files_are_named_on_opening(
    tmp_path: Path, name: str, damage: str
) -> None:
    file = tiny_store(tmp_path / "s") / name
    if damage == "cut":
        os.truncate(file, file.stat().st_size - 1)
    else:
        file.unlink()
    with pytest.raises(StoreError, match=name) as error:
        Store.open(file.parent)
    assert len(str(error.value).splitlines()) == 1


def flip_last_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("name", FILES[1:])
def test_changed_small_arrays_are_named_on_opening(tmp_path: Path, name: str) -> None:
    path = tiny_store(tmp_path / "s")
    flip_last_bit(path / f"{name}.npy")
    with pytest.raises(StoreError, match=rf"{name}\.npy is damaged"):
        Store.open(path)


@pytest.mark.parametrize("name", ["frames.npy", "ids.txt"])
def test_changed_large_files_are_named_by_verify(tmp_path: Path, name: str) -> None:
    path = tiny_store(tmp_path / "s")
    Store.open(path).verify()
    flip_last_bit(path / name)
    with pytest.raises(StoreError, match=f"{name} is damaged"):
        Store.open(path).verify()


def test_an_array_of_another_type_does_not_pass_for_the_frames(tmp_path: Path) -> None:
    path = tiny_store(tmp_path / "s")
    frames = np.load(path / "frames.npy")
    np.save(path / "frames.npy", frames.view(np.int32))
    with pytest.raises(StoreError, match="expected float32"):
        Store.open(path)
