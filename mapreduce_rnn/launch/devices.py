"""Which devices a run uses. Nothing here imports torch: workers start before the master does.

A GPU is named by a token, one entry of CUDA_VISIBLE_DEVICES: an index, a UUID (also shortened) or
a MIG id. Tokens are text from end to end.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from mapreduce_rnn.config import DeviceConfig
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.launch.base import Place

DEFAULT_CPU_WORKERS = 2  # without a GPU and without being asked: enough to see map-reduce work
VISIBLE = "CUDA_VISIBLE_DEVICES"

_COUNT = re.compile(r"0*[1-9][0-9]{0,5}")
_TOKEN = re.compile(r"\d+|GPU-[0-9A-Fa-f-]+|MIG-[\w./-]+")


def resolve_places(
    config: DeviceConfig,
    *,
    environ: Mapping[str, str],
    count_gpus: Callable[[], int],
    cores: int,
) -> tuple[Place, ...]:
    """The places of a run, one per worker, in the order the user gave.

    With no option set: all visible GPUs, else one CPU worker per core, at most 2. A GPU that was
    asked for is never replaced by anything else.

    Args:
        environ: Of this process; CUDA_VISIBLE_DEVICES is read.
        count_gpus: How many devices the CUDA driver shows (:func:`cuda_device_count`); only
            called when the answer matters.
        cores: Usable ones (:func:`usable_cores`).

    Raises:
        UsageError: Options that exclude each other, or a GPU that is not there; ``--listen``
            without a number of workers.
    """
    _check_exclusive(config)
    if config.simulate:
        _check_simulated(config)
    if config.listen is not None:
        return _remote_places(config)
    if config.keys is not None:
        raise UsageError("--keys says who may connect to --listen ADDRESS: give both or none")
    if config.cpu_workers is not None:  # two at a time would share what one has alone
        return (Place("cpu"),) * (1 if config.simulate else config.cpu_workers)
    visible = visible_tokens(environ.get(VISIBLE), count_gpus())
    if config.devices:
        tokens = _chosen(config.devices, visible, environ.get(VISIBLE))
    elif config.gpus is not None:
        fewer = config.simulate and visible
        wanted = str(min(int(config.gpus), len(visible))) if fewer else config.gpus
        tokens = _first(wanted, visible, environ.get(VISIBLE))
    else:
        tokens = visible
    if tokens:
        return tuple(Place("cuda", token) for token in tokens)
    return (Place("cpu"),) * min(DEFAULT_CPU_WORKERS, cores)


def visible_tokens(value: str | None, count: int) -> tuple[str, ...]:
    """One token per GPU that CUDA shows to this process.

    CUDA ignores everything from the first invalid entry on ("-1", an unknown id), so ``count``,
    which the driver found under the same variable, is the number of leading valid entries. Of
    MIG instances it shows a process only one; each worker is its own process, so all are kept.

    Args:
        value: CUDA_VISIBLE_DEVICES, None if unset (then the driver numbers the devices).
    """
    if value is None:
        return tuple(str(index) for index in range(count))
    leading: list[str] = []
    for token in map(str.strip, value.split(",")):
        if not _TOKEN.fullmatch(token):
            break
        leading.append(token)
    only_mig = bool(count) and all(token.startswith("MIG-") for token in leading)
    return tuple(leading if only_mig else leading[:count])


def cuda_device_count() -> int:
    """GPUs that the CUDA driver shows to this process; 0 without a driver. No context is made."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def usable_cores(cgroup_root: Path = Path("/sys/fs/cgroup")) -> int:
    """CPU cores this process may use: its affinity, cut by the container's quota; at least 1."""
    cores = len(os.sched_getaffinity(0))
    quotas = (_cpu_quota(folder / "cpu.max") for folder in _own_cgroups(cgroup_root))
    return max(1, int(min([cores, *quotas])))


def resolve_threads(option: int | None, environ: Mapping[str, str]) -> int:
    """CPU threads per worker: ``--threads``, else OMP_NUM_THREADS, else 1.

    Never derived from cores or workers: the number is part of the result (float sums are split
    by it). Of a list ("4,2", one per nesting level) the first counts.

    Raises:
        UsageError: OMP_NUM_THREADS is not a positive number.
    """
    if option is not None:
        return option
    value = environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if not value:
        return 1
    if not _COUNT.fullmatch(value):
        raise UsageError(
            f"OMP_NUM_THREADS is {value!r}, expected a positive number: correct it or give "
            "--threads"
        )
    return int(value)


def thread_warning(threads: int, workers: int, cores: int) -> str | None:
    """One line when the CPU workers together have more threads than there are cores."""
    if threads * workers <= cores:
        return None
    return (
        f"{workers} workers x {threads} threads on {cores} usable cores: training will be slow; "
        "use fewer workers or --threads 1"
    )


def _check_exclusive(config: DeviceConfig) -> None:
    given = [
        option
        for option, value in (
            ("--gpus", config.gpus),
            ("--devices", config.devices),
            ("--cpu-workers", config.cpu_workers),
        )
        if value is not None and value != ()
    ]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: give one of them")


def _check_simulated(config: DeviceConfig) -> None:
    if config.listen is not None:
        raise UsageError("--simulate times tasks on devices of this machine: leave out --listen")
    if config.cpu_workers is None and not _COUNT.fullmatch(config.gpus or ""):
        raise UsageError(
            "--simulate: the time of how many devices? Give --gpus N or --cpu-workers N with a "
            f"number{'' if config.gpus is None else f', not --gpus {config.gpus}'}"
        )


def _remote_places(config: DeviceConfig) -> tuple[Place, ...]:
    """Places on other machines: how many and of which kind is all that can be known here."""
    if config.keys is None:
        raise UsageError(
            "--listen needs --keys DIR, on loopback too: without keys whoever reaches the port is "
            "let in; make them with mapreduce-rnn keys DIR"
        )
    if config.devices:
        raise UsageError("--devices names GPUs of this machine: with --listen give --gpus N")
    if config.cpu_workers is not None:
        return (Place("cpu"),) * config.cpu_workers
    if config.gpus is None or not _COUNT.fullmatch(config.gpus):
        raise UsageError(
            "--listen: how many workers will connect? Give --gpus N or --cpu-workers N with a "
            f"number{'' if config.gpus is None else f', not --gpus {config.gpus}'}"
        )
    return (Place("cuda"),) * int(config.gpus)


def _first(gpus: str, visible: tuple[str, ...], variable: str | None) -> tuple[str, ...]:
    """The tokens of ``--gpus``: a count, or "auto" for all."""
    if gpus != "auto" and not _COUNT.fullmatch(gpus):
        raise UsageError(f"--gpus {gpus}: expected a number from 1 on, or auto")
    wanted = len(visible) if gpus == "auto" else int(gpus)
    if not visible:
        workers = DEFAULT_CPU_WORKERS if gpus == "auto" else wanted
        raise UsageError(
            f"--gpus {gpus}: {_no_gpu(variable)}; for CPU workers give --cpu-workers {workers}"
        )
    if wanted > len(visible):
        raise UsageError(
            f"--gpus {gpus}: only {len(visible)} visible ({', '.join(visible)}); give --gpus "
            f"{len(visible)}, or --devices to run several workers on one GPU"
        )
    return visible[:wanted]


def _chosen(
    devices: tuple[str, ...], visible: tuple[str, ...], variable: str | None
) -> tuple[str, ...]:
    """The tokens of ``--devices``, which may repeat; each must be one of the visible ones."""
    if not visible:
        raise UsageError(
            f"--devices {','.join(devices)}: {_no_gpu(variable)}; for CPU workers give "
            f"--cpu-workers {len(devices)}"
        )
    for token in devices:
        _check_token(token, visible, variable)
    return devices


def _check_token(token: str, visible: tuple[str, ...], variable: str | None) -> None:
    """An id of a GPU that was not listed can be checked by its own worker only."""
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            f"--devices {token}: expected an index, a UUID (GPU-...) or a MIG id (MIG-...)"
        )
    if variable is None and not token.isdecimal():
        return
    if not any(_same_gpu(token, other) for other in visible):
        source = f"{VISIBLE}={variable}" if variable is not None else "the CUDA driver"
        raise UsageError(f"--devices {token}: not visible; {source} shows {', '.join(visible)}")


def _same_gpu(a: str, b: str) -> bool:
    """CUDA takes a UUID's beginning for the whole; an index must be equal."""
    if a.isdecimal() or b.isdecimal():
        return a == b
    return a.startswith(b) or b.startswith(a)


def _no_gpu(variable: str | None) -> str:
    hidden = f" ({VISIBLE} is {variable!r})" if variable is not None else ""
    return f"no GPU is visible{hidden}"


def _own_cgroups(root: Path) -> list[Path]:
    """This process's control group (version 2) and those above it, which limit it too."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [root]
    paths = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    own = root / paths[0] if paths else root
    return [own, *(folder for folder in own.parents if folder.is_relative_to(root))]


def _cpu_quota(file: Path) -> float:
    """Cores that a cpu.max file ("<quota> <period>" in microseconds, or "max ...") allows."""
    try:
        quota, period = file.read_text().split()
    except (OSError, ValueError):
        return float("inf")
    return float("inf") if quota == "max" else int(quota) / int(period)
