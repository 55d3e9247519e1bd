"""Which devices a run uses: options, CUDA_VISIBLE_DEVICES, cores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from mapreduce_rnn.config import DeviceConfig
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.launch import devices
from mapreduce_rnn.launch.base import Place
from mapreduce_rnn.launch.devices import (
    resolve_places,
    resolve_threads,
    thread_warning,
    usable_cores,
    visible_tokens,
)

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
OTHER = "GPU-11111111-d72c-4106-c12f-20bd9faed9f6"
MIG = "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0"


def resolve(
    config: DeviceConfig | None = None, *, gpus: int = 0, visible: str | None = None, cores: int = 4
) -> tuple[Place, ...]:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return resolve_places(
        config or DeviceConfig(), environ=environ, count_gpus=lambda: gpus, cores=cores
    )


def tokens(config: DeviceConfig | None = None, *, gpus: int, visible: str | None = None) -> str:
    places = resolve(config, gpus=gpus, visible=visible)
    assert all(place.kind == "cuda" for place in places)
    return " ".join(place.token for place in places)


def refusal(config: DeviceConfig, *, gpus: int = 0, visible: str | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        resolve(config, gpus=gpus, visible=visible)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_workers_that_connect_are_counted_not_looked_for() -> None:
    """Whatever this machine has: their devices are elsewhere."""
    remote = {"listen": "tcp://10.0.0.1:5555", "keys": "keys"}
    assert resolve(DeviceConfig(gpus="6", **remote), gpus=1) == (Place("cuda"),) * 6
    assert resolve(DeviceConfig(cpu_workers=3, **remote), cores=1) == (Place("cpu"),) * 3


@pytest.mark.parametrize(
    ("value", "count", "expected"),
    [
        (None, 2, ("0", "1")),
        (None, 0, ()),
        ("", 0, ()),
        ("-1", 0, ()),
        ("1,0", 2, ("1", "0")),
        (" 1 , 0 ", 2, ("1", "0")),
        ("0,-1,1", 1, ("0",)),
        ("0,7,1", 1, ("0",)),  # CUDA ignores what follows an id that does not exist
        ("0,,1", 1, ("0",)),
        ("none", 0, ()),
        ("NoDevFiles", 0, ()),
        ("²", 1, ()),
        ("0,1", 0, ()),  # a CPU machine with a stale variable
        (f"{UUID},{OTHER}", 2, (UUID, OTHER)),
        ("GPU-8932f937", 1, ("GPU-8932f937",)),
        (MIG, 1, (MIG,)),
        (f"{MIG},MIG-2", 1, (MIG, "MIG-2")),  # CUDA shows a process one instance only
        (MIG, 0, ()),
    ],
)
def test_visible_gpus_are_whole_tokens_in_order(
    value: str | None, count: int, expected: tuple[str, ...]
) -> None:
    assert visible_tokens(value, count) == expected


def test_without_options_all_visible_gpus_are_used() -> None:
    assert tokens(gpus=3) == "0 1 2"
    assert tokens(gpus=2, visible="3,1") == "3 1"


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 2), (64, 2)])
def test_without_options_and_gpus_there_are_at_most_two_cpu_workers(
    cores: int, workers: int
) -> None:
    assert resolve(cores=cores) == (Place("cpu"),) * workers
    assert resolve(cores=cores, visible="-1") == (Place("cpu"),) * workers


def test_gpus_takes_the_first_ones_or_all() -> None:
    assert tokens(DeviceConfig(gpus="2"), gpus=3) == "0 1"
    assert tokens(DeviceConfig(gpus="1"), gpus=2, visible=f"{UUID},{OTHER}") == UUID
    assert tokens(DeviceConfig(gpus="auto"), gpus=3) == "0 1 2"


def test_devices_are_taken_as_given_and_may_repeat() -> None:
    assert tokens(DeviceConfig(devices=("1", "1", "0")), gpus=2) == "1 1 0"
    assert tokens(DeviceConfig(devices=(UUID,)), gpus=2) == UUID
    assert tokens(DeviceConfig(devices=("GPU-8932",)), gpus=1, visible=UUID) == "GPU-8932"


def test_cpu_workers_do_not_look_for_gpus() -> None:
    def count() -> NoReturn:
        raise AssertionError("the CUDA driver was loaded for a CPU run")

    config = DeviceConfig(cpu_workers=3)
    places = resolve_places(config, environ={}, count_gpus=count, cores=1)
    assert places == (Place("cpu"),) * 3


def test_a_chosen_gpu_that_is_missing_is_refused_and_cpu_workers_are_named() -> None:
    assert "--cpu-workers 2" in refusal(DeviceConfig(gpus="2"))
    assert "--cpu-workers 2" in refusal(DeviceConfig(gpus="auto"))
    assert "--cpu-workers 1" in refusal(DeviceConfig(devices=(MIG,)))
    assert "CUDA_VISIBLE_DEVICES is '-1'" in refusal(DeviceConfig(gpus="2"), visible="-1")


def test_more_gpus_than_there_are_is_refused() -> None:
    assert "only 1 visible (3); give --gpus 1" in refusal(
        DeviceConfig(gpus="2"), gpus=1, visible="3"
    )


@pytest.mark.parametrize("gpus", ["0", "-1", "two", "1.5", "", "²", "1_0"])
def test_gpus_is_a_positive_number_or_auto(gpus: str) -> None:
    assert "expected a number from 1 on, or auto" in refusal(DeviceConfig(gpus=gpus), gpus=2)


@pytest.mark.parametrize(
    ("chosen", "visible", "said"),
    [
        ("2", None, "the CUDA driver shows 0, 1"),
        ("0", "3,1", "CUDA_VISIBLE_DEVICES=3,1 shows 3, 1"),
        ("1", f"{UUID},{OTHER}", "not visible"),
        ("GPU-2", f"{UUID},{OTHER}", "not visible"),
        ("cuda:0", None, "expected an index, a UUID (GPU-...) or a MIG id"),
        ("-1", None, "expected an index"),
        ("", None, "expected an index"),
    ],
)
def test_devices_that_are_not_visible_are_refused(
    chosen: str, visible: str | None, said: str
) -> None:
    assert said in refusal(DeviceConfig(devices=(chosen,)), gpus=2, visible=visible)


def test_the_options_exclude_each_other() -> None:
    both = DeviceConfig(gpus="1", cpu_workers=1)
    assert refusal(both).startswith("--gpus and --cpu-workers exclude each other")
    all_three = DeviceConfig(gpus="1", devices=("0",), cpu_workers=1)
    assert refusal(all_three).startswith("--gpus and --devices and --cpu-workers")


def test_counting_gpus_works_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.cuda_device_count() >= 0

    def missing(name: str) -> NoReturn:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(devices.ctypes, "CDLL", missing)
    assert devices.cuda_device_count() == 0


# Threads and cores


@pytest.mark.parametrize(
    ("option", "variable", "threads"),
    [(None, None, 1), (None, "", 1), (None, "2", 2), (None, " 4,2", 4), (3, "2", 3), (3, "x", 3)],
)
def test_threads_are_the_option_else_the_variable_else_one(
    option: int | None, variable: str | None, threads: int
) -> None:
    environ = {} if variable is None else {"OMP_NUM_THREADS": variable}
    assert resolve_threads(option, environ) == threads


@pytest.mark.parametrize("variable", ["0", "-2", "many", "1.5", "²"])
def test_a_variable_that_is_no_number_of_threads_is_refused(variable: str) -> None:
    with pytest.raises(UsageError, match=r"OMP_NUM_THREADS is .* --threads"):
        resolve_threads(None, {"OMP_NUM_THREADS": variable})


def test_more_threads_than_cores_is_a_warning() -> None:
    assert thread_warning(1, workers=2, cores=2) is None
    assert thread_warning(2, workers=2, cores=2) == (
        "2 workers x 2 threads on 2 usable cores: training will be slow; "
        "use fewer workers or --threads 1"
    )


@pytest.mark.parametrize(
    ("cpu_max", "cores"),
    [
        ("100000 100000\n", 1),
        ("50000 100000\n", 1),
        ("250000 100000\n", 2),
        ("max 100000\n", 8),
        ("99900000 100000\n", 8),
        ("damaged", 8),
        (None, 8),
    ],
)
def test_a_container_quota_limits_the_cores(
    cpu_max: str | None, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    if cpu_max is not None:
        (tmp_path / "cpu.max").write_text(cpu_max)
    assert usable_cores(tmp_path) == cores
