"""What is trained: a model, its loss and its score. CTC is the task that ships."""

from __future__ import annotations

from mapreduce_rnn.config import TrainConfig
from mapreduce_rnn.data.store import Meta
from mapreduce_rnn.tasks.base import Batch, Task
from mapreduce_rnn.tasks.ctc import CtcTask

__all__ = ["Batch", "CtcTask", "Task", "make_task"]


def make_task(config: TrainConfig, meta: Meta) -> Task:
    """The task of a run.

    Args:
        config: Resolved by the plan.
        meta: Facts of the store: features, alphabet, mean and deviation.
    """
    return CtcTask(config, meta)
