"""Key files: modes, what is refused, and what the command says."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mapreduce_rnn import cli
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.keys import make_keys, read_master, read_worker
from mapreduce_rnn.protocol.curve import make_pair


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["lab", "cluster"], make_pair)
    return tmp_path / "keys"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_worker_knows_its_master_and_the_master_its_workers(folder: Path) -> None:
    master = read_master(folder)
    workers = {name: read_worker(folder / f"{name}.key") for name in ("lab", "cluster")}
    assert master.allowed == {key.own.public: name for name, key in workers.items()}
    assert {key.master for key in workers.values()} == {master.own.public}
    assert len({master.own.secret, *(key.own.secret for key in workers.values())}) == 3


def test_secret_files_are_the_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        written = make_keys(tmp_path / "keys", ["lab"], make_pair)
    finally:
        os.umask(before)
    assert {path.name: mode(path) for path in written} == {
        "master.key": 0o600, "lab.key": 0o600, "lab.pub": 0o644,
    }  # fmt: skip
    assert mode(tmp_path / "keys") == 0o700


def test_a_second_call_adds_names_and_changes_nothing(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    written = make_keys(folder, ["third"], make_pair)
    assert [path.name for path in written] == ["third.key", "third.pub"]
    assert {path: path.read_bytes() for path in before} == before
    with pytest.raises(UsageError, match="has a key of lab already"):
        make_keys(folder, ["fourth", "lab"], make_pair)
    assert not (folder / "fourth.key").exists()


def test_a_public_key_that_is_deleted_is_off_the_list(folder: Path) -> None:
    (folder / "lab.pub").unlink()
    assert list(read_master(folder).allowed.values()) == ["cluster"]
    (folder / "cluster.pub").unlink()
    with pytest.raises(UsageError, match="no worker may connect: make one with"):
        read_master(folder)


@pytest.mark.parametrize("name", ["", "master", "../x", ".x", "a b", "x" * 65])
def test_names_that_make_no_good_file_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a worker's name"):
        make_keys(folder, [name], make_pair)


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620])
def test_secrets_that_others_can_reach_are_refused(folder: Path, bits: int) -> None:
    (folder / "lab.key").chmod(bits)
    (folder / "master.key").chmod(bits)
    with pytest.raises(UsageError, match="others can read the secret key"):
        read_worker(folder / "lab.key")
    with pytest.raises(UsageError, match="others can read the secret key"):
        read_master(folder)


def test_a_folder_that_others_can_write_to_is_no_list(folder: Path) -> None:
    folder.chmod(0o770)
    with pytest.raises(UsageError, match="they could let themselves in: chmod 700"):
        read_master(folder)


GOOD = "x" * 40


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'public = "{GOOD[1:]}"\nsecret = "{GOOD}"\nmaster = "{GOOD}"', "public must be a key"),
        (f'public = "{GOOD}"\nsecret = "{"~" * 40}"\nmaster = "{GOOD}"', "secret must be a key"),
        (f'public = "{GOOD}"\nsecret = "{"#" * 40}"\nmaster = "{GOOD}"', "secret must be a key"),
        (f'public = "{GOOD}"\nsecret = 7\nmaster = "{GOOD}"', "secret must be a key"),
        (f'public = "{GOOD}"\nsecret = "{GOOD}"', "is no worker's key"),
        (GOOD, "is no key file"),
        ("\x80", "is no key file"),
    ],
)
def test_files_that_hold_no_key_are_refused_without_being_shown(
    tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "worker.key"
    file.write_text(text, encoding="latin-1")
    file.chmod(0o600)
    with pytest.raises(UsageError, match=expected) as caught:
        read_worker(file)
    assert "\n" not in str(caught.value)
    assert GOOD not in str(caught.value)


def test_a_secret_is_not_in_what_is_shown_of_a_key(folder: Path) -> None:
    key = read_worker(folder / "lab.key")
    assert key.own.secret not in repr(key)
    assert key.own.secret not in repr(read_master(folder))


def test_the_command_says_what_to_copy_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "keys"
    assert cli.main(["keys", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "master.key, worker.key, worker.pub" in out
    assert f"scp -p {folder / 'worker.key'} WORKER:worker.key" in out
    assert f"--listen 'tcp://*:5555' --keys {folder}" in out
    assert read_worker(folder / "worker.key").own.secret not in out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--listen", "tcp://127.0.0.1:5555", "--cpu-workers", "2"], "--listen needs --keys DIR"),
        (["--listen", "tcp://h:1", "--keys", "k"], "Give --gpus N or --cpu-workers N"),
        (["--listen", "tcp://h:1", "--keys", "k", "--gpus", "auto"], "not --gpus auto"),
        (["--listen", "tcp://h:1", "--keys", "k", "--devices", "0"], "with --listen give --gpus N"),
        (["--keys", "k", "--cpu-workers", "1"], "give both or none"),
        (["--listen", "h:1", "--keys", "k", "--gpus", "1"], "expected tcp://HOST:PORT"),
        (["--listen", "tcp://h:1", "--keys", "k", "--gpus", "1"], "no keys at k: make them"),
    ],
)
def test_a_master_without_keys_or_a_count_is_refused_in_one_line(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, options: list[str], expected: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", str(store), *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert expected in err
    assert not list(tmp_path.glob("runs/*"))
