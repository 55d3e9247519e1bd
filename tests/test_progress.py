from __future__ import annotations

import dataclasses
import io
import os
import re
import shlex
import threading
from pathlib import Path
from typing import TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.config import StopConfig
from mapreduce_rnn.lines import columns, command_lines, item, path_lines
from mapreduce_rnn.progress import Console, EndSummary, RoundLine, StartSummary, end_lines
from mapreduce_rnn.text import duration, percent

START = StartSummary(
    store="kanji", train_sequences=5785, validation_sequences=643, infeasible=12,
    devices="2 CPU workers", threads=1, slots=2, model="bidirectional LSTM, 1 layer of 96 units",
    parameters=122437, buckets=8, expected_padding=0.026, steps_per_epoch=182,
    constant_label_error=0.931, stop=StopConfig(epochs=30), run_dir=Path("runs/demo"),
)  # fmt: skip
END = EndSummary(
    reason="10 epochs done", seconds=95.3, best_round=10, best_loss=9.131,
    best_label_error=0.352, run_dir=Path("runs/demo"),
    files=("model.safetensors (best)", "checkpoints/round-000010 (last)", "metrics.jsonl",
           "report.html"),
    resume=("mapreduce-rnn", "train", "--resume", "runs/demo", "--epochs", "20"),
)  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def play(
    stream: TextIO, start: StartSummary = START, end: EndSummary = END, rounds: int = 10
) -> None:
    """A run of ``rounds``, each 8.1 s; on a terminal it loses a worker in round 4."""
    clock = Clock()
    console = Console(stream, clock)
    console.start(start)
    for number in range(1, rounds + 1):
        console.round_begin(number, rounds, 182)
        for steps in (0, 60, 182, 200):
            console.round_progress(steps)
        if number == 4 and isinstance(stream, Terminal):
            console.note("worker 1 was lost (signal 9); its task runs again")
            console.round_progress(90)
        clock.now += 8.1
        loss = None if number == 3 else 30.0 / number
        console.round_end(RoundLine(number, loss, loss, 1 - 0.065 * number))
    console.end(end)


def written(start: StartSummary = START, end: EndSummary = END) -> str:
    stream = io.StringIO()
    play(stream, start, end)
    return stream.getvalue()


def at(run_dir: Path, store: str = "kanji") -> tuple[StartSummary, EndSummary]:
    resume = ("mapreduce-rnn", "train", "--resume", str(run_dir), "--epochs", "20")
    return (
        dataclasses.replace(START, run_dir=run_dir, store=store),
        dataclasses.replace(END, run_dir=run_dir, resume=resume),
    )


@pytest.mark.parametrize(
    "run_dir",
    ["runs/demo", "/tmp/" + "a" * 70, "/tmp/" + "b" * 145, "/tmp/some files/" + "c" * 134],
)
def test_ten_rounds_in_a_pipe_are_at_most_30_plain_lines(run_dir: str) -> None:
    text = written(*at(Path(run_dir)))
    assert len(text.splitlines()) <= 30
    assert max(map(columns, text.splitlines())) <= 80
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)


def test_wide_characters_count_two_columns() -> None:
    text = written(*at(Path("runs/" + "漢" * 60), store="字" * 90))
    assert max(map(columns, text.splitlines())) <= 80
    assert text.replace("\n         ", "").count("字") == 90


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    play(terminal)
    note = "note     worker 1 was lost (signal 9); its task runs again\n"
    assert terminal.getvalue().replace(note, "") == written()


def test_a_terminal_gets_a_bar_in_place_of_which_comes_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    terminal = Terminal()
    play(terminal)
    shown = terminal.getvalue()
    bars = [part for part in re.split(r"[\r\n]", shown) if part.startswith("round ")]
    assert {bar.split()[1] for bar in bars} == {f"{n}/10" for n in range(1, 11)}
    assert re.fullmatch(r"round 1/10   0 % \|.*\| 0/182 batches, \? left", bars[0])
    assert max(map(columns, bars)) < 80
    # What stays on the screen is what follows the last carriage return of each line.
    stays = [line.rsplit("\r", 1)[-1] for line in shown.split("\n")]
    assert [line for line in stays if not line.startswith("note")] == written().split("\n")


def test_a_bar_goes_back_when_a_worker_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    console = Console(terminal)
    console.round_begin(1, None, 182)
    console.round_progress(182)
    console.round_progress(91)
    console.note("worker 1 was lost")  # draws the bar anew below
    assert "| 91/182 batches" in terminal.getvalue().rsplit("\r", 1)[-1]
    console.close()
    assert terminal.getvalue().endswith("\r")


def test_the_bar_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    before = threading.active_count()
    play(Terminal())
    assert threading.active_count() == before


def test_the_start_tells_what_runs() -> None:
    text = written()
    for part in (
        "kanji: 5,785 training, 643 validation sequences\n",
        "left out 12 of 6,440 sequences: fewer frames than their labels need\n",
        "1 layer of 96 units, 122,437 parameters",
        "2 CPU workers, 1 thread each, 2 map tasks per round",
        "8 per shard, 2.6 % padding expected, 182 batches per epoch",
        "after 30 epochs",
        "run      runs/demo\n",
    ):
        assert part in text


def test_a_round_line_has_its_scores_beside_the_constant_ones_and_the_time_left() -> None:
    second, third = (
        re.split(" {2,}", line.strip()) for line in written().splitlines() if " 2/10" in line
        or " 3/10" in line
    )  # fmt: skip
    assert second == ["2/10", "2", "15.000", "15.000", "87.0 % / 93.1 %", "8.1", "64.8 s"]
    assert third[2:4] == ["-", "-"]


def test_the_time_left_is_no_longer_than_the_time_allowed() -> None:
    start = dataclasses.replace(START, stop=StopConfig(max_seconds=20.0))
    assert "8.1       11.9 s" in written(start=start)


def test_simulated_time_is_told_at_the_end() -> None:
    time = "9.0 s on 6 simulated CPU workers"
    assert f"training {time}" in end_lines(dataclasses.replace(END, simulated=time), None)


def test_without_an_end_in_sight_no_time_is_promised() -> None:
    stream, clock = io.StringIO(), Clock()
    console = Console(stream, clock)
    console.round_begin(1, None, 5)
    console.round_end(RoundLine(1, 2.0, None, None))
    last = stream.getvalue().splitlines()[-1]
    assert re.split(" {2,}", last.strip()) == ["1", "1", "2.000", "-", "- / -", "0.0", "-"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (0.352, "label error 35.2 %: better than the best constant output (93.1 %)"),
        (0.931, "label error 93.1 %: NO BETTER than the best constant output (93.1 %)"),
        (None, "no label error to compare with the best constant output"),
    ],
)
def test_the_end_says_whether_the_model_is_worth_anything(error: float | None, words: str) -> None:
    lines = end_lines(dataclasses.replace(END, best_label_error=error), constant=0.931)
    assert f"verdict  {words}" in lines


def test_a_run_without_any_score_has_no_best() -> None:
    summary = dataclasses.replace(END, best_round=None, best_loss=None, best_label_error=None)
    assert "best     -" in end_lines(summary, constant=None)


def test_a_reader_that_goes_away_stops_nothing() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "w", encoding="utf-8") as stream:  # its closing flushes, without error
        play(stream)
        assert not stream.closed


def test_a_closed_or_absent_output_stops_nothing() -> None:
    closed = io.StringIO()
    closed.close()
    play(closed)
    Console(None).start(START)


def test_an_encoding_that_lacks_a_character_gets_an_escape() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    play(stream, *at(Path("漢")))
    stream.seek(0)
    assert "run      \\u6f22\n" in stream.read()


def test_control_characters_of_a_name_do_not_reach_the_terminal() -> None:
    text = written(*at(Path("runs/\x1b[2Jx"), store="a\rb\nc"))
    assert "a\\rb\\nc: " in text
    assert "\x1b" not in text


paths = st.text("abc/ 漢'", min_size=1, max_size=200)


@given(paths)
def test_a_command_is_what_the_shell_would_read_again(path: str) -> None:
    command = ["mapreduce-rnn", "train", "--resume", path, "--epochs", "20"]
    label, *rest = command_lines("resume", command)
    text = "\n".join([label.removeprefix("resume"), *rest]).replace("\\\n", "")
    assert shlex.split(text) == command
    assert max(map(columns, [label, *rest])) <= 80


@given(st.integers(min_value=1, max_value=300))
def test_a_path_stays_whole_or_goes_on_behind_a_backslash(length: int) -> None:
    lines = path_lines("run", Path("/" + "x" * length))
    assert max(map(len, lines)) <= 80
    assert "\n".join(lines).replace("\\\n", "").split() == ["run", "/" + "x" * length]


def test_a_path_is_shown_from_the_current_folder_where_that_is_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert path_lines("run", tmp_path / "runs" / "demo") == ["run      runs/demo"]
    assert path_lines("run", Path("/a")) == ["run      /a"]


@given(st.text(st.characters(codec="utf-8"), max_size=300))
def test_no_text_makes_a_line_wider_than_80_columns(text: str) -> None:
    lines = item("note", text)
    assert max(map(columns, lines)) <= 80
    assert lines[0].startswith("note ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"), (99.94, "99.9 s"), (99.96, "1 min 40 s"), (3599.6, "60 min 00 s"),
        (6000, "1 h 40 min"), (360_000, "4 d 04 h"), (float("inf"), "-"), (None, "-"),
    ],
)  # fmt: skip
def test_durations_are_in_the_units_of_a_person(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_fraction_that_is_not_a_number_is_shown_as_missing() -> None:
    assert percent(float("nan")) == percent(None) == "-"
