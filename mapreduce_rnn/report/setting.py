"""What sets a run apart from the others of its comparison: devices, buckets and seed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mapreduce_rnn.report.fields import integer, section
from mapreduce_rnn.report.run import Run
from mapreduce_rnn.text import counted

NO_BUCKETS = "none"
"""Shuffled batches, each padded to its own longest sequence."""

AUTOMATIC = "auto"

_FOLDER = re.compile(r"(cpu|gpu)-([1-9]\d*)_buckets-(none|auto|[1-9]\d*)_seed-(\d+)")


@dataclass(frozen=True)
class Setting:
    """The devices and buckets of a run."""

    kind: str  # "cpu" or "gpu"
    count: int  # of devices
    buckets: str  # "none", "auto" or a number

    @property
    def devices(self) -> str:
        """ "6 GPUs", "1 CPU worker"."""
        return counted(self.count, "GPU" if self.kind == "gpu" else "CPU worker")

    @property
    def batches(self) -> str:
        """The buckets in words."""
        if self.buckets == NO_BUCKETS:
            return "no buckets"
        if self.buckets == AUTOMATIC:
            return "automatic buckets"
        return counted(int(self.buckets), "bucket")

    @property
    def order(self) -> tuple[str, int, int]:
        """Sorts by devices, then none, 1, 2, .., auto."""
        place = {NO_BUCKETS: 0, AUTOMATIC: 1 << 62}.get(self.buckets)
        return self.kind, self.count, int(self.buckets) if place is None else place


def setting_of(run: Run) -> tuple[Setting | None, int | None]:
    """Setting and seed of a run: as the name of a comparison's folder says, else its config.

    None stands for what neither tells.
    """
    name = _FOLDER.fullmatch(run.path.absolute().name)
    if name:
        kind, count, buckets, seed = name.groups()
        return Setting(kind, int(count), buckets), int(seed)
    count_, buckets_ = _count(run), _buckets(run)
    seed_ = integer(section(run.config, "run").get("seed"))
    if count_ is None or buckets_ is None or run.plan.device is None:
        return None, seed_
    return Setting("cpu" if run.plan.device == "cpu" else "gpu", count_, buckets_), seed_


def _count(run: Run) -> int | None:
    count = run.simulated or integer(run.start.get("workers")) or 0
    return count if count > 0 else None


def _buckets(run: Run) -> str | None:
    batches = section(run.config, "batches")
    if run.plan.bucket_choice is not None:
        return AUTOMATIC
    shuffled = (batches.get("pad_to"), batches.get("curriculum")) == ("longest", "none")
    buckets = integer(batches.get("buckets"))
    if buckets is None or buckets < 1:
        return None
    return NO_BUCKETS if buckets == 1 and shuffled else f"{buckets}"
