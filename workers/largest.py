"""The largest batch of a run, tried before round 1: what does not fit is told at once.

A smaller batch in its place would change the result without a word.
"""

from __future__ import annotations

from mapreduce_rnn.epochs import length_batches
from mapreduce_rnn.workers.maptask import Context, Trainer


def try_largest_batch(context: Context) -> None:
    """Make one training step on the batch with the most padded frames.

    Of the longest sequences, as many as the limits allow: no batch of training is larger. Like
    the tasks it leaves nothing behind that a task reads: they bring parameters and seeds.

    Raises:
        TrainingFailed: It does not fit into the memory of the device.
    """
    train = context.store.split("train")
    train = train[context.task.usable(context.store, train)]
    lengths = context.store.lengths[train]
    batches = length_batches(lengths, context.config.batches)
    largest = max(batches, key=lambda batch: len(batch) * int(lengths[batch].max()))
    trainer = Trainer(context, {})
    trainer.step(train[largest], int(lengths[largest].max()), epochs_done=0.0)
