"""KanjiVG: strokes at constant arc length, components as labels, lines of characters."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.data.readers import kanjivg
from mapreduce_rnn.data.readers.base import Import
from mapreduce_rnn.data.readers.bezier import cubic_curves, sample_paths
from mapreduce_rnn.data.readers.kanji import label, label_components, read_character
from mapreduce_rnn.data.store import Sequence, Store, Unreadable, write_store
from mapreduce_rnn.errors import ImportRefused

KVG = "http://kanjivg.tagaini.net"
HORIZONTAL = "M10,50c10,0,20,0,40,0"


def stroke(type_: str = "㇐", path: str = HORIZONTAL) -> str:
    return f'<path kvg:type="{type_}" d="{path}"/>'


def group(element: str, *inside: str, **more: str) -> str:
    attributes = "".join(f' kvg:{name}="{value}"' for name, value in more.items())
    return f'<g kvg:element="{element}"{attributes}>{"".join(inside)}</g>'


def svg(folder: Path, name: str, *inside: str, uri: str = KVG) -> Path:
    file = folder / f"{name}.svg"
    file.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:kvg="{uri}"><g id="kvg:StrokePaths">'
        f"{''.join(inside)}</g><g><text>1</text></g></svg>",
        encoding="utf-8",
    )
    return file


def labels_of(sequence: Sequence | Unreadable, alphabet: tuple[str, ...]) -> str:
    assert isinstance(sequence, Sequence)
    return "".join(alphabet[k - 1] for k in np.asarray(sequence.labels))


# ---- paths


def test_all_commands_give_absolute_control_points() -> None:
    curves = cubic_curves(" m1,2c1 0-.5.5,2,0s1,1 2,0C10,10,11,11,12,12S14,14,15-15 ")
    expected = [
        [1 + 2j, 2 + 2j, 0.5 + 2.5j, 3 + 2j],
        [3 + 2j, 5.5 + 1.5j, 4 + 3j, 5 + 2j],
        [5 + 2j, 10 + 10j, 11 + 11j, 12 + 12j],
        [12 + 12j, 13 + 13j, 14 + 14j, 15 - 15j],
    ]
    np.testing.assert_allclose(curves, expected)


def test_a_mirrored_curve_without_one_before_starts_at_the_pen() -> None:
    np.testing.assert_allclose(cubic_curves("M1,1S2,2,3,3"), [[1 + 1j, 1 + 1j, 2 + 2j, 3 + 3j]])


@pytest.mark.parametrize(
    "path",
    [
        "", "M1,1", "c1,1,2,2,3,3", "M1,1L2,2", "M1,1c1,1,2,2", "M1,1c1,1,2,2,3", "M1,1s1,1,2,x",
        "M1,1c1,1,2,2,3,3M4,4c1,1,2,2,3,3", "M1c1,1,2,2,3,3",
    ],
)  # fmt: skip
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        sample_paths([path], 8.0)


def test_points_on_a_straight_line_are_evenly_spaced_whatever_the_speed() -> None:
    [points] = sample_paths(["M0,0c0,0,1,0,40,0"], 8.0)  # slow at first, then fast
    np.testing.assert_allclose(points, np.arange(6) * 8.0, atol=0.05)


@given(
    x=st.lists(st.floats(-50, 50, width=16), min_size=4, max_size=4),
    y=st.lists(st.floats(-50, 50, width=16), min_size=4, max_size=4),
)
def test_a_stroke_never_vanishes_and_keeps_its_ends(x: list[float], y: list[float]) -> None:
    start, *rest = [f"{a:.4f},{b:.4f}" for a, b in zip(x, y, strict=True)]
    [points] = sample_paths([f"M{start}C{' '.join(rest)}"], 8.0)
    assert len(points) >= 2
    np.testing.assert_allclose(points[[0, -1]], [x[0] + 1j * y[0], x[3] + 1j * y[3]], atol=1e-4)
    assert np.abs(np.diff(points)).max() <= 12.0  # below half a step, one is stretched


def test_a_dot_keeps_two_points() -> None:
    dots = sample_paths(["M5,5c0,0,0,0,0,0", "M5,5c0.1,0,0.2,0,0.3,0"], 8.0)
    assert [len(points) for points in dots] == [2, 2]


def test_strokes_sampled_together_do_not_touch_each_other() -> None:
    paths = ["M0,0c0,0,5,40,40,0", "M5,5c0,0,0,0,0,0", "M90,90C0,1,2,3,4,5", "M4,5c1,1,9,9,20,0"]
    for path, together in zip(paths, sample_paths(paths, 8.0), strict=True):
        np.testing.assert_allclose(together, sample_paths([path], 8.0)[0], atol=1e-9)


# ---- labels


def test_labels_are_deepest_components_then_strokes(tmp_path: Path) -> None:
    inner = group("日", stroke(), stroke())
    file = svg(tmp_path, "04e00", group("明", inner, group("月", stroke("㇑"))), stroke("㇔/㇏"))
    character = read_character(file)
    assert label(character, {"日", "月", "明"}) == ["日", "月", "㇔"]
    assert label(character, {"日"}) == ["日", "㇑", "㇔"]
    assert label(character, {"明"}) == ["明", "㇔"]
    assert label(character, set()) == ["㇐", "㇐", "㇑", "㇔"]


def test_a_stroke_beside_a_deeper_component_stands_for_itself(tmp_path: Path) -> None:
    file = svg(tmp_path, "04e00", group("国", stroke("㇑"), group("玉", stroke()), stroke("㇕a")))
    assert label(read_character(file), {"国", "玉"}) == ["㇑", "玉", "㇕"]


def test_a_component_in_two_parts_counts_once_where_it_starts(tmp_path: Path) -> None:
    parts = [group("木", stroke(), part="1"), stroke("㇑"), group("木", stroke(), part="2")]
    assert label(read_character(svg(tmp_path, "04e00", *parts)), {"木"}) == ["木", "㇑"]
    twice = read_character(svg(tmp_path, "04e01", *parts, *parts))
    assert label(twice, {"木"}) == ["木", "㇑", "木", "㇑"]


def test_parts_go_by_the_number_of_their_component(tmp_path: Path) -> None:
    first, rest = (group("木", stroke(), number="1", part=part) for part in "12")
    other = group("木", group("口", stroke()), number="2", part="1")
    character = read_character(svg(tmp_path, "04e00", first, other, rest))
    assert label(character, {"木", "口"}) == ["木", "口"]


def test_two_of_a_component_count_twice(tmp_path: Path) -> None:
    file = svg(tmp_path, "04e00", group("木", stroke()), group("木", stroke()))
    assert label(read_character(file), {"木"}) == ["木", "木"]


@pytest.mark.parametrize(
    ("type_", "base"),
    [("㇆v", "㇆"), ("㇐b/㇔", "㇐"), ("\uff16", "㇀"), ("一", "㇐"), ("㇔/㇑a", "㇔")],
)
def test_stroke_types_lose_letters_alternatives_and_typos(
    tmp_path: Path, type_: str, base: str
) -> None:
    assert label(read_character(svg(tmp_path, "04e00", stroke(type_))), set()) == [base]


def test_a_component_needs_twenty_characters_and_to_be_deepest_in_one(tmp_path: Path) -> None:
    often = group("言", group("口", stroke()))
    files = [svg(tmp_path, f"{0x4E00 + i:05x}", often) for i in range(20)]
    rare = svg(tmp_path, "05000", group("木", stroke()))
    characters = [read_character(file) for file in [*files, rare]]
    assert label_components(characters) == {"口"}
    assert label_components(characters[1:]) == frozenset()


@pytest.mark.parametrize("uri", [KVG, "https://kanjivg.tagaini.net/", "urn:other"])
def test_any_namespace_uri_will_do(tmp_path: Path, uri: str) -> None:
    character = read_character(svg(tmp_path, "04e00", group("木", stroke()), uri=uri))
    assert label(character, {"木"}) == ["木"]


def test_another_prefix_reads_the_same(tmp_path: Path) -> None:
    file = svg(tmp_path, "04e00", group("木", stroke()))
    other = tmp_path / "04e01.svg"
    other.write_text(file.read_text("utf-8").replace("kvg", "k"), "utf-8")
    assert read_character(other).strokes == read_character(file).strokes


# ---- sequences


def small_folder(folder: Path, n: int = 40) -> Path:
    folder.mkdir()
    for i in range(n):
        path = f"M{i},20c5,5,10,10,20,30"
        svg(folder, f"{0x4E00 + i:05x}", group("木", stroke()), stroke("㇔", path))
    return folder


def test_features_of_a_point(tmp_path: Path) -> None:
    paths = ["M10.9,54.5c10,0,12,0,16,0", "M54.5,0c0,5,0,10,0,16"]
    svg(tmp_path, "04e01", *(stroke(path=path) for path in paths))
    [sequence] = kanjivg.read(tmp_path, lines=False, seed=0).sequences
    assert isinstance(sequence, Sequence)
    one, step = 1.0, 8 / 109
    expected = [  # x, y, direction, jump, start
        [0.1, 0.5, 0, 0, 0, 0, one],
        [0.1 + step, 0.5, 1, 0, 0, 0, 0],
        [0.1 + 2 * step, 0.5, 1, 0, 0, 0, 0],
        [0.5, 1.0, 0, 0, 0.4 - 2 * step, 0.5, one],
        [0.5, 1.0 - step, 0, -1, 0, 0, 0],
        [0.5, 1.0 - 2 * step, 0, -1, 0, 0, 0],
    ]
    assert sequence.frames.dtype == np.float32
    np.testing.assert_allclose(sequence.frames, expected, atol=2e-3)


def test_a_line_is_its_characters_side_by_side(tmp_path: Path) -> None:
    folder = small_folder(tmp_path / "svg")
    single = {s.id: s for s in kanjivg.read(folder, lines=False, seed=0).sequences}
    lines = [s for s in kanjivg.read(folder, lines=True, seed=0).sequences if len(s.id) > 1]
    for line in lines:
        parts = [single[character] for character in line.id]
        assert isinstance(line, Sequence)
        assert all(isinstance(s, Sequence) and s.split == line.split for s in parts)
        assert list(line.labels) == [k for s in parts for k in s.labels]
        assert len(line.frames) == sum(len(s.frames) for s in parts)
        last = parts[-1].frames[:, 0] + (len(parts) - 1) * 120 / 109
        np.testing.assert_allclose(line.frames[-len(last) :, 0], last, rtol=1e-5)
    assert {len(line.id) for line in lines} > {2, 3}


def test_one_line_starts_from_each_character(tmp_path: Path) -> None:
    sequences = list(kanjivg.read(small_folder(tmp_path / "svg"), lines=True, seed=3).sequences)
    assert sorted(s.id[0] for s in sequences) == [chr(0x4E00 + i) for i in range(40)]
    for s in sequences:
        assert isinstance(s, Sequence)
        assert (s.split == "validation") == kanjivg.in_validation(ord(s.id[0]))


def test_training_lines_follow_the_seed_and_validation_lines_do_not(tmp_path: Path) -> None:
    folder = small_folder(tmp_path / "svg")

    def ids(seed: int, split: str) -> list[str]:
        sequences = kanjivg.read(folder, lines=True, seed=seed).sequences
        return [s.id for s in sequences if isinstance(s, Sequence) and s.split == split]

    assert ids(1, "train") == ids(1, "train")
    assert ids(1, "train") != ids(2, "train")
    assert ids(1, "validation") == ids(2, "validation") != []


def write(path: Path, ready: Import) -> Store:
    write_store(path, **vars(ready))
    return Store.open(path)


def test_order_of_the_files_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_folder(tmp_path / "svg")
    first = write(tmp_path / "a", kanjivg.read(folder, lines=True, seed=1))
    files = sorted(folder.iterdir(), reverse=True)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(files))
    second = write(tmp_path / "b", kanjivg.read(folder, lines=True, seed=1))
    assert first.fingerprint == second.fingerprint


def test_variants_kana_and_other_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("04e01", "04e01-Kaisho", "03042", "00041", "notes"):
        svg(tmp_path, name, stroke())
    assert [s.id for s in kanjivg.read(tmp_path, lines=False, seed=0).sequences] == ["丁"]


def test_broken_files_are_named_with_line_and_column(tmp_path: Path) -> None:
    folder = small_folder(tmp_path / "svg", 9)
    (folder / "04e01.svg").write_text("<svg>\n<g><</svg>")
    svg(folder, "04e02", '<path d="M1,1c1,1,2,2,3,3"/>')
    bad = [s for s in kanjivg.read(folder, lines=True, seed=0).sequences if s.id.endswith("svg")]
    assert [s.id for s in bad] == ["04e01.svg", "04e02.svg"]
    assert isinstance(bad[0], Unreadable)
    assert "line 2, column 4" in bad[0].reason
    with pytest.raises(ImportRefused, match="2 of 9"):
        write(tmp_path / "store", kanjivg.read(folder, lines=True, seed=0))


def test_entities_are_refused(tmp_path: Path) -> None:
    folder = small_folder(tmp_path / "svg", 9)
    text = (folder / "04e01.svg").read_text(encoding="utf-8").replace("<text>1", "<text>&a;")
    entity = '<!DOCTYPE svg [<!ENTITY a "aaaaaaaaaa">]>'
    (folder / "04e01.svg").write_text(entity + text, encoding="utf-8")
    [bad] = [s for s in kanjivg.read(folder, lines=False, seed=0).sequences if len(s.id) > 1]
    assert isinstance(bad, Unreadable)
    assert (bad.id, bad.reason) == ("04e01.svg", "expected no entities, got a declaration of 'a'")


def test_labels_that_training_lacks_are_named(tmp_path: Path) -> None:
    folder = small_folder(tmp_path / "svg")
    held_out = next(0x4E00 + i for i in range(40) if kanjivg.in_validation(0x4E00 + i))
    svg(folder, f"{held_out:05x}", stroke("㇡"))
    ready = kanjivg.read(folder, lines=False, seed=0)
    assert "㇡" not in ready.alphabet
    unknown = [s for s in ready.sequences if isinstance(s, Unreadable)]
    assert [s.id for s in unknown] == [chr(held_out)]
    assert "㇡" in unknown[0].reason


def test_a_folder_without_kanji_states_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "strokes.xml").write_text("<x/>")
    with pytest.raises(ImportRefused, match=r"such as 04e00\.svg"):
        kanjivg.read(tmp_path, lines=True, seed=0)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(ImportRefused, match=r"pip install 'mapreduce-rnn\[demo\]'") as error:
        kanjivg.read(None, lines=True, seed=0)
    assert len(str(error.value).splitlines()) == 1


def test_the_package_gives_the_sequences_of_the_demo(tmp_path: Path) -> None:
    try:
        version = importlib.metadata.version("kanjivg")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs the package kanjivg")
    if version != "20260714":
        pytest.skip(f"figures of version 20260714, found {version}")
    store = write(tmp_path / "s", kanjivg.read(None, lines=True, seed=0))
    training = store.lengths[store.split("train")]
    assert store.meta.counts == {"train": 5785, "validation": 646, "test": 0}
    assert (len(store.meta.alphabet), store.meta.dropped, store.meta.skipped) == (168, (), ())
    assert 170 < training.mean() < 185
    assert 1400 < training.max() < 1600
    assert "CC BY-SA 3.0" in store.meta.attribution
