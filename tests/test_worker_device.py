"""The one device of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from mapreduce_rnn.errors import TrainingFailed
from mapreduce_rnn.workers.device import prepare_device


@pytest.fixture(autouse=True)
def torch_settings() -> Iterator[None]:
    """What is set for a whole process is put back."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def test_a_cpu_worker_computes_with_the_given_threads() -> None:
    for threads in (2, 1):
        device = prepare_device("cpu", threads=threads, deterministic=False)
        assert device == torch.device("cpu")
        assert torch.get_num_threads() == threads


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_cuda_does_not_show_is_not_replaced() -> None:
    with pytest.raises(TrainingFailed, match="cuda:GPU-8932f937: CUDA shows 0 devices for it"):
        prepare_device("cuda:GPU-8932f937", threads=1, deterministic=False)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() != 1, reason="needs exactly one visible GPU")
def test_a_gpu_worker_computes_in_full_float32_and_repeatably() -> None:
    device = prepare_device("cuda:0", threads=1, deterministic=True)
    assert device == torch.device("cuda", 0)
    assert not torch.backends.cudnn.allow_tf32
    assert torch.are_deterministic_algorithms_enabled()
    a = torch.randn(256, 256)
    on_gpu = (a.to(device) @ a.to(device)).cpu()
    assert torch.allclose(on_gpu, a @ a, rtol=1e-5, atol=1e-4)
