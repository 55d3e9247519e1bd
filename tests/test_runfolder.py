"""The run folder: its name, and when it goes and when it stays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from faultydisk import full_after
from inprocess import interrupted_in, resume, train
from mapreduce_rnn import checkpoint, runfolder
from mapreduce_rnn.config import TrainConfig
from mapreduce_rnn.errors import Interrupted, UsageError
from mapreduce_rnn.runfolder import RunFolder
from runs_real import lines, result_bytes
from smalltask import SmallTask

STORE = {"path": "somewhere", "fingerprint": "0" * 64}
TRACES = {"workers", "master.log", "events.jsonl", ".config.toml", "checkpoints"}


def new(path: Path) -> RunFolder:
    return RunFolder(path, resume=False)


def test_a_run_that_never_began_leaves_its_name_free(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", resume=False) as folder:
        assert not folder.began
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def left(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What kill -9 leaves just before config.toml gets its name, of a run from another's model."""
    folder = tmp_path_factory.mktemp("left")
    write_config, killed = RunFolder.write_config, folder / "killed"

    def copied_first(run: RunFolder, *facts: Any) -> None:
        (run.path / ".config.toml").write_text("half")
        (run.path / "workers" / "0.log").write_text("imported torch\n")
        shutil.copytree(run.path, killed)
        write_config(run, *facts)

    train(small_store, folder / "other", make_task=SmallTask, epochs=1)
    with mock.patch.object(RunFolder, "write_config", copied_first):
        train(small_store, folder / "run", init_from=folder / "other", make_task=SmallTask)
    assert {path.name for path in killed.iterdir()} == TRACES
    return killed


@pytest.fixture
def killed(left: Path, tmp_path: Path) -> Path:
    return shutil.copytree(left, tmp_path / "killed")


def test_a_run_that_was_killed_before_it_began_gives_its_folder_to_another(
    small_store: Path, tmp_path: Path, killed: Path
) -> None:
    """Which does not start from the model that the first one was given, resumed or not."""
    for run in (killed, tmp_path / "new"):
        with pytest.raises(Interrupted):
            train(small_store, run, compute=interrupted_in(1), make_task=SmallTask, epochs=2)
        resume(run, make_task=SmallTask)
    assert result_bytes(killed) == result_bytes(tmp_path / "new")
    events = [event["event"] for event in lines(killed / "events.jsonl")]
    assert events[:3] == ["start", "start", "end"]
    assert (killed / "workers" / "0.log").read_text() == "imported torch\n"


@pytest.mark.parametrize(
    "name",
    ["notes.txt", "metrics.jsonl", "config.toml", "workers/a.log", "checkpoints/round-000001",
     "checkpoints/round-000000/notes.txt"],
)  # fmt: skip
def test_a_folder_with_anything_else_in_it_is_refused_and_left_alone(
    killed: Path, name: str
) -> None:
    (killed / name).mkdir()
    before = sorted(killed.rglob("*"))
    with pytest.raises(UsageError, match="exists: choose another"), new(killed):
        pass
    assert sorted(killed.rglob("*")) == before


def test_what_is_linked_from_elsewhere_is_nobodys_to_delete(killed: Path, tmp_path: Path) -> None:
    (killed / "checkpoints").rename(tmp_path / "checkpoints")
    (killed / "checkpoints").symlink_to(tmp_path / "checkpoints")
    with pytest.raises(UsageError, match="exists: choose another"), new(killed):
        pass
    assert checkpoint.load(tmp_path).round == 0


def test_a_folder_that_was_there_stays_though_again_no_run_began(tmp_path: Path) -> None:
    """Also an empty one."""
    for _ in range(2):
        with new(tmp_path):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["workers"]


def test_a_session_that_starts_is_not_taken_for_one_that_was_killed(tmp_path: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    with (
        new(tmp_path / "run"),
        pytest.raises(UsageError, match="in use by another"),
        new(tmp_path / "run"),
    ):
        pass
    assert len(os.listdir("/proc/self/fd")) == descriptors


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


def test_a_folder_on_a_full_disk_is_let_go_of(tmp_path: Path) -> None:
    """Room for the folder, none for the one of the workers' logs in it."""
    with pytest.raises(UsageError, match="cannot make the folder"), full_after(1):
        RunFolder(tmp_path / "run", resume=False).__enter__()
    with RunFolder(tmp_path / "run", resume=False) as folder:
        assert (folder.path / "workers").is_dir()
