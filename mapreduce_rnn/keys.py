"""Key files: which remote workers a master lets in, and which master a worker trusts.

    DIR/master.key   the master's key pair: stays where the master runs
    DIR/NAME.key     a worker's key pair and the master's public key: goes to the worker's machine
    DIR/NAME.pub     a worker's public key: who holds NAME.key is let in as long as this lies here

Few lines of TOML. A key is 32 bytes of Curve25519 as 40 characters of Z85 (ZeroMQ RFC 32).
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mapreduce_rnn.errors import UsageError

MASTER = "master"
SECRET, PUBLIC = ".key", ".pub"

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LARGEST_FILE = 10_000  # bytes; a key file has some 300


@dataclass(frozen=True)
class Pair:
    """A key pair. The secret is left out where objects are shown."""

    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class MasterKeys:
    """What a master needs: its own pair, and the names of those it lets in by public key."""

    own: Pair
    allowed: dict[str, str]


@dataclass(frozen=True)
class WorkerKey:
    """What a worker needs: its own pair, and the public key of the only master it talks to."""

    own: Pair
    master: str


def make_keys(folder: Path, names: Sequence[str], make_pair: Callable[[], Pair]) -> list[Path]:
    """Write a key for each worker name, and the master's if the folder has none yet.

    Returns:
        The files that are new.

    Raises:
        UsageError: A name that cannot be used or has a key already, or no folder can be made.
    """
    for name in names:
        _check_name(name, folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from None
    _check_folder(folder)
    written = []
    if not _file(folder, MASTER, SECRET).exists():
        written.append(_write(_file(folder, MASTER, SECRET), vars(make_pair())))
    master = _read_pair(_file(folder, MASTER, SECRET)).public
    for name in names:
        pair = make_pair()
        written.append(_write(_file(folder, name, SECRET), vars(pair) | {"master": master}))
        written.append(_write(_file(folder, name, PUBLIC), {"public": pair.public}, 0o644))
    return written


def read_master(folder: Path) -> MasterKeys:
    """The master's key pair and everybody on its list.

    Raises:
        UsageError: A file that is missing, no key file, or open to others; an empty list.
    """
    _check_folder(folder)
    own = _read_pair(_file(folder, MASTER, SECRET))
    files = sorted(folder.glob(f"*{PUBLIC}"))
    allowed = {_key(_read(file, secret=False), "public", file): file.stem for file in files}
    if not allowed:
        raise UsageError(
            f"{folder} has no {PUBLIC} file, so no worker may connect: make one with "
            f"mapreduce-rnn keys {folder} NAME"
        )
    return MasterKeys(own, allowed)


def read_worker(file: Path) -> WorkerKey:
    """A worker's key file.

    Raises:
        UsageError: It is missing, no worker's key file, or open to others.
    """
    values = _read(file, secret=True)
    if "master" not in values:
        raise UsageError(f"{file} is no worker's key: give NAME{SECRET}, not {MASTER}{SECRET}")
    return WorkerKey(_pair(values, file), _key(values, "master", file))


def _file(folder: Path, name: str, suffix: str) -> Path:
    return folder / f"{name}{suffix}"


def _check_name(name: str, folder: Path) -> None:
    if not _NAME.fullmatch(name) or name == MASTER:
        raise UsageError(
            f"{name!r} cannot be a worker's name: expected up to 64 letters, digits, - _ and ., "
            f"and not {MASTER}"
        )
    if any(_file(folder, name, suffix).exists() for suffix in (SECRET, PUBLIC)):
        raise UsageError(
            f"{folder} has a key of {name} already: choose another name, or delete "
            f"{name}{SECRET} and {name}{PUBLIC} first"
        )


def _check_folder(folder: Path) -> None:
    """Who can put files here decides who may connect."""
    if not folder.is_dir():
        raise UsageError(f"no keys at {folder}: make them with mapreduce-rnn keys {folder}")
    mode = folder.stat().st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"others can write to {folder} (mode {stat.S_IMODE(mode):o}), so they could let "
            f"themselves in: chmod 700 {folder}"
        )


def _write(file: Path, values: dict[str, str], mode: int = 0o600) -> Path:
    """A new file with its mode from the start; an existing one is never overwritten."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(
        file, "w", encoding="ascii", opener=lambda path, _: os.open(path, flags, mode)
    ) as out:
        out.writelines(f'{name} = "{value}"\n' for name, value in values.items())
        os.fchmod(out.fileno(), mode)  # whatever the umask
    return file


def _read(file: Path, *, secret: bool) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            mode = os.fstat(
                opened.fileno()
            ).st_mode  # of what is read, not of what lay there before
            text = opened.read(_LARGEST_FILE).decode()
        values = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read the key {file}: {error.strerror}") from None
    except ValueError:
        raise UsageError(
            f"{file} is no key file: expected what mapreduce-rnn keys writes"
        ) from None
    if secret and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(
            f"others can read the secret key {file} (mode {stat.S_IMODE(mode):o}): make new keys, "
            f"or chmod 600 {file} if nobody has"
        )
    return values


def _read_pair(file: Path) -> Pair:
    return _pair(_read(file, secret=True), file)


def _pair(values: dict[str, Any], file: Path) -> Pair:
    return Pair(_key(values, "public", file), _key(values, "secret", file))


def _key(values: dict[str, Any], name: str, file: Path) -> str:
    key = values.get(name)
    if not isinstance(key, str) or not _is_key(key):  # a wrong one is not shown: it may be secret
        raise UsageError(f"{file}: {name} must be a key of 40 characters as keys writes it")
    return key


def _is_key(text: str) -> bool:
    """Whether a text is Z85 of 32 bytes: 8 groups of 5 digits in base 85, each below 2^32."""
    if len(text) != 40 or not set(text) <= set(_Z85):
        return False
    groups = (text[start : start + 5] for start in range(0, 40, 5))
    return all(_number(group) < 2**32 for group in groups)


def _number(digits: str) -> int:
    number = 0
    for digit in digits:
        number = 85 * number + _Z85.index(digit)
    return number
