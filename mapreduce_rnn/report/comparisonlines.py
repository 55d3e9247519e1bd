"""The tables of a comparison for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from mapreduce_rnn.lines import item, table_lines
from mapreduce_rnn.report import comparisontables as tables
from mapreduce_rnn.report.comparison import Comparison
from mapreduce_rnn.report.tables import Table


def lines(comparison: Comparison) -> list[str]:
    """The tables, the verdict and what is missing, in lines of at most 80 columns."""
    verdict = tables.comparison_verdict(comparison).text
    told = (
        ("training time", tables.times_table(comparison)),
        ("times as fast as the fewest devices", tables.speed_up_table(comparison)),
        ("times as fast as without buckets", tables.bucket_gain_table(comparison)),
        ("share of the devices' time", tables.time_shares_table(comparison)),
    )
    return [
        *(line for title, table in told for line in _blocks(title, table)),
        *item("verdict", verdict),
        *(line for problem in comparison.problems for line in item("problem", problem)),
    ]


def _blocks(title: str, table: Table) -> Iterator[str]:
    """A table per number of devices, each under its name; medians only."""
    for devices, rows in groupby(table.rows, lambda row: row[0]):
        yield f"{title}: {devices}"
        yield from table_lines(table.header[1:], [[_median(c) for c in row[1:]] for row in rows])
        yield ""


def _median(cell: str) -> str:
    return cell.split("\n")[0]
