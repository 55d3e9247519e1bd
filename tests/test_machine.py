"""What a run goes on with, beside what it was begun with."""

from __future__ import annotations

from typing import Any

import pytest

from mapreduce_rnn.machine import cpu, moved, versions

Event = dict[str, Any]


def start(device: str = "cpu", cpu: str = "One CPU", **changed: str) -> Event:
    known = {"mapreduce_rnn": "0.1.0", "torch": "2.13.0", "numpy": "2.4.6", "pyzmq": "27.1.0"}
    return {"event": "start", "devices": [device] * 2, "cpu": cpu, "versions": known | changed}


def rounds(*numbers: int) -> list[Event]:
    return [{"event": "round", "round": number} for number in numbers]


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (start("cuda:GPU-1"), "device cpu -> cuda"),
        (start(cpu="Two CPU"), "processor One CPU -> Two CPU"),
        (start(torch="2.14.0"), "torch 2.13.0 -> 2.14.0"),
        (start(mapreduce_rnn="0.2.0"), "mapreduce_rnn 0.1.0 -> 0.2.0"),
        (start("cuda:1", numpy="2.5.0"), "device cpu -> cuda, numpy 2.4.6 -> 2.5.0"),
    ],
)
def test_what_has_a_hand_in_the_result_and_changed_is_one_line(now: Event, told: str) -> None:
    line = moved([start(), *rounds(1, 2), now], 2)
    assert line is not None
    assert line.startswith(f"{told} from round 3 on: the result may not be that of")


@pytest.mark.parametrize(
    "records",
    [
        [],
        [start(), start("cuda:0")],  # no round was done
        [start(), *rounds(1, 2), start(pyzmq="28.0.0")],
        [start("cuda:0"), *rounds(1, 2), start("cuda:GPU-1")],
        [start(), *rounds(1), start("cuda:0"), *rounds(2), start("cuda:0")],  # told before
        [start(), *rounds(1, 2), start("cuda:0"), start()],  # the one between did nothing
        [{"event": "start", "devices": ["cpu"], "cpu": "One CPU", "versions": {}}, *rounds(2),
         start()],
    ],
)  # fmt: skip
def test_what_did_not_change_or_has_no_hand_in_it_is_not_told(records: list[Event]) -> None:
    assert moved(records, 2) is None


def test_rounds_that_were_lost_do_not_count() -> None:
    """The checkpoint of round 3, done on a GPU, is damaged: that of round 2 goes on."""
    records = [start(), *rounds(1, 2), start("cuda:0"), *rounds(3), start()]
    assert moved(records, 2) is None
    assert "device cuda -> cpu" in str(moved(records, 3))


def test_this_machine_can_be_named() -> None:
    assert cpu()
    assert {"mapreduce_rnn", "torch", "numpy"} <= versions().keys()
