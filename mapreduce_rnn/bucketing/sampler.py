"""Batches of similar length for ``torch.utils.data.DataLoader``, with nothing else of this package.

    sampler = BucketBatchSampler(lengths, n_buckets=8, batch_size=64, seed=1)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=2)

A batch sampler is any object with ``__iter__`` and ``__len__``: torch is not imported here. On
purpose the class has none of the attributes ``batch_size``, ``drop_last`` and ``sampler``:
accelerate takes a ``batch_size`` as the size of every batch and quietly drops smaller ones, and
Lightning takes the first two for leave to build the sampler anew with arguments of its own.

All ranks compute the same steps from the stream of (seed, epoch) and take their own part of them,
so they never have to talk to each other, and a position is two numbers: epoch and step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mapreduce_rnn.bucketing.batches import epoch_batches
from mapreduce_rnn.bucketing.choice import Choice, choose_n_buckets
from mapreduce_rnn.bucketing.cost import FRAMES, CostModel
from mapreduce_rnn.bucketing.deal import Batch, Step, deal
from mapreduce_rnn.bucketing.limits import Number, check_limits
from mapreduce_rnn.bucketing.optimal import optimal_buckets
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.seeds import sampler_generator

State = dict[str, int | float | str | None]


class _Position(NamedTuple):
    epoch: int
    step: int


class _Running(NamedTuple):
    """The iteration that began last."""

    start: _Position
    batches: int  # that this process trains on in it


class BucketBatchSampler:
    """Random batches inside optimal length buckets, epoch after epoch, for one rank or all.

    Every epoch visits each sequence once, over all ranks together, in batches that differ from
    those of the epochs before; each iteration is the next epoch, no call is needed. Ranks get
    equal numbers of batches; a batch is split where that needs it.

    Args:
        lengths: (n,) positive numbers, n >= 1: length of the data set's item 0, 1, .. n - 1.
        n_buckets: Number of buckets, at least 1; or ``"auto"``: the smallest whose epoch is
            expected to cost at most 2 % more than with the best number up to 32.
        batch_size: Most sequences in a batch, at least 1.
        max_frames: Largest padded size of a batch: its sequences times the longest of them. A
            longer sequence goes alone, and a warning is logged. At least one of both limits is
            needed; with this one, epochs differ in their number of batches.
        seed: Same seed, same batches; at least 0 and the same on every rank.
        rank: 0 .. world_size - 1: the batches of this rank. None: the batches of all ranks in
            turn, for a wrapper that deals them out itself, as accelerate does.
        world_size: Number of ranks.
        cost: What a padded sequence costs: :class:`Frames`; :class:`BatchTime`, with the same
            limits; :class:`CostTable`. Buckets are cut, and their number chosen, for the least.

    Attributes:
        buckets: The partition, with its boundaries and its share of padding.
        choice: With ``"auto"`` the number, its reason and the costs compared; else None.

    Raises:
        UsageError: An argument out of its range.
    """

    def __init__(
        self,
        lengths: ArrayLike,
        n_buckets: int | Literal["auto"],
        *,
        batch_size: int | None = None,
        max_frames: Number | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int = 1,
        cost: CostModel = FRAMES,
    ) -> None:
        check_limits(batch_size, max_frames)
        _check('at least 1 bucket, or "auto"', n_buckets, _is_number_of_buckets(n_buckets))
        _check("a seed of at least 0", seed, seed >= 0)
        _check("a world size of at least 1", world_size, world_size >= 1)
        _check(f"a rank from 0 to {world_size - 1}", rank, rank is None or 0 <= rank < world_size)
        self.choice: Choice | None = None
        if isinstance(n_buckets, str):
            self.choice = choose_n_buckets(
                lengths, cost=cost, batch_size=batch_size, max_frames=max_frames
            )
            n_buckets = self.choice.n_buckets
        self.buckets = optimal_buckets(lengths, n_buckets, cost=cost)
        self._lengths = np.array(lengths)
        self._batch_size = None if batch_size is None else int(batch_size)
        self._max_frames = None if max_frames is None else np.asarray(max_frames).item()
        self._seed, self._rank, self._world_size = int(seed), rank, int(world_size)
        self._next = _Position(0, 0)
        self._running: _Running | None = None
        self._restored = False
        self._plan: tuple[int, list[Step]] | None = None

    @property
    def epoch(self) -> int:
        """Epoch of the next iteration, from 0."""
        return self._next.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one, as loops around a DistributedSampler do.

        Not needed: without a call the next epoch is the one after the last. A position restored
        inside this epoch is kept.

        Raises:
            UsageError: Another epoch than the restored one: batches would be skipped or repeated.
        """
        _check("an epoch of at least 0", epoch, epoch >= 0)
        if self._restored and epoch != self.epoch:
            raise UsageError(
                f"expected epoch {self.epoch}, where the restored state goes on, got {epoch}: "
                "start your loop at sampler.epoch"
            )
        if epoch != self.epoch:
            self._next = _Position(int(epoch), 0)
        self._running = None

    def __len__(self) -> int:
        """Batches of the next iteration; fewer after a restore inside an epoch."""
        return len(self._batches(self._next))

    def __iter__(self) -> Iterator[list[int]]:
        """Batches of the next epoch, or what is left of the restored one.

        The epoch counts as begun with its first batch, not before.
        """
        batches = self._batches(self._next)
        own = len(batches) if self._rank is not None else -(-len(batches) // self._world_size)
        self._running = _Running(self._next, own)
        self._next, self._restored = _Position(self.epoch + 1, 0), False
        for batch in batches:
            yield batch.tolist()

    def state_dict(self, batches_consumed: int) -> State:
        """Where to go on: a few numbers and digests, the same on every rank, safe in JSON.

        Args:
            batches_consumed: Batches of the running iteration that this process has trained on.
                The sampler can't know it: a DataLoader takes batches ahead. After the last batch
                of an epoch it is their number, and the state is the beginning of the next.

        Raises:
            UsageError: More batches than the iteration has, or than have begun.
        """
        start, most = self._running or _Running(self._next, 0)
        _check(f"0 to {most} batches consumed", batches_consumed, 0 <= batches_consumed <= most)
        at = _Position(start.epoch, start.step + int(batches_consumed))
        if self._running and batches_consumed == most:
            at = _Position(start.epoch + 1, 0)
        return {**at._asdict(), **self._identity()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on at the exact next batch of a state; any rank's state does for all ranks.

        Raises:
            UsageError: A state of other lengths, buckets, limit, seed or number of ranks, or one
                that is no state at all.
        """
        for name, own in self._identity().items():
            if state.get(name) != own:
                raise UsageError(
                    f"expected a sampler state with {name} {own}, got {state.get(name)}: "
                    "build the sampler as it was when the state was saved"
                )
        epoch, step = state.get("epoch"), state.get("step")
        if not (isinstance(epoch, int) and epoch >= 0 and isinstance(step, int)):
            raise UsageError(f"expected epoch and step of a sampler state, got {epoch} and {step}")
        _check(f"a step of epoch {epoch}", step, 0 <= step < len(self._steps(epoch)))
        self._next, self._running, self._restored = _Position(epoch, step), None, True

    def _identity(self) -> State:
        """What must be equal for two samplers to make the same steps."""
        return {
            "lengths": _digest(self._lengths),
            "boundaries": _digest(np.array(self.buckets.boundaries)),
            "batch_size": self._batch_size,
            "max_frames": self._max_frames,
            "seed": self._seed,
            "world_size": self._world_size,
        }

    def _batches(self, start: _Position) -> list[Batch]:
        """This rank's batches from a position to the end of its epoch."""
        own = slice(None) if self._rank is None else slice(self._rank, self._rank + 1)
        return [batch for step in self._steps(start.epoch)[start.step :] for batch in step[own]]

    def _steps(self, epoch: int) -> list[Step]:
        """Steps of an epoch for all ranks; those of one epoch are kept for len() and iter()."""
        if self._plan is None or self._plan[0] != epoch:
            rng = sampler_generator(self._seed, epoch)
            batches = epoch_batches(
                self._lengths,
                self.buckets.boundaries,
                self._batch_size,
                rng,
                max_frames=self._max_frames,
            )
            steps = deal(batches, self._lengths, self._world_size, self._fits, rng)
            self._plan = epoch, steps
        return self._plan[1]

    def _fits(self, sizes: NDArray[np.int64], longest: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether batches of these sizes and longest lengths keep the limits; see :func:`deal`."""
        fits = np.ones(len(sizes), bool) if self._batch_size is None else sizes <= self._batch_size
        if self._max_frames is not None:
            fits &= sizes * longest.astype(np.float64) <= self._max_frames
        return fits


def _is_number_of_buckets(value: object) -> bool:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return bool(value >= 1)
    return isinstance(value, str) and value == "auto"


def _check(expected: str, got: object, holds: bool) -> None:
    if not holds:
        raise UsageError(f"expected {expected}, got {got}")


def _digest(numbers: NDArray[Any]) -> str:
    """Short fingerprint of numbers, whatever the width of their type."""
    kind = {"i": np.int64, "u": np.uint64, "f": np.float64}.get(numbers.dtype.kind)
    content = numbers.astype(kind).tobytes() if kind else repr(numbers.tolist()).encode()
    return hashlib.sha256(content).hexdigest()[:16]
