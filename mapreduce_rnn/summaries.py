"""What the console says of a plan before round 1, and of a run at its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mapreduce_rnn import checkpoint
from mapreduce_rnn.config import DeviceConfig
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.launch.base import Place
from mapreduce_rnn.plan import Plan
from mapreduce_rnn.progress import EndSummary, StartSummary
from mapreduce_rnn.runfolder import BEST_MODEL, METRICS
from mapreduce_rnn.runstate import RunState, planned_end
from mapreduce_rnn.text import counted, duration, network


def start_summary(
    plan: Plan,
    store: Store,
    places: Sequence[Place],
    run_dir: Path | None,
    resumed_after: int | None,
) -> StartSummary:
    """What is settled before round 1.

    Args:
        run_dir: None for a dry run.
        resumed_after: the round whose checkpoint the run goes on from.
    """
    config = plan.config
    assert config.run.threads is not None
    return StartSummary(
        store=store.path.name,
        train_sequences=len(plan.train.indices),
        validation_sequences=len(plan.validation.indices),
        infeasible=plan.train.infeasible + plan.validation.infeasible,
        devices=_devices(config.devices, places),
        threads=config.run.threads,
        slots=plan.slots,
        model=network(
            config.model.layers, config.model.units, bidirectional=config.model.bidirectional
        ),
        parameters=plan.parameters,
        buckets=len(plan.epoch.buckets.boundaries),
        expected_padding=plan.epoch.padding,
        steps_per_epoch=sum(plan.epoch.steps),
        constant_label_error=plan.constant_label_error,
        stop=config.stop,
        run_dir=run_dir,
        resumed_after=resumed_after,
    )


def _devices(config: DeviceConfig, places: Sequence[Place]) -> str:
    devices = describe_places(places, remote=config.listen is not None)
    if config.simulated is None:
        return devices
    return f"{devices} for {_simulated_devices(config, places)}"


def _simulated_devices(config: DeviceConfig, places: Sequence[Place]) -> str:
    kind = "CPU" if places[0].kind == "cpu" else "GPU"
    return counted(config.simulated or 0, f"simulated {kind} worker")


def describe_places(places: Sequence[Place], *, remote: bool = False) -> str:
    """ "2 CPU workers", or the GPUs by their tokens, which of remote ones only they know."""
    if remote:
        kind = "CPU" if places[0].kind == "cpu" else "GPU"
        return counted(len(places), f"remote {kind} worker")
    if places[0].kind == "cpu":
        return counted(len(places), "CPU worker")
    tokens = ", ".join(place.token for place in places)
    return f"{counted(len(places), 'GPU worker')} on {tokens}"


def end_summary(
    plan: Plan,
    state: RunState,
    reason: str,
    seconds: float,
    run_dir: Path,
    *,
    elapsed: float,
    places: Sequence[Place],
    report: bool,
) -> EndSummary:
    """How a run ended, and where everything lies.

    Args:
        reason: why it stopped, in words.
        seconds: of this session, start-up and validation included.
        elapsed: training seconds over all sessions.
        report: whether report.html was written.
    """
    best = state.best
    return EndSummary(
        reason=reason,
        seconds=seconds,
        best_round=best.round if best else None,
        best_loss=best.loss if best else None,
        best_label_error=best.label_error if best else None,
        run_dir=run_dir,
        files=_files(best is not None, state.round, report),
        resume=_resume_command(run_dir, state, plan),
        simulated=None if plan.config.devices.simulated is None else
        f"{duration(elapsed)} on {_simulated_devices(plan.config.devices, places)}",
    )  # fmt: skip


def _files(best: bool, last_round: int, report: bool) -> list[str]:
    named = {
        f"{BEST_MODEL} (best)": best,
        f"{checkpoint.folder('', last_round)}/ (last)": last_round > 0,
        METRICS: True,
        "report.html": report,
    }
    return [name for name, there in named.items() if there]


def _resume_command(run_dir: Path, state: RunState, plan: Plan) -> list[str]:
    """The command that goes on: where all is done as planned, with twice as much."""
    command = ["mapreduce-rnn", "train", "--resume", str(run_dir)]
    if planned_end(state, plan.config.stop) is None:
        return command
    if state.epochs_done >= plan.config.stop.epochs:
        return [*command, "--epochs", str(2 * state.epochs_done)]
    return [*command, "--rounds", str(2 * state.round)]
