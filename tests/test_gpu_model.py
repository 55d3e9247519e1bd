"""The model and CTC on a GPU give what they give on a CPU."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from mapreduce_rnn.config import ModelConfig, OptimizerConfig, TrainConfig
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.optim import build_optimizer, load_optimizer_arrays, optimizer_arrays
from mapreduce_rnn.tasks import Task, make_task
from mapreduce_rnn.tasks.ctc import ctc_losses
from stores import tiny_store

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
kernels = pytest.mark.parametrize("kernel", ["padded", "packed"])
directions = pytest.mark.parametrize("bidirectional", [True, False])
CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def exact_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tiny_store(tmp_path / "tiny.store"))


@pytest.fixture
def default_cuda() -> Iterator[None]:
    torch.set_default_device(CUDA)
    yield
    torch.set_default_device(None)


def config_of(kernel: str, *, bidirectional: bool = True, **optimizer: str) -> TrainConfig:
    model = ModelConfig(units=16, layers=2, bidirectional=bidirectional, kernel=kernel)
    return TrainConfig(model=model, optimizer=OptimizerConfig(**optimizer))


def model_on(device: torch.device, task: Task) -> torch.nn.Module:
    torch.manual_seed(0)
    with torch.device("cpu"):
        model = task.build_model()
    return model.to(device)


def losses_and_gradients(
    task: Task, store: Store, device: torch.device
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    model = model_on(device, task)
    losses = task.losses(model, task.collate(store, np.arange(12)))
    losses.sum().backward()
    return losses.detach().cpu(), [p.grad.cpu() for p in model.parameters()]


def assert_equal_on_both(task: Task, store: Store) -> None:
    on_cpu = losses_and_gradients(task, store, torch.device("cpu"))
    on_gpu = losses_and_gradients(task, store, CUDA)
    torch.testing.assert_close(on_gpu[0], on_cpu[0], rtol=1e-4, atol=1e-4)
    for a, b in zip(on_gpu[1], on_cpu[1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@kernels
@directions
def test_losses_and_gradients_equal_the_cpu(store: Store, kernel: str, bidirectional: bool) -> None:
    config = config_of(kernel, bidirectional=bidirectional)
    assert_equal_on_both(make_task(config, store.meta), store)


@kernels
@directions
@pytest.mark.usefixtures("default_cuda")
def test_losses_equal_the_cpu_with_the_gpu_as_default_device(
    store: Store, kernel: str, bidirectional: bool
) -> None:
    config = config_of(kernel, bidirectional=bidirectional)
    assert_equal_on_both(make_task(config, store.meta), store)


@kernels
@pytest.mark.parametrize("cudnn", [True, False])
def test_bfloat16_trains_with_and_without_cudnn(
    store: Store, kernel: str, cudnn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "enabled", cudnn)
    task = make_task(config_of(kernel, amp="bfloat16"), store.meta)
    losses, gradients = losses_and_gradients(task, store, CUDA)
    exact, _ = losses_and_gradients(make_task(config_of(kernel), store.meta), store, CUDA)
    torch.testing.assert_close(losses, exact, rtol=0.05, atol=0.05)
    assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("on_cpu", [False, True])
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_ctc_equals_the_cpu_in_double_for_every_label_length(scale: float, on_cpu: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = scale * torch.randn(4, 600, 20, generator=generator)
    targets = torch.randint(1, 20, (4, 257), generator=generator)
    lengths, target_lengths = torch.full((4,), 600), torch.tensor([0, 255, 256, 257])
    exact = torch.nn.functional.ctc_loss(
        scores.double().log_softmax(-1).transpose(0, 1), targets, lengths, target_lengths,
        reduction="none",
    )  # fmt: skip
    moved = scores.to(CUDA).requires_grad_()
    losses = ctc_losses(
        moved.log_softmax(-1), lengths, targets.to(CUDA), target_lengths, on_cpu=on_cpu
    )
    losses.sum().backward()
    torch.testing.assert_close(losses.detach().cpu().double(), exact, rtol=1e-4, atol=1e-4)
    assert moved.grad.isfinite().all()


@kernels
@directions
def test_new_parameters_every_round_bring_no_warning_and_no_memory(
    store: Store, kernel: str, bidirectional: bool
) -> None:
    task = make_task(config_of(kernel, bidirectional=bidirectional), store.meta)
    model, source = model_on(CUDA, task), model_on(torch.device("cpu"), task)
    peaks = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            model.load_state_dict(source.state_dict())
            torch.cuda.reset_peak_memory_stats()
            train_steps(task, model, store, 3)
            peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[4] <= 1.05 * peaks[1]


def train_steps(task: Task, model: torch.nn.Module, store: Store, n: int) -> None:
    optimizer = build_optimizer(OptimizerConfig(), model.parameters())
    for _ in range(n):
        optimizer.zero_grad()
        task.losses(model, task.collate(store, np.arange(12))).mean().backward()
        optimizer.step()


def test_the_optimizer_state_survives_the_way_through_arrays(store: Store) -> None:
    task = make_task(config_of("packed"), store.meta)
    model = model_on(CUDA, task)
    optimizer = build_optimizer(OptimizerConfig(), model.parameters())
    task.losses(model, task.collate(store, np.arange(4))).sum().backward()
    optimizer.step()
    before = optimizer_arrays(model, optimizer)
    load_optimizer_arrays(model, optimizer, before)
    optimizer.step()
    after = optimizer_arrays(model, optimizer)
    assert {n: a.shape for n, a in before.items()} == {n: a.shape for n, a in after.items()}
    assert all(a == 2 for n, a in after.items() if n.endswith("/step"))


@kernels
@directions
def test_a_deterministic_run_repeats_its_bytes(
    store: Store, kernel: str, bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    run = dataclasses.replace(TrainConfig().run, deterministic=True)
    config = config_of(kernel, bidirectional=bidirectional)
    task = make_task(dataclasses.replace(config, run=run), store.meta)
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (losses_and_gradients(task, store, CUDA) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(first[0], second[0])
    assert all(map(torch.equal, first[1], second[1]))
