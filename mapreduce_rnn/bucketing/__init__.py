"""Length buckets: the cheapest partition of a data set, and random batches inside it.

Needs numpy and nothing else of this package but its errors and its random streams.
"""

from mapreduce_rnn.bucketing.batches import epoch_batches, padding_share
from mapreduce_rnn.bucketing.cost import BatchTime, CostModel, CostTable, Frames
from mapreduce_rnn.bucketing.limits import cut_batches
from mapreduce_rnn.bucketing.optimal import Buckets, optimal_buckets
from mapreduce_rnn.bucketing.sampler import BucketBatchSampler

__all__ = [
    "BatchTime",
    "BucketBatchSampler",
    "Buckets",
    "CostModel",
    "CostTable",
    "Frames",
    "cut_batches",
    "epoch_batches",
    "optimal_buckets",
    "padding_share",
]
