"""Imports go one way, and help comes without waiting for torch."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mapreduce_rnn"

FORBIDDEN = {
    "errors.py": ("mapreduce_rnn",),
    "config.py": ("mapreduce_rnn.protocol", "mapreduce_rnn.data", "torch"),
    "protocol": ("mapreduce_rnn.launch", "mapreduce_rnn.workers", "mapreduce_rnn.master", "torch"),
    "protocol/messages.py": ("zmq", "msgpack", "mapreduce_rnn.protocol.codec"),
    "protocol/codec.py": ("zmq", "mapreduce_rnn.protocol.transport"),
    "rounds.py": ("zmq", "time", "socket", "numpy", "mapreduce_rnn.pool", "mapreduce_rnn.launch"),
    "bucketing": ("zmq", "subprocess", "multiprocessing", "torch", "mapreduce_rnn.protocol"),
    "reduce": ("zmq", "subprocess", "multiprocessing", "mapreduce_rnn.protocol"),
    "data": ("zmq", "subprocess", "multiprocessing", "torch", "mapreduce_rnn.protocol"),
    "tasks": ("zmq", "subprocess", "multiprocessing", "mapreduce_rnn.protocol"),
    "report": ("zmq", "torch", "mapreduce_rnn.master", "mapreduce_rnn.session"),
    "master.py": ("zmq", "mapreduce_rnn.workers"),
    "pool.py": ("zmq", "mapreduce_rnn.workers"),
    "session.py": ("zmq", "mapreduce_rnn.workers"),
    "prepare.py": ("zmq", "mapreduce_rnn.workers", "mapreduce_rnn.session", "mapreduce_rnn.master"),
    "workers": ("zmq", "mapreduce_rnn.master", "mapreduce_rnn.session", "mapreduce_rnn.pool"),
}


def sources(where: str) -> list[Path]:
    path = PACKAGE / where
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Modules a file imports anywhere, type checking included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize(("where", "forbidden"), FORBIDDEN.items(), ids=FORBIDDEN)
def test_imports_go_one_way(where: str, forbidden: tuple[str, ...]) -> None:
    files = sources(where)
    assert files
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in imported(path)
        for ban in forbidden
        if name == ban or name.startswith(ban + ".")
        if not (where == "errors.py" and name == "mapreduce_rnn.errors")
    }
    assert not wrong


def test_zmq_is_imported_by_the_transport_and_its_gate_only() -> None:
    users = {p for p in PACKAGE.rglob("*.py") if any(n.split(".")[0] == "zmq" for n in imported(p))}
    assert users == {PACKAGE / "protocol" / name for name in ("transport.py", "curve.py")}


def test_every_package_is_listed_for_installation() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    found = {
        ".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")
    } | {"mapreduce_rnn.workers"}
    assert listed == found


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["train"],
        ["data"],
        ["data", "import"],
        ["buckets"],
        ["compare"],
        ["report"],
        ["keys"],
        ["worker"],
    ],
)
def test_help_comes_without_torch_and_matplotlib(command: list[str]) -> None:
    code = (
        "import sys; from mapreduce_rnn.cli import main\n"
        f"try: main({[*command, '--help']!r})\n"
        "except SystemExit: pass\n"
        "print({'torch', 'matplotlib', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


WAITS = {"join", "wait", "communicate", "acquire"}


def test_no_wait_is_without_a_deadline() -> None:
    """Of a thread, a process or a lock: each is given one, in whatever words."""
    calls = {
        f"{path.relative_to(ROOT)}:{node.lineno}": node
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in WAITS
    }
    assert calls
    assert not [place for place, call in calls.items() if not (call.args or call.keywords)]
