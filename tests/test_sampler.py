"""BucketBatchSampler: every sequence once an epoch, whatever ranks, stops and wrappers do."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from mapreduce_rnn import BucketBatchSampler
from mapreduce_rnn.bucketing import (
    BatchTime,
    CostTable,
    Frames,
    choose_n_buckets,
    optimal_buckets,
)
from mapreduce_rnn.errors import UsageError

Batches = list[list[int]]
LENGTHS = [3, 9, 4, 4, 12, 30, 7, 7, 8, 21, 5]


def sampler(lengths: Any = LENGTHS, n_buckets: Any = 3, **options: Any) -> BucketBatchSampler:
    options = options if "max_frames" in options else {"batch_size": 3, **options}
    return BucketBatchSampler(lengths, n_buckets, **options)


def ranks(world_size: int, **options: Any) -> list[BucketBatchSampler]:
    return [sampler(rank=r, world_size=world_size, **options) for r in range(world_size)]


def visited(batches: Batches) -> list[int]:
    return sorted(index for batch in batches for index in batch)


def members(batches: Batches) -> list[list[int]]:
    return sorted(sorted(batch) for batch in batches)


sizes, frames = st.integers(1, 9), st.integers(1, 200)
limits = st.one_of(
    st.fixed_dictionaries({"batch_size": sizes}),
    st.fixed_dictionaries({"max_frames": frames}),
    st.fixed_dictionaries({"batch_size": sizes, "max_frames": frames}),
)
data = st.fixed_dictionaries(
    {
        "lengths": st.lists(st.integers(1, 40), min_size=1, max_size=60),
        "n_buckets": st.integers(1, 5),
        "seed": st.integers(0, 99),
    }
)


@given(data, limits, st.integers(1, 4))
def test_the_ranks_together_visit_every_sequence_once(
    options: dict[str, Any], limit: dict[str, int], world_size: int
) -> None:
    samplers, lengths = ranks(world_size, **options, **limit), options["lengths"]
    for _ in range(2):
        promised = [len(one) for one in samplers]
        epoch = [list(one) for one in samplers]
        assert [len(batches) for batches in epoch] == promised
        together = [batch for batches in epoch for batch in batches]
        assert visited(together) == list(range(len(lengths)))
        for batch in together:
            assert 1 <= len(batch) <= limit.get("batch_size", 60)
            padded = len(batch) * max(lengths[i] for i in batch)
            assert len(batch) == 1 or padded <= limit.get("max_frames", 2400)


@pytest.mark.parametrize("world_size", [2, 3])
def test_batches_of_many_sizes_reach_the_ranks_in_whole(world_size: int) -> None:
    lengths = [1, 1, 1, 2, 3, 3, 4, 4, 4, 5, 5]  # buckets of 3, 1, 2, 3, 2; batches of up to 3
    samplers = ranks(world_size, lengths=lengths, n_buckets=5)
    promised = [len(one) for one in samplers]
    epoch = [list(one) for one in samplers]
    assert [len(batches) for batches in epoch] == promised == [6 // world_size] * world_size
    assert visited([batch for batches in epoch for batch in batches]) == list(range(11))


@pytest.mark.parametrize("even", [True, False])
@given(data, st.integers(2, 9), st.integers(1, 4))
def test_accelerate_deals_the_batches_without_loss_or_repetition(
    even: bool, options: dict[str, Any], batch_size: int, world_size: int
) -> None:
    shard = pytest.importorskip("accelerate.data_loader").BatchSamplerShard
    assume(len(options["lengths"]) >= world_size)
    options = {**options, "batch_size": batch_size}
    dealt = []
    for rank, own in enumerate(ranks(world_size, **options)):
        one = shard(sampler(world_size=world_size, **options), world_size, rank, even_batches=even)
        assert len(one) == len(own)
        assert list(one) == list(own)
        dealt += list(own)
    assert visited(dealt) == list(range(len(options["lengths"])))


@given(data, st.integers(2, 9), st.integers(1, 4))
def test_ranks_have_equal_numbers_of_batches_wherever_there_are_enough_sequences(
    options: dict[str, Any], batch_size: int, world_size: int
) -> None:
    counts = {len(one) for one in ranks(world_size, **options, batch_size=batch_size)}
    if len(options["lengths"]) >= world_size:
        assert len(counts) == 1
    else:
        assert counts == {0, 1}


@given(data, limits, st.integers(1, 4))
def test_ranks_never_differ_by_more_than_a_batch(
    options: dict[str, Any], limit: dict[str, int], world_size: int
) -> None:
    counts = [len(one) for one in ranks(world_size, **options, **limit)]
    assert max(counts) - min(counts) <= 1
    assert counts == sorted(counts, reverse=True)


@given(data, limits, st.integers(1, 4), st.integers(0, 2), st.data())
def test_a_state_goes_on_at_the_exact_next_batch(
    options: dict[str, Any], limit: dict[str, int], world_size: int, epoch: int, draw: st.DataObject
) -> None:
    rank = draw.draw(st.integers(0, world_size - 1))
    options = {**options, **limit, "rank": rank, "world_size": world_size}
    whole, resumed = sampler(**options), sampler(**options)
    for _ in range(epoch):
        list(whole)
    first = list(whole)
    done = draw.draw(st.integers(0, len(first)))
    second = list(whole)  # what was taken ahead doesn't count

    whole = sampler(**options)
    whole.set_epoch(epoch)
    list(whole)
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict(done))))
    rest = first[done:] if done < len(first) else second
    assert (len(resumed), list(resumed)) == (len(rest), rest)
    if done < len(first):
        assert list(resumed) == second


def test_small_buckets_are_seen_in_whole() -> None:
    batches = list(sampler([10] * 7 + [20] * 17, n_buckets=2, batch_size=8))
    assert sorted(len(batch) for batch in batches) == [1, 7, 8, 8]
    assert visited(batches) == list(range(24))


def test_fewer_sequences_than_a_batch_give_one_partial_batch() -> None:
    assert members(list(sampler([5, 9], n_buckets=1, batch_size=64))) == [[0, 1]]


def test_a_sequence_above_the_frame_limit_goes_alone(caplog: pytest.LogCaptureFixture) -> None:
    one = sampler([67, 1], n_buckets=1, max_frames=53)  # said once a process: figures of its own
    assert members(list(one)) == members(list(one)) == [[0], [1]]
    assert caplog.text.count("longer than the limit of 53 frames") == 1


def test_single_sequences_are_joined_where_ranks_need_equal_numbers() -> None:
    one, other = ranks(2, lengths=[1, 5, 20, 22, 40], n_buckets=5, batch_size=8)
    batches = [*one, *other]
    assert len(one) == len(other) == 2
    assert members(batches) == [[0], [1], [2, 3], [4]]


def test_epochs_differ_without_a_call_and_agree_between_runs() -> None:
    one, other = (sampler([50] * 64, batch_size=8, seed=4) for _ in range(2))
    epochs = [list(one) for _ in range(3)]
    assert all(members(a) != members(b) for a, b in combinations(epochs, 2))
    assert [list(other) for _ in range(3)] == epochs
    third = sampler([50] * 64, batch_size=8, seed=4)
    third.set_epoch(2)
    assert list(third) == epochs[2]


def test_no_two_seeds_epochs_or_ranks_draw_the_same_batches() -> None:
    drawn = []
    for seed in range(3):
        for one in ranks(2, lengths=[50] * 64, batch_size=8, seed=seed):
            drawn += [members(list(one)) for _ in range(3)]
    assert all(a != b for a, b in combinations(drawn, 2))


def test_set_epoch_goes_together_with_the_count_of_epochs() -> None:
    one = sampler()
    epochs = [list(one) for _ in range(4)]
    one.set_epoch(1)
    assert (one.epoch, list(one), list(one)) == (1, epochs[1], epochs[2])
    for epoch in (0, 3, 3):
        one.set_epoch(epoch)
        assert list(one) == epochs[epoch]


def test_an_iterator_that_is_never_asked_begins_no_epoch() -> None:
    one = sampler()
    iter(one)
    assert (one.epoch, list(one)) == (0, list(sampler()))


def test_ranks_that_step_together_have_batches_of_similar_length() -> None:
    lengths = np.repeat([10, 20, 30, 40], 32)
    pairs = zip(*ranks(2, lengths=lengths, n_buckets=4, batch_size=8), strict=True)
    longest = [(lengths[one].max(), lengths[other].max()) for one, other in pairs]
    assert all(one == other for one, other in longest)
    assert longest != sorted(longest)


def test_no_rank_gives_the_batches_of_all_ranks_in_turn() -> None:
    together = list(sampler(world_size=3))
    assert together == [batch for step in zip(*ranks(3), strict=True) for batch in step]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_each_item_once_and_resumes_in_mid_epoch(workers: int) -> None:
    def loader(batches: BucketBatchSampler) -> DataLoader[Any]:
        items: Any = [100 + length for length in range(len(LENGTHS))]
        return DataLoader(items, batch_sampler=batches, num_workers=workers)  # type: ignore[arg-type]

    one = sampler(batch_size=2, seed=3)
    loaded = []
    for batch in loader(one):
        loaded.append(batch.tolist())
        if len(loaded) == 2:
            state = one.state_dict(2)  # with loader workers, the sampler is far ahead here
    assert visited(loaded) == [100 + i for i in range(len(LENGTHS))]
    other = sampler(batch_size=2, seed=3)
    other.load_state_dict(state)
    rest = loader(other)
    assert len(rest) == len(loaded) - 2
    assert [batch.tolist() for batch in rest] == loaded[2:]
    for thread in threading.enumerate():  # torch doesn't wait for those of its queues
        if thread is not threading.main_thread():
            thread.join(10)


def test_a_state_is_small_and_the_same_for_every_rank() -> None:
    states = []
    for one in ranks(2, lengths=list(range(1, 2001)), n_buckets=32):
        next(iter(one))
        states.append(json.dumps(one.state_dict(1)))
    assert states[0] == states[1]
    assert len(states[0]) < 300


def test_the_state_after_a_whole_epoch_is_the_beginning_of_the_next() -> None:
    one = sampler()
    done = len(list(one))
    state = one.state_dict(done)
    assert (state["epoch"], state["step"]) == (1, 0)
    one.set_epoch(1)
    assert one.state_dict(0) == state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": [*LENGTHS[:-1], 6]}, "with lengths"),
        ({"lengths": LENGTHS[:-1]}, "with lengths"),
        ({"n_buckets": 2}, "with boundaries"),
        ({"batch_size": 4}, "with batch_size 4, got 3"),
        ({"max_frames": 90}, "with batch_size None, got 3"),
        ({"batch_size": 3, "max_frames": 90}, "with max_frames 90, got None"),
        ({"seed": 8}, "with seed 8, got 7"),
        ({"world_size": 3}, "with world_size 3, got 2"),
    ],
)
def test_a_state_of_another_sampler_is_refused(change: dict[str, Any], message: str) -> None:
    state = sampler(seed=7, world_size=2, rank=0).state_dict(0)
    with pytest.raises(UsageError, match=message):
        sampler(**{"seed": 7, "world_size": 2, "rank": 0, **change}).load_state_dict(state)


@pytest.mark.parametrize(
    "change", [{"epoch": -1}, {"epoch": None}, {"step": -1}, {"step": 99}, {"step": "1"}]
)
def test_a_state_without_a_position_is_refused(change: dict[str, Any]) -> None:
    one = sampler()
    with pytest.raises(UsageError, match="expected"):
        one.load_state_dict({**one.state_dict(0), **change})
    assert one.epoch == 0


def test_more_batches_than_there_were_are_refused() -> None:
    one = sampler()
    with pytest.raises(UsageError, match="expected 0 to 0 batches consumed, got 1"):
        one.state_dict(1)
    done = len(list(one))
    with pytest.raises(UsageError, match=f"expected 0 to {done} batches consumed"):
        one.state_dict(done + 1)


def test_a_loop_that_would_leave_the_restored_epoch_is_refused() -> None:
    one, other = sampler(), sampler()
    one.set_epoch(5)
    first = list(one)
    other.load_state_dict(one.state_dict(2))
    with pytest.raises(UsageError, match=r"expected epoch 5, .* got 0"):
        other.set_epoch(0)
    other.set_epoch(other.epoch)
    assert list(other) == first[2:]
    other.set_epoch(0)


def test_auto_takes_the_chosen_number_of_buckets() -> None:
    lengths = list(range(1, 200))
    one = sampler(lengths, "auto", batch_size=2)
    assert one.choice == choose_n_buckets(lengths, cost=Frames(), batch_size=2, max_frames=None)
    same = sampler(lengths, one.choice.n_buckets, batch_size=2)
    assert (one.buckets, same.choice) == (same.buckets, None)
    same.load_state_dict(one.state_dict(0))
    assert list(one) == list(same)


@pytest.mark.parametrize("limit", [{"batch_size": 4}, {"max_frames": 100}])
def test_buckets_cost_the_least_by_the_model_given(limit: dict[str, Any]) -> None:
    cost = BatchTime(50, 2, 1, **{"batch_size": None, **limit})
    one = sampler(n_buckets=2, cost=cost, **limit)
    assert one.buckets == optimal_buckets(LENGTHS, 2, cost=cost)
    assert one.buckets != sampler(n_buckets=2, **limit).buckets
    chosen = sampler(n_buckets="auto", cost=cost, **limit)
    options = {"batch_size": None, "max_frames": None, **limit}
    assert chosen.choice == choose_n_buckets(LENGTHS, cost=cost, **options)
    assert visited(list(chosen)) == list(range(len(LENGTHS)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengths": []}, "flat list of lengths"),
        ({"lengths": [3, 0]}, "positive, finite lengths, got 0"),
        ({"n_buckets": 0}, 'at least 1 bucket, or "auto", got 0'),
        ({"n_buckets": 2.0}, 'at least 1 bucket, or "auto", got 2.0'),
        ({"n_buckets": True}, 'at least 1 bucket, or "auto", got True'),
        ({"n_buckets": "many"}, 'at least 1 bucket, or "auto", got many'),
        ({"n_buckets": None}, 'at least 1 bucket, or "auto", got None'),
        ({"cost": CostTable((1, 20), (1, 20))}, "cost table up to length 30, got one up to 20"),
        ({"batch_size": 0}, "batch size of at least 1, got 0"),
        ({"batch_size": None}, "give batch_size, max_frames or both"),
        ({"max_frames": 0}, "frame limit above 0, got 0"),
        ({"seed": -1}, "seed of at least 0, got -1"),
        ({"world_size": 0}, "world size of at least 1, got 0"),
        ({"rank": 2, "world_size": 2}, "rank from 0 to 1, got 2"),
    ],
)
def test_arguments_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sampler(**options)


def test_wrappers_find_no_attribute_that_makes_them_lose_sequences() -> None:
    one = sampler()
    assert not any(hasattr(one, name) for name in ("batch_size", "drop_last", "sampler"))


def test_the_sampler_comes_without_torch() -> None:
    code = (
        "import sys; from mapreduce_rnn import BucketBatchSampler\n"
        "assert len(list(BucketBatchSampler([1, 2], 1, batch_size=1))) == 2\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
