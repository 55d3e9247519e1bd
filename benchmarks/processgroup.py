"""Ranks of torch.distributed on this machine, for what benchmarks measure us against."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def process_group(rank: int, ranks: int, file: Path, backend: str = "gloo") -> Iterator[None]:
    """Be a rank of a group whose members meet at ``file``, which nobody else uses."""
    from torch import distributed  # not at the top: who only imports this starts without torch

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group(
        backend, init_method=f"file://{file}", rank=rank, world_size=ranks
    )
    try:
        yield
    finally:
        distributed.destroy_process_group()
