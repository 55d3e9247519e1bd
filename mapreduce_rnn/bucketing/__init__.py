"""Length buckets: the cheapest partition of a data set, and random batches inside it.

Needs numpy and nothing else of this package but its errors and its random streams.
"""

from mapreduce_rnn.bucketing.baselines import equal_counts, fixed_widths
from mapreduce_rnn.bucketing.batches import epoch_batches, padding_share
from mapreduce_rnn.bucketing.choice import Choice, choose_n_buckets
from mapreduce_rnn.bucketing.cost import (
    BatchTime,
    CostModel,
    CostTable,
    Frames,
    batches_cost,
    parse_cost,
)
from mapreduce_rnn.bucketing.curriculum import buckets_in_play, competence
from mapreduce_rnn.bucketing.limits import cut_batches
from mapreduce_rnn.bucketing.optimal import Buckets, optimal_buckets, optimal_partitions
from mapreduce_rnn.bucketing.sampler import BucketBatchSampler

__all__ = [
    "BatchTime",
    "BucketBatchSampler",
    "Buckets",
    "Choice",
    "CostModel",
    "CostTable",
    "Frames",
    "batches_cost",
    "buckets_in_play",
    "choose_n_buckets",
    "competence",
    "cut_batches",
    "epoch_batches",
    "equal_counts",
    "fixed_widths",
    "optimal_buckets",
    "optimal_partitions",
    "padding_share",
    "parse_cost",
]
