"""The one device a worker computes on, and how."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mapreduce_rnn.errors import TrainingFailed


def prepare_device(device: str, *, threads: int, deterministic: bool) -> torch.device:
    """Set this process up for its device and return it.

    Args:
        device: "cpu", or "cuda:<token>" with the token in CUDA_VISIBLE_DEVICES since before the
            process started, which makes it the only GPU there is here.
        threads: CPU threads; part of the result, so set even where it is torch's default.
        deterministic: Repeatable bytes on a GPU; on a CPU they are so anyway.

    Raises:
        TrainingFailed: CUDA does not show the chosen GPU. It is never replaced by another device.
    """
    torch.set_num_threads(threads)
    if device == "cpu":
        return torch.device("cpu")
    _check_visible(device)
    _use_full_float32()
    if deterministic:
        _use_deterministic_kernels()
    return torch.device("cuda", 0)


@contextmanager
def told_if_too_large(sequences: int, frames: int) -> Iterator[None]:
    """What a batch of so many sequences, padded to so many frames, is computed in.

    Raises:
        TrainingFailed: In place of torch's error for memory that a GPU does not have, with what
            does not fit and what to set: a smaller batch is the user's to choose, since it
            changes the result.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise TrainingFailed(
            f"out of memory: a batch of {sequences} sequences, padded to {frames} frames, does "
            f"not fit on the GPU: set --max-frames below {sequences * frames}, or lower "
            "--batch-size or --units"
        ) from None


def _check_visible(device: str) -> None:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count != 1:
        raise TrainingFailed(
            f"{device}: CUDA shows {count} devices for it, expected 1: check the token with "
            f"nvidia-smi -L, and that torch {torch.__version__} is built for CUDA"
        )


def _use_full_float32() -> None:
    """Float32 as on a CPU: cuDNN's LSTM rounds products to TF32 (10 bits) by default.

    Workers' parameters are averaged and losses compared between devices; who wants the speed of
    short formats asks for it with ``--amp``.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def _use_deterministic_kernels() -> None:
    # cuBLAS reads its workspace setting when its first handle is made, which is after this.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
