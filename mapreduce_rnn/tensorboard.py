"""``--tensorboard``: the curves of a run in TensorBoard's own files, as they come.

Points stand at the training time of their round: TensorBoard's "relative" axis shows what the
report's does, over all sessions of a run and where time is simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.text import finite

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter  # an extra

FOLDER = "tensorboard"  # in the run folder
_FLUSH_SECONDS = 10


def check_installed() -> None:
    """Raise UsageError, with what to do, where the extra is missing."""
    if find_spec("tensorboard") is None:
        raise UsageError(
            "--tensorboard needs a package that is not installed: "
            "pip install 'mapreduce-rnn[tensorboard]'"
        )


class Board:
    """Writes a point per round and curve; a context manager."""

    def __init__(self, run_dir: Path, *, began: float, rounds: int) -> None:
        """Open the run's files.

        Args:
            began: Unix time of the run's first start.
            rounds: Whole rounds done; points of later ones, which will come again, are hidden.
        """
        from torch.utils.tensorboard import SummaryWriter

        self._began = began
        self._writer: SummaryWriter = SummaryWriter(
            str(run_dir / FOLDER), purge_step=rounds + 1, flush_secs=_FLUSH_SECONDS
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._writer.close()

    def round(self, entry: Mapping[str, Any], elapsed: float) -> None:
        """Add a round.

        Args:
            entry: Its line of metrics.jsonl.
            elapsed: Training seconds over all rounds up to it.
        """
        for name, value in points(entry).items():
            self._writer.add_scalar(name, value, entry["round"], walltime=self._began + elapsed)


def points(entry: Mapping[str, Any]) -> dict[str, float]:
    """The curves' values in a line of metrics.jsonl; what has no number is left out."""
    validation = entry["validation"] or {}
    values = {
        "loss/train": entry["train_loss"],
        "loss/validation": validation.get("loss"),
        "label error/validation": validation.get("label_error"),
        "learning rate": entry["learning_rate"],
        "epochs": entry["epochs_done"],
        "skipped steps": entry["skipped_steps"],
        "slots left out": len(entry["rejected"]),
    }
    return {name: value for name, value in values.items() if finite(value)}
