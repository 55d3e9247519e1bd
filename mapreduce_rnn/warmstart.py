"""``--init-from``: a new run starts with the model of another one instead of a random one.

The model is checked against the run's own, name by name, and saved as the checkpoint of round 0:
from then on the run has what it needs, and its result no longer depends on where the model came
from.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mapreduce_rnn import checkpoint, runfolder
from mapreduce_rnn.data.format import Meta
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.reduce.base import Arrays, describe, differences, layout

FLAG = "--init-from"


@dataclass(frozen=True)
class WarmStart:
    """A model to start from, and where it came from."""

    path: Path
    model: Arrays
    sha256: str  # of the file

    def facts(self) -> dict[str, Any]:
        """For the [plan] table of config.toml."""
        return {"init_from": str(self.path.absolute()), "init_sha256": self.sha256}


def load(source: Path, initial: Arrays, meta: Meta) -> WarmStart:
    """Read a model to start from.

    Args:
        source: A safetensors file, or the folder of a run, which stands for its best model.
        initial: The run's own initial model: what names, shapes and dtypes are expected.
        meta: Of the store. Where the model lies in the folder of a run, that one's features and
            alphabet must be the same: equal shapes do not say that labels mean the same.

    Raises:
        UsageError: The model does not fit, or belongs to other features or labels.
        CheckpointError: It is missing or damaged.
    """
    path = source / runfolder.BEST_MODEL if source.is_dir() else source
    model = dict(checkpoint.load_model(path))
    wrong = differences(layout(initial), layout(model))
    if wrong:
        raise UsageError(
            f"{FLAG} {source}: not the model that these options make ({describe(wrong)}): "
            "choose the options of the model's own run"
        )
    _check_meaning(path, meta)
    return WarmStart(path, model, hashlib.sha256(path.read_bytes()).hexdigest())


def _check_meaning(path: Path, meta: Meta) -> None:
    config = path.parent / runfolder.CONFIG
    store = runfolder.read_toml(config).get("store", {}) if config.is_file() else {}
    own = {"features": list(meta.feature_names), "alphabet": list(meta.alphabet)}
    for what, names in own.items():
        if store.get(what, names) != names:
            raise UsageError(f"{FLAG} {path}: its run has another {what} than this store")
