"""The runs of a comparison in their folder: checked, begun, gone on with, one after the other.

Every run counts the seconds of ``--max-seconds`` as the report does: of training, over all of its
sessions. So one that was interrupted, or whose start took longer, gets no less and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from mapreduce_rnn import prepare, session
from mapreduce_rnn.comparison import VARIED, Cell, Progress, difference, progress, to_go_on
from mapreduce_rnn.config import TrainConfig
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.plan import MEASURED, with_bucket_cost
from mapreduce_rnn.runfolder import CONFIG, EVENTS, Recorded, read_config
from mapreduce_rnn.runlog import read_lines

ADVICE = "choose another --dir"


class Cells:
    """The cells of one comparison, by their folder."""

    def __init__(self, folder: Path, store: Path, init_from: Path | None) -> None:
        self.folder = folder
        self._store = store
        self._init_from = init_from

    def check(self, cells: Mapping[Cell, TrainConfig]) -> None:
        """Find what would stop a cell, or make it another comparison, before the first one runs.

        Raises:
            UsageError: Options that exclude each other, a GPU that is not there, a run in the
                folder that has other options.
            StoreError, CheckpointError: As of :func:`mapreduce_rnn.train`.
        """
        if (self.folder / CONFIG).exists():
            raise UsageError(f"{self.folder} is a run, not a comparison: {ADVICE}")
        if self.folder.exists() and not self.folder.is_dir():
            raise UsageError(f"{self.folder} is a file: {ADVICE}")
        there = dict(self._recorded("*"))
        for cell, config in cells.items():
            settled, _ = self._settled(cell, config)
            plan = prepare.planned(self._store, settled, self._init_from)
            for name, recorded in there.items():
                _check_same(self.folder / name, recorded, plan, cell)

    def progress(self, cell: Cell, config: TrainConfig) -> Progress:
        """How far the run of a cell has come.

        Raises UsageError: what lies in its folder is no run.
        """
        path = self.folder / cell.name
        if not path.exists():
            return Progress.NEW
        if not (path / CONFIG).exists():
            raise UsageError(
                f"{path} is no run, or was killed before it began: remove it, or {ADVICE}"
            )
        has = read_config(path).config.stop
        return progress(read_lines(path / EVENTS).records, has, config.stop)

    def borrowed_cost(self, cell: Cell, config: TrainConfig) -> str | None:
        """Where the numbers of a bucket cost that is to be measured come from: a run's name.

        None: there is no run yet, so the cell's own will be measured and hold for all others.
        """
        return self._settled(cell, config)[1]

    def run(self, cell: Cell, config: TrainConfig) -> None:
        """Begin the run of a cell, or go on with it; raises as train and resume do."""
        path = self.folder / cell.name
        if path.exists():
            changes = to_go_on(cell, config)
            session.resume(path, changes, count_training=True, report=False)
            return
        settled, _ = self._settled(cell, config)
        session.train(
            self._store, settled, run_dir=path, init_from=self._init_from,
            count_training=True, report=False,
        )  # fmt: skip

    def _settled(self, cell: Cell, config: TrainConfig) -> tuple[TrainConfig, str | None]:
        """The options with the bucket cost that an earlier run of the kind measured, and its name.

        Two measurements differ, and so would the buckets.
        """
        if config.batches.bucket_cost != MEASURED:
            return config, None
        for name, recorded in self._recorded(f"{cell.kind}-*"):
            return with_bucket_cost(config, recorded.config.batches.bucket_cost), name
        return config, None

    def _recorded(self, pattern: str) -> Iterator[tuple[str, Recorded]]:
        """What runs are in the folder; of a damaged one its turn will tell."""
        for file in sorted(self.folder.glob(f"{pattern}/{CONFIG}")):
            try:
                yield file.parent.name, read_config(file.parent)
            except UsageError:
                continue


def _check_same(path: Path, recorded: Recorded, plan: prepare.Planned, cell: Cell) -> None:
    """Raise UsageError where the run at ``path`` is of another comparison than the cell."""
    if recorded.fingerprint != plan.fingerprint:
        raise UsageError(f"{path} was made from another store: {ADVICE}")
    if not path.name.startswith(f"{cell.kind}-"):
        return
    if recorded.init_sha256 != plan.init_sha256:
        raise UsageError(f"{path} started from another model (--init-from): {ADVICE}")
    own = path.name == cell.name
    if change := difference(recorded.config, plan.config, without=frozenset() if own else VARIED):
        raise UsageError(
            f"{path} was made with another {change.flag} ({change.values}): give its value, or "
            f"{ADVICE}"
        )
    if own:
        _check_unchanged(path, recorded, cell)


def _check_unchanged(path: Path, recorded: Recorded, cell: Cell) -> None:
    if recorded.changes:
        raise UsageError(f"{path} was changed on its way ({recorded.changes[0].line}): {ADVICE}")
    if recorded.config.devices.simulate != cell.simulated:
        counts = "real" if cell.simulated else "simulated"
        raise UsageError(
            f"{path} counts {counts} time ({'without' if cell.simulated else 'with'} --simulate): "
            f"do as it did, or {ADVICE}"
        )
