"""Own data: arrays in one .npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapreduce_rnn.data.readers import npz
from mapreduce_rnn.data.store import Store, write_store
from mapreduce_rnn.errors import ImportRefused

N = 20
TEXTS = ["ab", "b a", "", "aab"] * 5


def arrays(**changes: Any) -> dict[str, Any]:
    """Twenty sequences of 1, 2, .. frames; a change to None takes an array away."""
    offsets = np.cumsum([0, *range(1, N + 1)])
    frames = np.random.default_rng(0).normal(size=(int(offsets[-1]), 3))
    values = {"frames": frames, "offsets": offsets, "texts": np.array(TEXTS)} | changes
    return {name: value for name, value in values.items() if value is not None}


def labelled(**changes: Any) -> dict[str, Any]:
    """The same with numbers as labels, two for each sequence."""
    labels = {"labels": np.tile([1, 3], N), "label_offsets": np.arange(0, 2 * N + 1, 2)}
    return arrays(**({"texts": None} | labels | changes))


def save(folder: Path, values: dict[str, Any]) -> Path:
    file = folder / "own.npz"
    np.savez(file, **values)
    return file


def imported(folder: Path, values: dict[str, Any], **options: Any) -> Store:
    write_store(folder / "store", **vars(npz.read(save(folder, values))), **options)
    return Store.open(folder / "store")


def splits(store: Store) -> dict[str, str]:
    """Split of each id."""
    names = ("train", "validation", "test")
    return {store.id(int(i)): name for name in names for i in store.split(name)}


def test_texts_become_labels(tmp_path: Path) -> None:
    values = arrays()
    store = imported(tmp_path, values)
    assert store.meta.alphabet == (" ", "a", "b")
    assert store.meta.feature_names == ("f0", "f1", "f2")
    assert store.lengths.tolist() == list(range(1, N + 1))
    for i, text in enumerate(TEXTS):
        assert "".join(store.meta.alphabet[k - 1] for k in store.labels(i)) == text
        start, stop = values["offsets"][i : i + 2]
        np.testing.assert_array_equal(store.frames(i), values["frames"][start:stop].astype("f4"))


def test_numbers_become_labels(tmp_path: Path) -> None:
    store = imported(tmp_path, labelled())
    assert store.meta.alphabet == ("1", "2", "3")
    assert store.labels(7).tolist() == [1, 3]


def test_everything_optional_is_kept(tmp_path: Path) -> None:
    store = imported(
        tmp_path,
        labelled(
            alphabet=["x", "y", "z"], feature_names=["x", "y", "up"], pen=[0, 1, 2],
            ids=[f"s{i}" for i in range(N)], split=["train", "test"] * (N // 2),
            attribution="someone, CC BY 4.0",
        ),
    )  # fmt: skip
    assert store.meta.alphabet == ("x", "y", "z")
    assert store.meta.feature_names == ("x", "y", "up")
    assert store.meta.pen == {"x": 0, "y": 1, "pen_up": 2}
    assert store.meta.attribution == "someone, CC BY 4.0"
    assert store.meta.counts == {"train": 10, "validation": 0, "test": 10}
    assert splits(store)["s1"] == "test"


@pytest.mark.parametrize("dtype", ["float16", "float32", "uint8"])
def test_dtypes_that_a_store_knows_are_kept(tmp_path: Path, dtype: str) -> None:
    frames = np.arange(3 * 210).reshape(210, 3) % 200
    store = imported(tmp_path, arrays(frames=frames.astype(dtype)))
    assert store.meta.dtype == dtype
    np.testing.assert_array_equal(store.frames(19), frames[190:])


def test_bytes_can_have_a_scale(tmp_path: Path) -> None:
    frames = np.full((210, 3), 51, dtype=np.uint8)
    store = imported(tmp_path, arrays(frames=frames, scale=1 / 255))
    np.testing.assert_allclose(store.frames(0), 0.2, rtol=1e-6)


def test_a_tenth_is_for_validation_and_always_the_same(tmp_path: Path) -> None:
    ids = np.array([f"s{i}" for i in range(N)])
    one, two = tmp_path / "1", tmp_path / "2"
    one.mkdir()
    two.mkdir()
    first = imported(one, labelled(ids=ids))
    second = imported(two, labelled(ids=ids[::-1]))
    assert first.meta.counts == {"train": 18, "validation": 2, "test": 0}
    assert splits(first) == splits(second)


def test_a_group_is_in_one_split_only(tmp_path: Path) -> None:
    groups = np.arange(N) % 5
    store = imported(tmp_path, labelled(groups=groups))
    sides: dict[int, set[str]] = {}
    for name, split in splits(store).items():
        sides.setdefault(int(groups[int(name)]), set()).add(split)
    assert sorted(map(len, sides.values())) == [1] * 5
    assert store.meta.counts["validation"] == N // 5


def test_a_given_split_may_not_divide_a_group(tmp_path: Path) -> None:
    values = labelled(groups=np.arange(N) // 2, split=["train", "validation"] * (N // 2))
    with pytest.raises(ImportRefused, match="group '0' is in both train and validation"):
        npz.read(save(tmp_path, values))


def test_only_training_texts_make_the_alphabet(tmp_path: Path) -> None:
    texts, split = ["ab"] * (N - 1) + ["abc"], ["train"] * (N - 1) + ["validation"]
    values = arrays(texts=texts, split=split)
    with pytest.raises(ImportRefused, match=r"1 of 20 .*--skip-bad.*\n  19: .*'c'"):
        imported(tmp_path, values)
    store = imported(tmp_path, values, skip_bad=True)
    assert store.meta.alphabet == ("a", "b")
    assert len(store) == N - 1
    assert store.meta.skipped == ("19: characters outside the alphabet: 'c'",)


def test_not_a_number_is_named_by_sequence_and_frame(tmp_path: Path) -> None:
    frames = arrays()["frames"]
    frames[4, 1] = np.nan  # second frame of sequence 2
    with pytest.raises(ImportRefused, match="2: frame 1 is not finite"):
        imported(tmp_path, arrays(frames=frames))


def test_sequences_without_frames_are_dropped(tmp_path: Path) -> None:
    offsets = np.array([0, 3, 3, 210])
    store = imported(tmp_path, arrays(offsets=offsets, texts=["a", "b", "b"], split=["train"] * 3))
    assert store.meta.dropped == ("1",)
    assert len(store) == 2


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "no frames": (arrays(frames=None), "'frames' is missing"),
    "no offsets": (arrays(offsets=None), "'offsets' is missing"),
    "no labels": (arrays(texts=None), "'label_offsets' is missing"),
    "half of the labels": (labelled(label_offsets=None), "'label_offsets' is missing"),
    "both labels": (labelled(texts=TEXTS), "either texts or labels"),
    "unknown name": (arrays(group=np.arange(N)), "unknown array 'group'"),
    "flat frames": (arrays(frames=np.zeros(210)), "expected frames to be numbers in 2"),
    "complex frames": (arrays(frames=np.zeros((210, 3), complex)), "expected frames"),
    "real offsets": (arrays(offsets=np.linspace(0, 210, 21)), "expected offsets to be integers"),
    "bytes as texts": (arrays(texts=np.array(TEXTS, "S3")), "expected texts to be strings"),
    "objects": (arrays(texts=np.array(TEXTS, object)), "'texts' is damaged or holds Python"),
    "short offsets": (arrays(offsets=np.arange(N + 1)), "expected offsets from 0 to 210"),
    "late offsets": (arrays(offsets=np.array([1, 210])), "got 1 .. 210"),
    "no offset": (arrays(offsets=np.array([], int)), "got none"),
    "falling offsets": (arrays(offsets=np.array([0, 9, 8, 210])), "fall after [1]"),
    "few texts": (arrays(texts=TEXTS[1:]), "expected 20 texts, got 19"),
    "many ids": (arrays(ids=np.arange(21)), "expected 20 ids, got 21"),
    "few names": (arrays(feature_names=["x"]), "expected 3 feature_names, got 1"),
    "short pen": (arrays(pen=[0, 1]), "expected 3 pen, got 2"),
    "label offsets": (labelled(label_offsets=np.arange(N + 1)), "label_offsets from 0 to 40"),
    "split": (arrays(split=["dev"] * N), "got 'dev'"),
    "nothing to learn": (arrays(texts=[""] * N), "no training sequence has a label"),
}  # fmt: skip


@pytest.mark.parametrize(("values", "message"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_arrays_are_refused_in_one_line(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ImportRefused) as error:
        npz.read(save(tmp_path, values))
    assert message in str(error.value)
    assert "own.npz" in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"hello", b"\x93NUMPY\x01\x00"])
def test_files_that_are_no_npz_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "own.npz"
    file.write_bytes(content)
    with pytest.raises(ImportRefused, match=r"own\.npz: not an \.npz file"):
        npz.read(file)


def test_missing_cut_and_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match=r"cannot read .*No such file"):
        npz.read(tmp_path / "missing.npz")
    file = save(tmp_path, arrays())
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(ImportRefused, match="not a whole one"):
        npz.read(file)
    file.write_bytes(content[:300] + b"?" + content[301:])
    with pytest.raises(ImportRefused, match="'frames' is damaged"):
        npz.read(file)
