"""The report of a run, made from the files of its folder and nothing else."""

from __future__ import annotations

import logging
from pathlib import Path


def write_report(run_dir: Path) -> Path:
    """Write figures/*.png and report.html into a run folder; returns the path of report.html.

    A run that is still going, was killed or has lost files gets a report too: of what is there,
    with a list of what isn't.

    Raises:
        UsageError: the folder isn't there or isn't a run folder.
        OSError: it can't be written to.
    """
    # Drawing takes a second to import, and whoever trains imports this module.
    from mapreduce_rnn.report.html import write

    return write(run_dir)


def try_report(run_dir: Path, logger: logging.Logger) -> Path | None:
    """As :func:`write_report`, but never raises: training must not fail for a plot.

    What went wrong goes to ``logger``, and None comes back.
    """
    try:
        return write_report(run_dir)
    except Exception:
        logger.exception("no report of %s could be written; training is not affected", run_dir)
        return None
