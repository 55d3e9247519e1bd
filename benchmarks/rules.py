"""Which reduce rule, optimizer policy, sync period, rate and warm-up reach a loss soonest?

Trains a plan of settings (see trialplan.py) for 1, 2, 6 and 12 slots on KanjiVG characters, KanjiVG
lines and UNIPEN words, and scores each by the time to three losses on every set. Training is real;
time is modelled (see modelled.py) from constants of this machine that are measured first. So
several trials can run at once, and the same command goes on after a stop:

    python benchmarks/rules.py --data FOLDER --results FILE [--jobs 2] [--hours 6]
    python benchmarks/rules.py --results FILE --report

FOLDER holds the stores characters, lines and words; those that are not there are left out. FILE
gets a line of JSON for the constants of each set and for each trial that ends.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from modelled import Costs, measure, train
from trialplan import next_trials
from trials import SETS, Record, Trial, from_lines, to_line
from trialscore import bar
from trialtable import report

from mapreduce_rnn.data.store import Store
from mapreduce_rnn.errors import MapReduceRnnError, UsageError
from mapreduce_rnn.runlog import JsonLines, read_lines
from mapreduce_rnn.text import duration
from mapreduce_rnn.workers.lifeline import die_with_parent


def main() -> int:
    """Make the trials that are missing, or print the tables."""
    options = _parse()
    if options.report:
        print("\n".join(report(from_lines(_lines(options.results)))))
        return 0
    if options.data is None:
        print("rules.py: skipped, give --data FOLDER or set MAPREDUCE_RNN_DATA")
        return 0
    sets = [data for data in SETS if (options.data / data).is_dir()]
    for data in sorted(set(SETS) - set(sets)):
        print(f"{data}: skipped, {options.data / data} is not there")
    if sets:
        with JsonLines(options.results) as file:
            _Plan(options, sets, file).run()
    return 0


class _Plan:
    """The trials of the plan, so many at once."""

    def __init__(self, options: argparse.Namespace, sets: list[str], file: JsonLines) -> None:
        self._options, self._sets, self._file = options, sets, file
        self._stores = {data: options.data / data for data in sets}
        lines = _lines(options.results)
        self._records = from_lines(lines)
        self._spent: float = sum(line["cpu_seconds"] for line in lines if line["kind"] == "trial")
        self._costs = {data: self._known(lines, data) or self._measured(data) for data in sets}

    def _known(self, lines: Iterable[dict[str, Any]], data: str) -> Costs | None:
        """The constants of a set, if the file has them."""
        fingerprint = Store.open(self._stores[data]).fingerprint
        for line in lines:
            if line["kind"] == "costs" and line["data"] == data:
                if line["fingerprint"] != fingerprint:
                    raise UsageError(
                        f"{self._options.results} is about another {data} than that in "
                        f"{self._options.data}: give another --results"
                    )
                return Costs(**line["costs"])
        return None

    def _measured(self, data: str) -> Costs:
        store = self._stores[data]
        costs = self._options.costs or measure(store)
        head = {"kind": "costs", "data": data, "fingerprint": Store.open(store).fingerprint}
        self._file.write(head | {"costs": costs._asdict()})
        print(f"{data}: {costs}", flush=True)
        return costs

    def run(self) -> None:
        """All of them, until nothing is missing or the hours are over."""
        with _processes(self._options.jobs) as processes:
            running: dict[Future[Record], Trial] = {}
            while True:
                for trial in self._due(running.values()):
                    running[self._started(trial, processes)] = trial
                if not running:
                    break
                for ended in wait(running, return_when=FIRST_COMPLETED).done:
                    self._keep(running.pop(ended), ended.result())

    def _due(self, running: Iterable[Trial]) -> list[Trial]:
        """What to start now."""
        under_way = set(running)
        if self._spent >= self._options.hours * 3600:
            return []
        missing = [t for t in next_trials(self._records, self._sets) if t not in under_way]
        return missing[: self._options.jobs - len(under_way)]

    def _started(self, trial: Trial, processes: ProcessPoolExecutor) -> Future[Record]:
        store, costs = self._stores[trial.data], self._costs[trial.data]
        return processes.submit(train, trial, store, costs, bar(self._records, trial))

    def _keep(self, trial: Trial, record: Record) -> None:
        self._file.write(to_line(trial, record))
        self._file.sync()
        self._records[trial] = record
        self._spent += record.cpu_seconds
        last = f", loss {record.curve[-1].loss:.3f}" if record.curve else ""
        spent = f"{duration(self._spent)} of CPU time so far"
        print(f"{trial.key}: {record.end}{last}; {spent}", flush=True)


@contextmanager
def _processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that train; they end with this one, whatever happens."""
    executor = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=die_with_parent,
        initargs=(os.getpid(),),
    )
    try:
        yield executor
    finally:
        for process in multiprocessing.active_children():
            process.terminate()
        executor.shutdown()


def _lines(path: Path) -> list[dict[str, Any]]:
    found = read_lines(path)
    if found.problem:
        raise UsageError(f"{path}: {found.problem}")
    return list(found.records)


def _costs(text: str) -> Costs:
    return Costs(*map(float, text.split(",")))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    data = os.environ.get("MAPREDUCE_RNN_DATA")
    parser.add_argument("--data", type=Path, default=data and Path(data))
    parser.add_argument("--results", type=Path, default=Path("rules.jsonl"))
    parser.add_argument("--jobs", type=int, default=1, help="trials at once")
    parser.add_argument(
        "--hours", type=float, default=6.0,
        help="CPU hours of all trials in the file, after which none is started",
    )  # fmt: skip
    parser.add_argument(
        "--costs", type=_costs, metavar="A,P,C,TASK,ROUND",
        help="seconds, instead of measuring them: of a batch of b sequences padded to L frames, "
        "A + P L + C b L; of a task's messages; of a round's reduce",
    )  # fmt: skip
    parser.add_argument("--report", action="store_true", help="print the tables of --results")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MapReduceRnnError as error:
        sys.exit(f"rules.py: {error}")
    except KeyboardInterrupt:
        sys.exit("rules.py: stopped, the same command goes on")
