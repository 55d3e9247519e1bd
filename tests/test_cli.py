"""The command line: mistakes are one line, output is plain, files are where they are said to be."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from killing import killed_at_last
from mapreduce_rnn import cli
from mapreduce_rnn.config import TrainConfig, from_dict
from mapreduce_rnn.data.store import Sequence, Store, write_store
from runs_real import SMALL, FinishedRun, result_bytes
from stores import ALPHABET, FEATURES, tiny_store


def failing(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    """Exit code and the one line of a command that fails."""
    try:
        code = cli.main([str(a) for a in arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return code, err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--units", "0"], "--units must be at least 1, got 0"),
        (["--units", "many"], "--units: invalid int value: 'many'"),
        (["--learning-rate", "nan"], "--learning-rate must be a finite number"),
        (["--optimizer", "lbfgs"], "choose from 'adam', 'adamw', 'sgd'"),
        (["--unit", "3"], "unrecognized arguments: --unit"),
        (["--gpus", "2", "--cpu-workers", "2"], "--gpus and --cpu-workers exclude each other"),
        (["--gpus", "2"], "--cpu-workers 2"),
        (["--keep", "0"], "--keep must be at least 1"),
        (["--devices", "0,1"], "--cpu-workers 2"),
        (["--gpus", "two"], "--gpus two: expected a number from 1 on, or auto"),
        (["--epochs", "1" + 24 * "0"], "--epochs must be at most 9223372036854775807"),
        (["--units", "999999999", "--dry-run"], "a model of this size cannot be built"),
        (["--config", ""], "cannot read .: Is a directory"),
        (["--config", "missing.toml"], "cannot read missing.toml: No such file"),
        (["--resume", "latest"], "leave out the store"),
        (["--cpu-workers", "1", "--message-limit", "0.01"], "--message-limit 0.01 MB is less than"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, options: list[str], expected: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    code, line = failing(capsys, "train", store, *options)
    assert code == 2
    assert expected in line
    assert not list(tmp_path.glob("runs/*"))


def test_a_store_that_is_missing_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = failing(capsys, "train", tmp_path / "none")
    assert code == 1
    assert f"no store at {tmp_path / 'none'}" in line


def test_a_damaged_store_is_one_line(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(store, tmp_path / "store")
    os.truncate(copy / "frames.npy", 200)
    code, line = failing(capsys, "train", copy)
    assert code == 1
    assert "frames.npy is damaged" in line


def test_a_store_without_validation_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_store(
        tmp_path / "store", [Sequence("a", np.ones((5, 3), np.float32), [1], "train")],
        alphabet=ALPHABET, feature_names=FEATURES,
    )  # fmt: skip
    code, line = failing(capsys, "train", tmp_path / "store")
    assert code == 1
    assert "no validation sequences" in line


def test_a_run_folder_that_exists_is_refused_and_left_alone(
    finished: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished.path / "metrics.jsonl").read_bytes()
    code, line = failing(capsys, "train", finished.store, "--run-dir", finished.path)
    assert code == 2
    assert f"--resume {finished.path}" in line
    assert (finished.path / "metrics.jsonl").read_bytes() == before


def test_a_run_in_use_is_refused(finished: FinishedRun, capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["flock", finished.path, "cat"], stdin=subprocess.PIPE) as holder:
        deadline = time.monotonic() + 10
        while not _is_locked(finished.path) and time.monotonic() < deadline:
            pass
        code, line = failing(capsys, "train", "--resume", finished.path, "--epochs", "9")
        holder.communicate()
    assert code == 2
    assert "in use by another" in line


def _is_locked(path: Path) -> bool:
    return subprocess.run(["flock", "-n", path, "true"], check=False).returncode != 0


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("units = 8", "units = 9", "units was 8 up to round 3, now it is 9: set it back"),
        ("[batches]", "[batch]", "unknown section [batch]"),
        ("path = ", "path = '/gone' #", "no longer at /gone: put it back, or set its path"),
        ("[store]", "[shop]", "does not name a store"),
        ("layers = ", "layers ", "is not valid TOML"),
    ],
)
def test_a_run_whose_config_was_edited_is_one_line(
    finished: FinishedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    old: str, new: str, expected: str,
) -> None:  # fmt: skip
    """Nothing is started and the run stays as it is."""
    copy = shutil.copytree(finished.path, tmp_path / "run")
    config = copy / "config.toml"
    config.write_text(config.read_text().replace(old, new))
    _, line = failing(capsys, "train", "--resume", copy, "--epochs", "4", "--cpu-workers", "1")
    assert expected in line
    assert result_bytes(copy) == result_bytes(finished.path)
    assert FinishedRun(copy, finished.store, "").events("worker") == finished.events("worker")


@pytest.mark.parametrize("name", ["nothing", "."])
def test_what_is_no_run_cannot_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, line = failing(capsys, "train", "--resume", name)
    assert code == 2
    assert f"cannot resume {name}: it has no config.toml, so is no run" in line


def test_unknown_names_in_a_config_file_list_the_known_ones(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[model]\nunitz = 3\n")
    code, line = failing(capsys, "train", store, "--config", file)
    assert code == 2
    assert "unknown option 'unitz' in [model]; known: layers, units, bidirectional, " in line


def test_a_config_file_with_a_value_of_the_wrong_type_names_it(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[model]\nunits = "96"\n')
    code, line = failing(capsys, "train", store, "--config", file)
    assert code == 2
    assert "--units must be a value of type int, got '96'" in line


def test_the_config_of_a_run_is_a_config_file_and_has_no_open_option(
    finished: FinishedRun,
) -> None:
    values = tomllib.loads((finished.path / "config.toml").read_text())
    sections = {k: v for k, v in values.items() if k not in ("store", "plan")}
    config = from_dict(sections, "config.toml")
    assert config.model.units == 8
    assert config.model.kernel == "padded"
    assert config.run.threads is not None
    assert config.mapreduce.map_tasks == 2
    assert config.optimizer.horizon == 3.0
    assert TrainConfig() != config


def test_a_dry_run_shows_the_plan_and_writes_nothing(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", str(store), "--cpu-workers", "2", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "padding expected" in out
    assert "nothing was started" in out
    assert not list(tmp_path.iterdir())


def test_a_run_says_what_where_and_how_good_in_plain_narrow_lines(finished: FinishedRun) -> None:
    out = finished.output
    for told in (
        "2 CPU workers",
        "parameters",
        "padding expected",
        "3/3",
        "verdict",
        "report.html",
    ):
        assert told in out
    assert "\r" not in out
    assert "\x1b" not in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert len(out.splitlines()) <= 30


def test_a_run_leaves_what_the_readme_lists(finished: FinishedRun) -> None:
    for name in ("report.html", "model.safetensors", "config.toml", "master.log", "examples.json"):
        assert (finished.path / name).stat().st_size > 0
    assert {p.name for p in (finished.path / "workers").iterdir()} == {"0.log", "1.log"}
    assert [line["round"] for line in finished.metrics()] == [1, 2, 3]
    assert all(line["validation"]["sequences"] == 8 for line in finished.metrics())
    assert len(finished.events("round")) == 3
    assert finished.events("end")[0]["reason"] == "3 epochs done"


def test_the_best_model_is_the_one_of_the_best_round(finished: FinishedRun) -> None:
    best = min(finished.metrics(), key=lambda line: line["validation"]["loss"])["round"]
    checkpoint = finished.path / "checkpoints" / f"round-{best:06d}" / "model.safetensors"
    assert (finished.path / "model.safetensors").read_bytes() == checkpoint.read_bytes()


def test_logs_of_a_calm_run_hold_no_warning(finished: FinishedRun) -> None:
    for log in [finished.path / "master.log", *(finished.path / "workers").iterdir()]:
        assert "warn" not in log.read_text().lower()


def test_a_reader_that_closes_early_costs_nothing(store: Path, tmp_path: Path) -> None:
    """Piped into a program that reads one line: training goes on, no traceback."""
    options = ["--run-dir", tmp_path / "run", "--cpu-workers", "1", "--epochs", "2", *SMALL]
    arguments = ["train", store, *options]
    with subprocess.Popen(
        [sys.executable, "-m", "mapreduce_rnn", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process, killed_at_last(process):  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()
        assert process.wait(60) == 0
    assert errors == ""
    assert (tmp_path / "run" / "checkpoints" / "round-000002").is_dir()


STOPS = pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])


@STOPS
def test_a_stop_signal_while_modules_are_imported_is_one_line(
    tmp_path: Path, signum: signal.Signals, code: int
) -> None:
    """A module that the command needs says that it is there, and keeps it waiting."""
    slow = "import signal\nprint('importing', flush=True)\nsignal.pause()\n"
    (tmp_path / "tomllib.py").write_text(slow)
    with subprocess.Popen(
        [sys.executable, "-m", "mapreduce_rnn", "--version"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process, killed_at_last(process):  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signum)
        assert process.communicate(timeout=10)[1] == f"mapreduce-rnn: stopped by {signum.name}\n"
        assert process.returncode == code


def test_a_stop_signal_keeps_the_last_round_and_says_how_to_go_on(tmp_path: Path) -> None:
    """SIGINT, and both at any other moment, are in test_stops.py."""
    store, run = tiny_store(tmp_path / "store", n=200), tmp_path / "run"
    arguments = ["train", store, "--run-dir", run, "--cpu-workers", "1", "--epochs", "500", *SMALL]
    with subprocess.Popen(
        [sys.executable, "-m", "mapreduce_rnn", *map(str, arguments)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process, killed_at_last(process):  # fmt: skip
        _wait_for_rounds(run / "metrics.jsonl", 2)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
        assert process.returncode == 143
    assert errors == f"mapreduce-rnn: stopped by SIGTERM; go on with --resume {run}\n"
    rounds = len((run / "metrics.jsonl").read_text().splitlines())
    saved = max(int(p.name[6:]) for p in (run / "checkpoints").iterdir())
    assert saved == rounds
    assert json.loads((run / "events.jsonl").read_text().splitlines()[-1])["event"] == "end"


def _wait_for_rounds(metrics: Path, rounds: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= rounds:
            return
    raise AssertionError(f"{metrics} did not get {rounds} rounds")


def test_a_report_is_drawn_from_the_run_folder_alone(
    finished: FinishedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(finished.path, tmp_path / "copy")
    (copy / "report.html").unlink()
    assert cli.main(["report", str(copy)]) == 0
    assert capsys.readouterr().out.strip() == str(copy / "report.html")
    assert (copy / "report.html").stat().st_size > 0


def test_the_store_is_only_read(finished: FinishedRun) -> None:
    Store.open(finished.store).verify()
    assert not list(finished.store.glob("*.tmp"))
