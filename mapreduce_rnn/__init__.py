"""Recurrent-network training by optimal length bucketing and map-reduce parameter averaging.

After Khomenko, Shyshkov, Radyvonenko and Bokhan, "Accelerating recurrent neural network training
using sequence bucketing and multi-GPU data parallelization" (2016, arXiv 1708.05604).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapreduce_rnn.bucketing import BucketBatchSampler, Buckets, optimal_buckets
    from mapreduce_rnn.config import TrainConfig
    from mapreduce_rnn.data.store import Sequence, Store, write_store
    from mapreduce_rnn.session import RunResult, resume, train

__version__ = "0.1.0"

_HOME = {
    "BucketBatchSampler": "mapreduce_rnn.bucketing",
    "Buckets": "mapreduce_rnn.bucketing",
    "RunResult": "mapreduce_rnn.session",
    "Sequence": "mapreduce_rnn.data.store",
    "Store": "mapreduce_rnn.data.store",
    "TrainConfig": "mapreduce_rnn.config",
    "optimal_buckets": "mapreduce_rnn.bucketing",
    "resume": "mapreduce_rnn.session",
    "train": "mapreduce_rnn.session",
    "write_store": "mapreduce_rnn.data.store",
}

__all__ = [
    "BucketBatchSampler",
    "Buckets",
    "RunResult",
    "Sequence",
    "Store",
    "TrainConfig",
    "optimal_buckets",
    "resume",
    "train",
    "write_store",
]


def __getattr__(name: str) -> object:
    """Load public names on first use: ``mapreduce-rnn --help`` shall not wait for numpy."""
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
