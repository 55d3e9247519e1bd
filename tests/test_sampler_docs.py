"""Every example of docs/sampler.md runs as it is printed, on two ranks where it is about ranks."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "sampler.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples() -> dict[str, str]:
    """Code under each heading, after the lines that all of them share."""
    shared, *sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    start = "".join(BLOCK.findall(shared))
    return {part.splitlines()[0]: start + "".join(BLOCK.findall(part)) for part in sections}


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def start(path: Path, rank: int, world_size: int, port: str) -> subprocess.Popen[str]:
    """One process of an example, with the environment that torchrun would give it."""
    group = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "MASTER_PORT": port}
    environment = {name: str(value) for name, value in group.items()} if world_size > 1 else {}
    environment |= {"MASTER_ADDR": "127.0.0.1", "ACCELERATE_USE_CPU": "true"}
    return subprocess.Popen(
        [sys.executable, path],
        cwd=path.parent,
        env={**os.environ, **environment, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    ("heading", "library", "processes"),
    [
        ("Plain PyTorch", "torch", 1),
        ("Stop and go on", "torch", 1),
        pytest.param("DistributedDataParallel", "torch", 2, marks=pytest.mark.slow),
        pytest.param("accelerate", "accelerate", 2, marks=pytest.mark.slow),
        pytest.param("Lightning", "lightning", 1, marks=pytest.mark.slow),
    ],
)
def test_the_example_runs(heading: str, library: str, processes: int, tmp_path: Path) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}: pip install {library}")
    path, port = tmp_path / "example.py", free_port()
    path.write_text(examples()[heading], encoding="utf-8")
    running = [start(path, rank, processes, port) for rank in range(processes)]
    try:
        for one in running:
            output = one.communicate(timeout=100)[0]
            assert one.returncode == 0, output
    finally:
        for one in running:
            one.kill()
            one.communicate()


def test_every_example_belongs_to_a_heading() -> None:
    assert len(BLOCK.findall(PAGE.read_text(encoding="utf-8"))) >= 1 + len(examples())
    assert set(examples()) == {
        "Plain PyTorch",
        "Stop and go on",
        "DistributedDataParallel",
        "accelerate",
        "Lightning",
    }
