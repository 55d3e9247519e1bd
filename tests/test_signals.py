"""When a stop signal is acted on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress

import pytest

from mapreduce_rnn.errors import Interrupted
from mapreduce_rnn.signals import SIGNALS, StopSignals, interruptible

EITHER = pytest.mark.parametrize("signum", SIGNALS)


@EITHER
def test_a_first_signal_waits_for_the_question_and_a_second_does_not(
    signum: signal.Signals,
) -> None:
    with StopSignals() as signals:
        signals.check()
        signal.raise_signal(signum)
        with pytest.raises(Interrupted, match=f"stopped by {signum.name}"):
            signals.check()
        with pytest.raises(Interrupted):
            signal.raise_signal(signum)


@EITHER
def test_a_signal_may_act_at_once(signum: signal.Signals) -> None:
    with StopSignals() as signals, pytest.raises(Interrupted) as stop, signals.at_once():
        signal.raise_signal(signum)
    assert stop.value.exit_code == 128 + signum


def passed_on_as_another() -> None:
    try:
        signal.raise_signal(signal.SIGTERM)
    except Interrupted as stop:
        raise RuntimeError("Error calling __set_name__") from stop


def swallowed() -> None:
    with suppress(Exception):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("import_", [passed_on_as_another, swallowed])
def test_what_an_import_makes_of_a_signal_does_not_matter(import_: Callable[[], None]) -> None:
    with StopSignals() as signals, pytest.raises(Interrupted), signals.at_once():
        import_()


@EITHER
def test_a_command_that_writes_files_is_interrupted_by_either(signum: signal.Signals) -> None:
    before = [signal.getsignal(s) for s in SIGNALS]
    with pytest.raises(KeyboardInterrupt) as stop, interruptible():
        signal.raise_signal(signum)
    assert stop.value.args == (signum,)
    assert [signal.getsignal(s) for s in SIGNALS] == before
