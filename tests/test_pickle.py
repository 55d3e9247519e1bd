"""Nothing that is written needs pickle, and nothing that is read is unpickled."""

from __future__ import annotations

import ast
import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from inprocess import resume, train
from mapreduce_rnn import checkpoint, cli
from mapreduce_rnn.errors import CheckpointError
from smalltask import SmallTask
from stores import tiny_store

ROOT = Path(__file__).parents[1]
PICKLERS = {"pickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "pandas"}
SAFE = {  # call -> the keyword that makes it safe, and its value
    "load": {"torch": ("weights_only", True), "np": ("allow_pickle", False)},
    "save": {"torch": None, "np": ("allow_pickle", False)},
}


def sources() -> list[Path]:
    found = [p for where in ("mapreduce_rnn", "workers") for p in (ROOT / where).rglob("*.py")]
    assert len(found) > 90
    return found


def unsafe(code: str) -> Iterator[str]:
    """What a module does with pickle, or could be made to."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
            yield from (f"imports {n}" for n in names if n.split(".")[0] in PICKLERS)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _unsafe_call(node, node.func)


def _unsafe_call(call: ast.Call, what: ast.Attribute) -> Iterator[str]:
    module = getattr(what.value, "id", "")
    if module not in SAFE.get(what.attr, {}):
        return
    given = {k.arg: getattr(k.value, "value", None) for k in call.keywords}
    required = SAFE[what.attr][module]
    if required is None or given.get(required[0]) is not required[1]:
        yield f"{module}.{what.attr} on line {call.lineno}"


@pytest.mark.parametrize(
    "code",
    [
        "import pickle", "from joblib import load", "import torch.nn, dill", "torch.load(f)",
        "torch.load(f, weights_only=False)", "np.load(f)", "np.load(f, allow_pickle=True)",
        "np.save(f, a)", "torch.save(a, f)",
    ],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(code: str) -> None:
    assert list(unsafe(code))
    assert not list(unsafe("import torch\nnp.load(f, allow_pickle=False)\na.load(f)"))


def test_the_package_never_pickles_and_never_unpickles() -> None:
    found = {f"{p.relative_to(ROOT)}: {what}" for p in sources() for what in unsafe(p.read_text())}
    assert not found


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def test_what_is_planted_here_is_harmful(tmp_path: Path) -> None:
    for number, writer in enumerate(["pickle", "torch"]):
        marker, file = tmp_path / f"marker-{number}", tmp_path / f"file-{number}"
        _plant(file, marker, writer)
        if writer == "torch":
            torch.load(file, weights_only=False)
        else:
            pickle.loads(file.read_bytes())
        assert marker.exists()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done")
    tiny_store(folder / "store", n=20)
    options = {"units": 4, "epochs": 2, "checkpoint_every": 1}
    train(folder / "store", folder / "run", make_task=SmallTask, **options)
    return folder / "run"


def test_our_newest_checkpoint_goes_through_the_safe_loaders(done: Path) -> None:
    newest = done / "checkpoints" / "round-000002"
    assert load_file(newest / "model.safetensors").keys() == checkpoint.load(done).model.keys()
    assert load_file(newest / "state.safetensors").keys() == checkpoint.load(done).state.keys()
    json.loads((newest / "manifest.json").read_bytes())


@pytest.mark.parametrize("name", ["model.safetensors", "state.safetensors", "manifest.json"])
@pytest.mark.parametrize("writer", ["pickle", "torch"])
def test_a_harmful_file_in_a_checkpoint_is_damage_and_never_runs(
    done: Path, tmp_path: Path, name: str, writer: str
) -> None:
    run = shutil.copytree(done, tmp_path / "run")
    _plant(run / "checkpoints" / "round-000002" / name, tmp_path / "marker", writer)
    _plant(run / "checkpoints" / "round-000009.pt", tmp_path / "marker", writer)
    assert "round 2 is damaged: " + name in checkpoint.load(run).warnings[0]
    resume(run, make_task=SmallTask)
    assert checkpoint.load(run).warnings == ()
    assert not (tmp_path / "marker").exists()


def test_a_harmful_file_with_a_manifest_made_to_fit_is_refused(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, {"w": np.zeros(2)}, {}, {})
    folder = tmp_path / "checkpoints" / "round-000001"
    _plant(folder / "model.safetensors", tmp_path / "marker", "torch")
    parts = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    (folder / "manifest.json").write_bytes(checkpoint._manifest(1, {}, parts))
    with pytest.raises(CheckpointError, match=r"model.safetensors is no safetensors file"):
        checkpoint.load(tmp_path)
    assert not (tmp_path / "marker").exists()


def test_a_harmful_file_named_as_the_run_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _plant(tmp_path / "run.pt", tmp_path / "marker", "torch")
    assert cli.main(["train", "--resume", str(tmp_path / "run.pt")]) == 2
    error = capsys.readouterr().err
    assert "it has no config.toml, so is no run" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "marker").exists()


def _plant(path: Path, marker: Path, writer: str) -> None:
    if writer == "torch":
        torch.save(Bomb(marker), path)
    else:
        path.write_bytes(pickle.dumps(Bomb(marker)))
