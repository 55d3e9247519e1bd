"""Reads the runs of a comparison, finished or not, and puts those of equal setting together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path

from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.report.run import Run, is_run, read_run
from mapreduce_rnn.report.setting import Setting, setting_of


@dataclass(frozen=True)
class Cell:
    """A run of a comparison."""

    run: Run
    setting: Setting
    seed: int | None

    @property
    def finished(self) -> bool:
        """Whether it went to its planned end; a run of an older version that ended counts."""
        return self.run.end is not None and self.run.end.get("done") is not False


@dataclass(frozen=True)
class Group:
    """The runs of equal setting, which differ in their seed."""

    setting: Setting
    cells: tuple[Cell, ...]  # by seed; at least one

    @property
    def simulated(self) -> bool:
        """Whether the wall-clock of any of its runs is."""
        return any(cell.run.simulated is not None for cell in self.cells)

    @property
    def counted(self) -> tuple[Cell, ...]:
        """The finished runs; all, as far as they are, while there are none."""
        return tuple(cell for cell in self.cells if cell.finished) or self.cells

    @property
    def devices(self) -> str:
        """ "6 GPUs (simulated)"."""
        return f"{self.setting.devices}{' (simulated)' if self.simulated else ''}"


@dataclass(frozen=True)
class Comparison:
    """Everything that the report of a comparison tells."""

    path: Path
    groups: tuple[Group, ...] = ()  # by devices, then buckets
    problems: tuple[str, ...] = ()  # what is missing, unfinished or damaged, a line each

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(cell for group in self.groups for cell in group.cells)

    @property
    def simulated(self) -> bool:
        """Whether any wall-clock is."""
        return any(group.simulated for group in self.groups)

    def with_buckets(self, buckets: str) -> tuple[Group, ...]:
        """The groups that differ in their devices only."""
        return tuple(group for group in self.groups if group.setting.buckets == buckets)

    def with_devices(self, of: Setting) -> tuple[Group, ...]:
        """The groups that differ in their buckets only."""
        wanted = (of.kind, of.count)
        return tuple(g for g in self.groups if (g.setting.kind, g.setting.count) == wanted)


def runs_in(folder: Path) -> tuple[Path, ...]:
    """The run folders directly in a folder, by name; none if it isn't there."""
    children = folder.iterdir() if folder.is_dir() else ()
    return tuple(sorted(child for child in children if is_run(child)))


def read_comparison(folder: Path) -> Comparison:
    """Read the runs in a folder. What is missing or damaged is named in ``problems``.

    Raises:
        UsageError: the folder isn't there, or holds no run.
    """
    runs = [read_run(path) for path in runs_in(folder)]
    if not runs:
        what = "a folder without one" if folder.is_dir() else "no folder"
        raise UsageError(f"{folder}: expected a run folder, or a folder of runs, got {what}")
    cells = [(run, *setting_of(run)) for run in runs]
    known = [Cell(run, setting, seed) for run, setting, seed in cells if setting is not None]
    lost = [run for run, setting, _ in cells if setting is None]
    problems = (*map(_lost, lost), *_faults(known), *_missing(known))
    return Comparison(folder, _groups(known), problems)


def _groups(cells: Iterable[Cell]) -> tuple[Group, ...]:
    def order(cell: Cell) -> tuple[str, int, int]:
        return cell.setting.order

    by_setting = groupby(sorted(cells, key=order), order)
    groups = (sorted(alike, key=lambda cell: cell.seed or 0) for _, alike in by_setting)
    return tuple(Group(alike[0].setting, tuple(alike)) for alike in groups)


def _lost(run: Run) -> str:
    name = run.path.name
    return f"{name}: left out: neither its name nor its config.toml tells devices and buckets"


def _faults(cells: Iterable[Cell]) -> list[str]:
    return [f"{cell.run.path.name}: {fault}" for cell in cells for fault in _cell_faults(cell)]


def _cell_faults(cell: Cell) -> list[str]:
    faults = list(cell.run.faults)
    if cell.run.end is not None and not cell.finished:
        faults.append(f"not finished: {cell.run.end.get('reason', 'no reason given')}")
    if not cell.run.validated:
        faults.append("no round was validated yet")
    return faults


def _missing(cells: Iterable[Cell]) -> list[str]:
    """What the grid of all settings and seeds lacks."""
    present = {(cell.setting, cell.seed) for cell in cells}
    seeds = {seed for _, seed in present if seed is not None}
    grid = product(_asked_for({setting for setting, _ in present}), seeds)
    return [
        f"missing: {setting.devices}, {setting.batches}, seed {seed}"
        for setting, seed in sorted(grid, key=lambda cell: (cell[0].order, cell[1]))
        if (setting, seed) not in present
    ]


def _asked_for(settings: Collection[Setting]) -> set[Setting]:
    """What a comparison was probably meant to hold.

    Devices and buckets are taken as crossed where two numbers of devices have several kinds of
    buckets. Else they were compared one after the other, and there is no more than what is there.
    """
    devices = Counter((setting.kind, setting.count) for setting in settings)
    if sum(n > 1 for n in devices.values()) < 2:
        return set(settings)
    buckets = {setting.buckets for setting in settings}
    return {Setting(kind, count, bucket) for (kind, count), bucket in product(devices, buckets)}
