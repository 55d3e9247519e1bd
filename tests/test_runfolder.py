"""The run folder: its name, and when it goes and when it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from mapreduce_rnn import runfolder
from mapreduce_rnn.config import TrainConfig
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.runfolder import RunFolder

STORE = {"path": "somewhere", "fingerprint": "0" * 64}


def test_a_run_that_never_began_leaves_its_name_free(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", resume=False) as folder:
        assert not folder.began
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_that_began_stays_even_if_its_config_is_taken_away(
    tmp_path: Path, resumed: bool
) -> None:
    if resumed:
        (tmp_path / "run").mkdir()
    with RunFolder(tmp_path / "run", resume=resumed) as folder:
        folder.write_config(TrainConfig(), STORE, {})
        (folder.path / runfolder.CONFIG).unlink()
    assert (tmp_path / "run").is_dir()


def test_a_config_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", resume=False) as folder:
        folder.write_config(TrainConfig(), STORE, {"anything": 1})
    recorded = runfolder.read_config(tmp_path / "run")
    assert recorded == runfolder.Recorded(Path("somewhere"), "0" * 64, TrainConfig())


def test_a_later_session_keeps_what_only_the_first_one_decided(tmp_path: Path) -> None:
    first = {"bucket_choice": "12 of up to 32", "rounds": 5}
    with RunFolder(tmp_path / "run", resume=False) as folder:
        folder.write_config(TrainConfig(), STORE, first)
    with RunFolder(tmp_path / "run", resume=True) as folder:
        folder.write_config(TrainConfig(), STORE, {"rounds": 9})
    recorded = runfolder.read_toml(tmp_path / "run" / runfolder.CONFIG)
    assert recorded["plan"] == first | {"rounds": 9}


def test_latest_is_the_run_that_was_begun_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no run under runs/"):
        runfolder.find("latest")
    for name in ("z", "a"):
        with RunFolder(Path("runs") / name, resume=False) as folder:
            folder.write_config(TrainConfig(), STORE, {})
    assert runfolder.find("latest") == Path("runs/a")


def test_a_run_is_named_after_its_store_also_when_that_is_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kanji.store").mkdir()
    monkeypatch.chdir(tmp_path / "kanji.store")
    assert runfolder.default_path(Path()).name.startswith("kanji.store-")
