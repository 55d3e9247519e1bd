"""CTC as a task: which sequences can be trained, batches, losses, scores."""

from __future__ import annotations

import dataclasses
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.config import ModelConfig, OptimizerConfig, TrainConfig
from mapreduce_rnn.data.store import Sequence, Store, write_store
from mapreduce_rnn.decode import best_path
from mapreduce_rnn.tasks import Batch, CtcTask, Task, make_task
from mapreduce_rnn.tasks.ctc import ctc_losses, make_batch
from stores import tiny_store

CONFIG = TrainConfig(model=ModelConfig(units=8, kernel="padded"))
kernels = pytest.mark.parametrize("kernel", ["padded", "packed"])
directions = pytest.mark.parametrize("bidirectional", [True, False])
paddings = pytest.mark.parametrize("extra", [0, 5])  # frames behind the longest sequence


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tiny_store(tmp_path_factory.mktemp("ctc") / "tiny.store"))


def store_of(path: Path, pairs: list[tuple[int, list[int]]]) -> Store:
    """A store of sequences given as (frames, labels)."""
    rng = np.random.default_rng(0)
    parts = (
        Sequence(f"s{i}", rng.normal(size=(n, 2)).astype(np.float32), labels, "train")
        for i, (n, labels) in enumerate(pairs)
    )
    write_store(path, parts, alphabet=("a", "b", "c"), feature_names=("x", "y"), source="test")
    return Store.open(path)


def task_and_model(store: Store, config: TrainConfig = CONFIG) -> tuple[Task, torch.nn.Module]:
    task = make_task(config, store.meta)
    torch.manual_seed(0)
    return task, task.build_model()


def loss_of(log_probs: torch.Tensor, labels: list[int]) -> torch.Tensor:
    batch = make_batch([np.zeros((len(log_probs), 1), np.float32)], [np.array(labels, np.int32)])
    return ctc_losses(log_probs[None], batch.lengths, batch.targets, batch.target_lengths)[0]


def test_sequences_with_fewer_frames_than_their_labels_need_are_not_usable(tmp_path: Path) -> None:
    good, short = [(9, [1, 2, 3])] * 70, [(2, [1, 2, 3])] * 30
    store = store_of(tmp_path / "mixed", good + short)
    usable = make_task(CONFIG, store.meta).usable(store, store.split("train"))
    assert usable.tolist() == [True] * 70 + [False] * 30
    only_short = store_of(tmp_path / "short", short)
    assert not make_task(CONFIG, only_short.meta).usable(only_short, np.arange(30)).any()


def test_usable_counts_a_frame_more_between_equal_neighbours(tmp_path: Path) -> None:
    store = store_of(tmp_path / "s", [(2, [1, 1]), (3, [1, 1]), (2, [1, 2]), (1, []), (4, [3] * 3)])
    usable = make_task(CONFIG, store.meta).usable(store, np.array([4, 3, 2, 1, 0]))
    assert usable.tolist() == [False, True, True, True, False]


@given(st.lists(st.integers(1, 2), max_size=4), st.integers(1, 6))
def test_the_loss_is_finite_exactly_where_a_sequence_is_usable(
    tmp_path_factory: pytest.TempPathFactory, labels: list[int], n_frames: int
) -> None:
    loss = loss_of(torch.zeros(n_frames, 3).log_softmax(-1), labels)
    store = store_of(tmp_path_factory.mktemp("any") / "store", [(n_frames, labels)])
    assert [bool(loss.isfinite())] == CtcTask(CONFIG, store.meta).usable(store, np.array([0]))


@given(st.lists(st.integers(1, 2), max_size=3), st.integers(1, 5), st.integers(0, 99))
def test_the_loss_is_minus_the_log_of_all_paths_that_read_the_labels(
    labels: list[int], n_frames: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(n_frames, 3, generator=generator).log_softmax(-1)
    paths = torch.tensor(list(product(range(3), repeat=n_frames)))  # (3^T, T)
    read = best_path(torch.nn.functional.one_hot(paths, 3), torch.full((len(paths),), n_frames))
    log_path = log_probs[torch.arange(n_frames), paths].double().sum(dim=1)
    matching = log_path[torch.tensor([labels == r for r in read])]
    expected = -float(matching.logsumexp(0))  # infinite if no path reads the labels
    assert float(loss_of(log_probs, labels)) == pytest.approx(expected, rel=1e-4)


def test_an_empty_transcript_costs_all_blanks_and_has_a_finite_gradient() -> None:
    scores = torch.zeros(5, 4, requires_grad=True)
    loss = loss_of(scores.log_softmax(-1), [])
    loss.backward()
    assert float(loss.detach()) == pytest.approx(5 * math.log(4), abs=1e-4)
    assert scores.grad.isfinite().all()


@paddings
def test_a_batch_holds_the_sequences_in_order_with_zeros_behind(store: Store, extra: int) -> None:
    indices = np.array([7, 2, 11])
    length = store.lengths[indices].max() + extra
    batch = make_task(CONFIG, store.meta).collate(store, indices, length if extra else None)
    assert batch.frames.dtype == torch.float32
    assert batch.targets.dtype == batch.lengths.dtype == torch.int64
    assert batch.lengths.tolist() == store.lengths[indices].tolist()
    assert batch.frames.shape == (3, length, 3)
    for row, target, i in zip(batch.frames, batch.targets, indices, strict=True):
        frames, labels = store.frames(i), store.labels(i)
        np.testing.assert_array_equal(row[: len(frames)], frames)
        assert target[: len(labels)].tolist() == labels.tolist()
        assert not row[len(frames) :].any()
        assert not target[len(labels) :].any()


def test_a_batch_shorter_than_a_sequence_is_refused(store: Store) -> None:
    longest = int(store.lengths[:3].max())
    with pytest.raises(ValueError, match=f"at least {longest}, got {longest - 1}"):
        make_task(CONFIG, store.meta).collate(store, np.arange(3), longest - 1)


@kernels
@directions
@paddings
@pytest.mark.parametrize("labels", [[[1], [2, 1, 3], [3, 3]], [[], [], []]])
def test_loss_score_and_labels_are_the_same_alone_as_in_a_batch(
    tmp_path: Path, kernel: str, bidirectional: bool, extra: int, labels: list[list[int]]
) -> None:
    store = store_of(tmp_path / "s", list(zip((2, 7, 4), labels, strict=True)))
    options = ModelConfig(units=8, layers=2, bidirectional=bidirectional, kernel=kernel)
    task, model = task_and_model(store, dataclasses.replace(CONFIG, model=options))
    batch = task.collate(store, np.arange(3), 7 + extra)
    single = [task.collate(store, np.array([i])) for i in range(3)]
    together, alone = task.score(model, batch), [task.score(model, one) for one in single]
    np.testing.assert_allclose(together.loss, [s.loss[0] for s in alone], rtol=1e-5)
    assert together.edits.tolist() == [int(s.edits[0]) for s in alone]
    assert together.reference.tolist() == [len(label) for label in labels]
    assert task.decode(model, batch) == [task.decode(model, one)[0] for one in single]


@paddings
def test_the_gradient_of_a_batch_is_the_sum_over_its_sequences(store: Store, extra: int) -> None:
    indices = np.arange(6)
    task, together = task_and_model(store)
    _, alone = task_and_model(store)
    length = int(store.lengths[indices].max()) + extra
    task.losses(together, task.collate(store, indices, length)).sum().backward()
    for i in indices:
        task.losses(alone, task.collate(store, np.array([i]))).sum().backward()
    for a, b in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)


def test_another_default_device_misplaces_nothing(store: Store) -> None:
    task, model = task_and_model(store)
    indices = np.arange(5)
    expected = task.losses(model, task.collate(store, indices))
    with torch.device("meta"):  # stands for a GPU: whatever lands there cannot be computed with
        losses = task.losses(model, task.collate(store, indices))
        scores = task.score(model, task.collate(store, indices))
    assert torch.equal(losses, expected)
    np.testing.assert_allclose(scores.loss, expected.detach().numpy(), rtol=1e-6)


def test_scores_agree_with_losses_and_decoded_labels(store: Store) -> None:
    task, model = task_and_model(store)
    model.eval()
    batch = task.collate(store, np.arange(8))
    scores = task.score(model, batch)
    np.testing.assert_allclose(scores.loss, task.losses(model, batch).detach().numpy(), rtol=1e-5)
    assert (scores.loss.dtype, scores.edits.dtype) == (np.float64, np.int64)
    right = Batch(batch.frames, batch.lengths, *targets_of(task.decode(model, batch)))
    assert task.score(model, right).edits.sum() == 0


def targets_of(labels: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    frames = [np.zeros((1, 1), np.float32)] * len(labels)
    batch = make_batch(frames, [np.array(part, np.int32) for part in labels])
    return batch.targets, batch.target_lengths


def test_the_model_carries_the_mean_and_deviation_of_the_store(store: Store) -> None:
    _, model = task_and_model(store)
    np.testing.assert_allclose(model.feature_mean, store.meta.feature_mean, rtol=1e-6)
    np.testing.assert_allclose(model.feature_std, store.meta.feature_std, rtol=1e-6)


@kernels
@directions
def test_only_a_bidirectional_model_looks_ahead(
    store: Store, kernel: str, bidirectional: bool
) -> None:
    options = ModelConfig(units=8, layers=2, bidirectional=bidirectional, kernel=kernel)
    _, model = task_and_model(store, dataclasses.replace(CONFIG, model=options))
    frames, lengths = torch.zeros(1, 9, 3), torch.tensor([9])
    other_end = frames.clone()
    other_end[:, 5:] = 1.0
    before, after = model(frames, lengths)[:, :5], model(other_end, lengths)[:, :5]
    assert torch.allclose(before, after) is not bidirectional


@kernels
def test_bfloat16_trains_on_a_cpu_and_says_what_stays_in_float32(store: Store, kernel: str) -> None:
    config = dataclasses.replace(
        CONFIG,
        model=ModelConfig(units=8, layers=2, kernel=kernel),
        optimizer=OptimizerConfig(amp="bfloat16"),
    )
    task, model = task_and_model(store, config)
    losses = task.losses(model, task.collate(store, np.arange(4)))
    losses.sum().backward()
    assert losses.dtype == torch.float32
    assert all(p.grad.isfinite().all() for p in model.parameters())
    assert any("the LSTM stays in float32" in note for note in task.notes(torch.device("cpu")))


def test_the_log_says_which_ctc_runs() -> None:
    meta = None  # not read by the notes
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    plain = CtcTask(TrainConfig(), meta)  # type: ignore[arg-type]
    run = dataclasses.replace(TrainConfig().run, deterministic=True)
    repeatable = CtcTask(TrainConfig(run=run), meta)  # type: ignore[arg-type]
    assert plain.notes(cpu) == repeatable.notes(cpu) == repeatable.notes(cuda)
    assert "not repeatable" in plain.notes(cuda)[0]


def test_some_steps_of_training_lower_the_loss(store: Store) -> None:
    task, model = task_and_model(store)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    batch = task.collate(store, store.split("train")[:16])
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = task.losses(model, batch).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
