"""The text of ``mapreduce-rnn buckets``: buckets of a shard, and what its epoch costs in others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mapreduce_rnn.bucketing.cost import padding
from mapreduce_rnn.commands.bucketsurvey import EPOCH, Partition, Survey
from mapreduce_rnn.config import BatchConfig
from mapreduce_rnn.lines import item, table_lines
from mapreduce_rnn.text import NOTHING, counted, percent


def lines(survey: Survey, store: str) -> list[str]:
    """The whole text, in lines of at most 80 columns.

    Args:
        store: Name of the store.
    """
    return [*_facts(survey, store), "", *_buckets(survey.ours), "", *_comparison(survey)]


def _facts(survey: Survey, store: str) -> list[str]:
    options = survey.options
    buckets = f"auto: {survey.choice.reason}" if survey.automatic else f"{options.buckets}"
    return [
        *item("store", f"{store}: {_shard(survey)}"),
        *item("cost", f"{_unit(options)}; {_limits(options)}, padded to {_padded_to(options)}"),
        *item("buckets", buckets),
        *_alone(survey),
    ]


def _shard(survey: Survey) -> str:
    whole = counted(survey.total, "training sequence")
    if survey.slots == 1:
        return whole
    shard = f"the shard of slot {survey.slot}, one of {survey.slots}, in epoch {EPOCH}"
    return f"{len(survey.lengths):,} of {whole}, {shard}"


def _limits(options: BatchConfig) -> str:
    limits = f"batches of up to {counted(options.batch_size, 'sequence')}"
    if options.max_frames is None:
        return limits
    return f"{limits} and {counted(options.max_frames, 'frame')}"


def _padded_to(options: BatchConfig) -> str:
    return "their longest" if options.pad_to == "longest" else "the bucket's boundary"


def _alone(survey: Survey) -> list[str]:
    limit = survey.options.max_frames
    long = 0 if limit is None else int(np.count_nonzero(survey.lengths > limit))
    text = f"{counted(long, 'sequence')} of more than {limit} frames, each alone in a batch"
    return item("limit", text) if long else []


def _unit(options: BatchConfig) -> str:
    """What the cost of an epoch is counted in."""
    if options.bucket_cost == "frames":
        return "padded frames"
    return "units of the table" if ":" in options.bucket_cost else "units of A,P,C"


def _buckets(partition: Partition) -> list[str]:
    sums = (
        partition.sequences, partition.batches, partition.own, partition.fed, partition.costs,
    )  # fmt: skip
    whole = float(partition.costs.sum())
    rows = [
        _bucket(f"{boundary:,}", numbers, whole)
        for boundary, *numbers in zip(partition.boundaries, *sums, strict=True)
    ]
    rows.append(_bucket("all", [column.sum() for column in sums], whole))
    return table_lines(("boundary", "sequences", "batches", "padding", "share of time"), rows)


def _bucket(name: str, numbers: Sequence[Any], whole: float) -> tuple[str, ...]:
    sequences, batches, own, fed, cost = numbers
    share = percent(cost / whole if whole else math.nan)
    return name, f"{sequences:,}", f"{batches:,}", percent(padding(own, fed)), share


def _comparison(survey: Survey) -> list[str]:
    title, base = "time of an epoch", float(survey.ours.costs.sum())
    header = (title, "buckets", "batches", "padding", _unit(survey.options), "time")
    partitions = {"these buckets": survey.ours, **survey.others}
    rows = [
        (f"{name:<{len(title)}}", *_epoch(partition, base))
        for name, partition in partitions.items()
    ]
    return table_lines(header, rows)


def _epoch(partition: Partition, base: float) -> tuple[str, ...]:
    cost = float(partition.costs.sum())
    return (
        f"{len(partition.boundaries):,}",
        f"{partition.batches.sum():,}",
        percent(padding(partition.own.sum(), partition.fed.sum())),
        f"{cost:,.0f}" if cost >= 1000 else f"{cost:.4g}",
        f"{cost / base:.2f} x" if base else NOTHING,
    )
