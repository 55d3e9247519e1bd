"""Checkpoints: one folder per round, whole or absent, the same bytes for the same content.

    RUN/checkpoints/round-000012/
        model.safetensors    global model
        state.safetensors    everything else in arrays: rule, local optimizers
        manifest.json        round, the caller's content, sha256 of all three parts

A checkpoint is written into a hidden folder, synced and renamed, so a kill, a full disk or an
exception leaves the older ones as they were. What is damaged later is found by its sha256, and
the newest whole checkpoint is used instead. Nothing in a checkpoint depends on time, host or path.
One process at a time writes; the run folder's lock sees to that.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from mapreduce_rnn.errors import CheckpointError
from mapreduce_rnn.ondisk import reason, sync_folder, synced, writing
from mapreduce_rnn.text import counted

log = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[Any]]

_VERSION = 1
_MODEL = "model.safetensors"
_STATE = "state.safetensors"
_MANIFEST = "manifest.json"
_TEMPORARY = ".tmp-"


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint, read back."""

    round: int
    model: Arrays
    state: Arrays
    content: Mapping[str, Any]
    warnings: tuple[str, ...]  # one line for each newer one that was passed over


def save(
    run_dir: str | Path, round: int, model: Arrays, state: Arrays, content: Mapping[str, Any]
) -> Path:
    """Write the checkpoint of a round and return its folder; an older one of it is replaced.

    Args:
        run_dir: The run's folder; what of the way to the checkpoint is missing is made.
        round: Rounds done.
        model: The global model.
        state: All other arrays: of the reduce rule, of local optimizers.
        content: Whatever else is needed to go on; anything that strict JSON can hold.

    Raises:
        CheckpointError: The files cannot be written, for example on a full disk; older
            checkpoints stay.
        ValueError: NaN or infinity in ``content``.
    """
    parts = {_MODEL: _to_bytes(model), _STATE: _to_bytes(state)}
    parts[_MANIFEST] = _manifest(round, content, parts)
    target = folder(run_dir, round)
    with writing(f"checkpoint {target}"):
        _make_folder(target.parent)
        _remove_temporary(target.parent)
        try:
            _write_folder(target, parts)
        finally:
            _remove_temporary(target.parent)
    return target


def load(
    run_dir: str | Path,
    round: int | None = None,
    *,
    unusable: Callable[[Mapping[str, Any]], str | None] = lambda content: None,
) -> Checkpoint:
    """Read the newest whole checkpoint that can be used, or that of ``round``.

    Newest means by number. Whatever in the folder is not named like a checkpoint is ignored.

    Args:
        unusable: Why the rest of the run does not go with a checkpoint of this content, in words;
            None if it does.

    Raises:
        CheckpointError: There is none, none can be used, or the one asked for cannot.
    """
    passed: list[str] = []
    for number in _rounds(run_dir) if round is None else [round]:
        try:
            model, state, content = _read(folder(run_dir, number), number)
            problem = unusable(content)
            if problem is None:
                return Checkpoint(number, model, state, content, tuple(passed))
        except (OSError, ValueError) as error:
            problem = f"is damaged: {reason(error)}"
        passed.append(f"checkpoint of round {number} {problem}")
    raise CheckpointError(f"expected a whole checkpoint in {_root(run_dir)}: {_in_short(passed)}")


def _in_short(passed: list[str]) -> str:
    """Why none can be used and what to do, in one line however many there are."""
    if not passed:
        return "there is none; start a new run"
    older = len(passed) - 1
    others = f"; nor can {counted(older, 'older one')} be used" if older else ""
    return f"{passed[0]}{others}; put the run's own files back, or start a new run"


def prune(run_dir: str | Path, newest: int, *, keep: int | str, also: Collection[int] = ()) -> None:
    """Delete checkpoints that are no longer needed once that of round ``newest`` is written.

    Those of later rounds go too: a resume passed them over as damaged, and they shall not count
    as the newest. What cannot be deleted stays, with a line in the log.

    Args:
        keep: How many to keep, ``newest`` (always kept) and those before it; or "all".
        also: Rounds whose checkpoint is kept as well.
    """
    rounds = _rounds(run_dir)
    done = [number for number in rounds if number <= newest]
    kept = {newest, *also, *(done if isinstance(keep, str) else done[:keep])}
    for number in rounds:
        if number not in kept:
            _delete(folder(run_dir, number))


def _delete(old: Path) -> None:
    """Renamed first: a kill while files are deleted leaves no half checkpoint."""
    doomed = old.with_name(_TEMPORARY + old.name)
    try:
        old.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        log.warning("an old checkpoint cannot be deleted: %s", error)


def save_model(path: str | Path, arrays: Arrays) -> None:
    """Write arrays as a safetensors file, whole or not at all; an older file is replaced.

    Raises:
        CheckpointError: The file cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(_TEMPORARY + path.name)
    with writing(f"model {path}"):
        try:
            with synced(temporary) as file:
                file.write(_to_bytes(arrays))
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)


def load_model(path: str | Path) -> Arrays:
    """Read arrays from a file that :func:`save_model` wrote.

    Raises:
        CheckpointError: It is missing or damaged.
    """
    try:
        return _from_bytes(Path(path).read_bytes(), Path(path).name)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read model {path}: {reason(error)}") from error


def any_in(run_dir: str | Path) -> bool:
    """Whether a run has come as far as its first checkpoint."""
    return bool(_rounds(run_dir))


def _root(run_dir: str | Path) -> Path:
    return Path(run_dir) / "checkpoints"


def folder(run_dir: str | Path, round: int) -> Path:
    """Where the checkpoint of a round is, or would be."""
    return _root(run_dir) / f"round-{round:06d}"


def _rounds(run_dir: str | Path) -> list[int]:
    """Rounds that have a checkpoint folder, newest first."""
    root = _root(run_dir)
    names = [path.name for path in root.iterdir()] if root.is_dir() else []
    numbers = {int(name[6:]) for name in names if re.fullmatch("round-[0-9]{6,}", name)}
    return sorted((n for n in numbers if folder(run_dir, n).is_dir()), reverse=True)


# ---- bytes


def _to_bytes(arrays: Arrays) -> bytes:
    # safetensors writes the memory of a transposed view as it lies, that is scrambled
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return safetensors.numpy.save(contiguous)  # no metadata: its order is random per process


def _from_bytes(data: bytes, name: str) -> dict[str, NDArray[Any]]:
    """ValueError for what is not in the safetensors format, which cannot hold code."""
    try:
        return dict(sorted(safetensors.numpy.load(data).items()))
    except safetensors.SafetensorError as error:
        raise ValueError(f"{name} is no safetensors file ({error})") from error


def _json(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False)
    return f"{text}\n".encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _manifest(round: int, content: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    sums = {name: _sha256(data) for name, data in files.items()}
    plain = json.loads(json.dumps(content))  # as it will be read: keys that are text, for sorting
    return _sealed({"version": _VERSION, "round": round, "content": plain, "sha256": sums})


def _sealed(facts: Mapping[str, Any]) -> bytes:
    """Facts and their own sum, which no change to the manifest leaves right."""
    return _json({**facts, "sha256_of_the_rest": _sha256(_json(facts))})


def _read(folder: Path, round: int) -> tuple[Arrays, Arrays, dict[str, Any]]:
    """Read and verify a checkpoint; OSError or ValueError if it is not whole."""
    facts = _verified_manifest((folder / _MANIFEST).read_bytes(), round)
    parts = {name: (folder / name).read_bytes() for name in (_MODEL, _STATE)}
    for name, data in parts.items():
        if _sha256(data) != dict(facts["sha256"]).get(name):
            raise ValueError(f"{name} has another sha256")
    model, state = (_from_bytes(data, name) for name, data in parts.items())
    return model, state, facts["content"]


def _verified_manifest(data: bytes, round: int) -> dict[str, Any]:
    try:
        facts = dict(json.loads(data))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{_MANIFEST} is no JSON object") from error
    facts.pop("sha256_of_the_rest", None)
    if _sealed(facts) != data:
        raise ValueError(f"{_MANIFEST} has another sha256")
    found = facts.get("version"), facts.get("round")
    if found != (_VERSION, round):
        raise ValueError(
            f"{_MANIFEST}: expected version {_VERSION}, round {round}, "
            f"got version {found[0]}, round {found[1]}"
        )
    if facts.keys() != {"version", "round", "content", "sha256"}:
        raise ValueError(f"{_MANIFEST} lacks a part")
    return facts


# ---- files


def _make_folder(path: Path) -> None:
    if not path.is_dir():
        path.mkdir(parents=True)
        sync_folder(path.parent)


def _write_folder(target: Path, parts: Mapping[str, bytes]) -> None:
    temporary = target.with_name(_TEMPORARY + target.name)
    temporary.mkdir()
    for name, data in parts.items():
        with synced(temporary / name) as file:
            file.write(data)
    sync_folder(temporary)
    if target.exists():  # only a round that is done again after a resume
        target.rename(target.with_name(_TEMPORARY + "old-" + target.name))
    temporary.rename(target)
    sync_folder(target.parent)


def _remove_temporary(folder: Path) -> None:
    """Remove what a killed process or a failed save has left."""
    for path in folder.glob(_TEMPORARY + "*"):
        shutil.rmtree(path, ignore_errors=True)
