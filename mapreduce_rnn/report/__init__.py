"""Reports of runs and of comparisons, made from the files of their folders and nothing else."""

from __future__ import annotations

import logging
from pathlib import Path


def write_report(folder: Path) -> Path:
    """Write figures/*.png, curves.csv and report.html into a folder; returns report.html's path.

    The folder is that of a run, or of a comparison: one with run folders in it. A run that is
    still going, was killed or has lost files gets a report too: of what is there, with a list of
    what isn't.

    Raises:
        UsageError: the folder isn't there, or is neither.
        OSError: it can't be written to.
    """
    # Drawing takes a second to import, and whoever trains imports this module.
    from mapreduce_rnn.report import html
    from mapreduce_rnn.report.run import is_run

    return html.write(folder) if is_run(folder) else write_comparison(folder)


def write_comparison(folder: Path) -> Path:
    """As :func:`write_report`, for a comparison; table.csv too."""
    from mapreduce_rnn.report import comparisonpage

    return comparisonpage.write(folder)


def comparison_lines(folder: Path) -> list[str]:
    """The tables of a comparison for a terminal, in lines of at most 80 columns.

    Raises:
        UsageError: the folder isn't there, or holds no run.
    """
    from mapreduce_rnn.report.comparison import read_comparison
    from mapreduce_rnn.report.comparisonlines import lines

    return lines(read_comparison(folder))


def try_report(run_dir: Path, logger: logging.Logger) -> Path | None:
    """As :func:`write_report`, but never raises: training must not fail for a plot.

    What went wrong goes to ``logger``, and None comes back.
    """
    try:
        return write_report(run_dir)
    except Exception:
        logger.exception("no report of %s could be written; training is not affected", run_dir)
        return None
