"""The run folder: claimed by one master at a time, described by its config.toml.

config.toml          resolved options, one table per section; beside them [store], [plan] and, of
                     options that were changed on the way, [[changes]]
metrics.jsonl        results of every round: same bytes for the same config
events.jsonl         times, workers, attempts, versions
master.log, workers/ logs
checkpoints/         see :mod:`mapreduce_rnn.checkpoint`
model.safetensors    the best model
examples.json, figures/, curves.csv, report.html
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import tomli_w

from mapreduce_rnn.changes import Change
from mapreduce_rnn.config import TrainConfig, from_dict, to_dict
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.ondisk import sync_folder, synced, writing

CONFIG = "config.toml"
METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
EXAMPLES = "examples.json"
BEST_MODEL = "model.safetensors"
RUNS = Path("runs")
_NO_OPTIONS = ("store", "plan", "changes")  # tables of config.toml that hold facts

_CHECKPOINTS = "checkpoints"
_BEFORE_IT_BEGINS = re.compile(
    r"workers(/\d+\.log)?|master\.log|events\.jsonl|\.config\.toml"
    rf"|{_CHECKPOINTS}(/(\.tmp-)?round-0+(/\w+\.(safetensors|json))?)?"  # of --init-from
)
"""What a session writes before config.toml, and so what it leaves if it is killed by then."""


def default_path(store: Path) -> Path:
    """A new folder name under runs/: the store's name and the time."""
    return RUNS / f"{store_name(store)}-{datetime.now():%Y%m%d-%H%M%S}"


def store_name(store: Path) -> str:
    """The name of a store's folder, also of "." and ".."."""
    return os.path.basename(os.path.abspath(store))


def find(name: str) -> Path:
    """The run folder a user means by ``--resume``: a path, or ``latest`` under runs/.

    Raises:
        UsageError: There is none.
    """
    if name != "latest":
        return Path(name)
    runs = [p.parent for p in RUNS.glob(f"*/{CONFIG}")]
    if not runs:
        raise UsageError(f"--resume latest: no run under {RUNS}/; name the run folder")
    return max(runs, key=lambda run: (run / CONFIG).stat().st_mtime_ns)


def never_began(path: Path) -> bool:
    """Whether a folder holds nothing but what a session leaves that was killed at its start."""
    found = ((str(each.relative_to(path)), each.is_symlink()) for each in path.rglob("*"))
    return all(_BEFORE_IT_BEGINS.fullmatch(name) and not link for name, link in found)


class RunFolder:
    """A claimed run folder; released, and removed if nothing came of it, at exit.

    A new run takes a folder that is not there, or where none has ever begun: what a killed
    session left there cannot be resumed, and its logs are written on. Such a folder stays.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path
        self.began = resume  # whether the folder holds a run, which can be resumed
        self._resume = resume
        self._found = False
        self._lock = -1

    def __enter__(self) -> RunFolder:
        self._found = self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._claim()
            except BaseException:
                os.close(self._lock)
                raise
        except OSError as error:
            raise UsageError(
                f"cannot make the folder {self.path}: {error.strerror}; choose another --run-dir"
            ) from None
        return self

    def _claim(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{self.path} is in use by another mapreduce-rnn") from None
        if not self._resume:
            self._take_over()
        (self.path / "workers").mkdir(exist_ok=True)

    def _take_over(self) -> None:
        """Only while it is locked: a session that starts looks as one that was killed."""
        if not never_began(self.path):
            raise UsageError(
                f"{self.path} exists: choose another --run-dir, or go on with --resume {self.path}"
            )
        copies = self.path / _CHECKPOINTS  # of a model that this run may not start from
        if copies.exists():
            shutil.rmtree(copies)

    def __exit__(self, *exc_info: object) -> None:
        if not self.began and not self._found:
            shutil.rmtree(self.path)  # refused before it began: leave the name free
        os.close(self._lock)

    def write_config(
        self,
        config: TrainConfig,
        store: Mapping[str, Any],
        plan: Mapping[str, Any],
        changes: Sequence[Change] = (),
    ) -> None:
        """Write config.toml, all or nothing.

        What [plan] says since an earlier session stays, unless options were changed: only the
        first session chose, where they left a choice. Raises CheckpointError.
        """
        present = self.path / CONFIG
        tables: dict[str, Any] = {"store": store, **to_dict(config), "plan": plan}
        if changes:
            tables["changes"] = [_table(change) for change in changes]
        elif present.is_file():
            tables["plan"] = {**read_toml(present).get("plan", {}), **plan}
        draft = self.path / f".{CONFIG}"
        with writing(str(present)):
            with synced(draft) as file:
                file.write(tomli_w.dumps(tables).encode())
            os.replace(draft, present)
            sync_folder(self.path)
        self.began = True


@dataclass(frozen=True)
class Recorded:
    """What a run's config.toml says; [plan] is for people, but for where the run came from."""

    store: Path
    fingerprint: str
    config: TrainConfig
    changes: tuple[Change, ...] = ()  # of options, in earlier sessions
    init_sha256: str | None = None  # of the model that it started from; None: a random one


def read_config(path: Path) -> Recorded:
    """Read the config.toml of a run folder.

    Raises:
        UsageError: It is not there, cannot be read, or holds what no run writes.
    """
    source = path / CONFIG
    if not source.is_file():
        raise UsageError(f"cannot resume {path}: it has no {CONFIG}, so is no run")
    values = read_toml(source)
    match values.get("store"):
        case {"path": str(where), "fingerprint": str(fingerprint)}:
            options, changes = options_in(values, source), _changes_in(values, source)
            init = values.get("plan", {}).get("init_sha256")
            return Recorded(Path(where), fingerprint, options, changes, init)
    raise UsageError(f"{source} does not name a store: it was not written by a run")


def options_in(values: Mapping[str, Any], source: Path) -> TrainConfig:
    """The options in a run's config.toml, or in a file of options only.

    Raises:
        UsageError: A section, a name or a value is not known.
    """
    options = {name: table for name, table in values.items() if name not in _NO_OPTIONS}
    return from_dict(options, str(source))


def _changes_in(values: Mapping[str, Any], source: Path) -> tuple[Change, ...]:
    nothing = {"old": None, "new": None}  # TOML has no word for it
    try:
        return tuple(Change(**{**nothing, **table}) for table in values.get("changes", ()))
    except TypeError:
        raise UsageError(f"{source}: [[changes]] is not as a run writes it") from None


def _table(change: Change) -> dict[str, Any]:
    return {name: value for name, value in asdict(change).items() if value is not None}


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file.

    Raises:
        UsageError: It cannot be read; in one line.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
