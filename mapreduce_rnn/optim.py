"""The local optimizer of a map task: rule, learning rate, clipping, and its state as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import nn

from mapreduce_rnn.config import OptimizerConfig
from mapreduce_rnn.errors import CheckpointError
from mapreduce_rnn.reduce.params import tensor_array

Arrays = dict[str, np.ndarray]

LOWEST_SHARE = 0.01
"""Warm-up starts and cosine ends at this share of the peak: at 0 a step would be wasted, and
rounds after the horizon, which keep its last learning rate, would learn nothing."""


def build_optimizer(
    options: OptimizerConfig, parameters: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """The optimizer that ``options`` name, at its peak learning rate."""
    rate, decay = options.learning_rate, options.weight_decay
    match options.optimizer:
        case "sgd":
            return torch.optim.SGD(parameters, rate, momentum=options.momentum, weight_decay=decay)
        case "rmsprop":
            return torch.optim.RMSprop(
                parameters, rate, momentum=options.momentum, weight_decay=decay
            )
        case "adadelta":
            return torch.optim.Adadelta(parameters, rate, weight_decay=decay)
        case "adamw":
            return torch.optim.AdamW(parameters, rate, weight_decay=decay)
        case _:
            return torch.optim.Adam(parameters, rate, weight_decay=decay)


def learning_rate(options: OptimizerConfig, epochs_done: float, drops: int = 0) -> float:
    """The learning rate of a step: a pure function, so that slots and resumed runs agree.

    Args:
        options: Peak, schedule, warm-up, and the horizon, which the plan has resolved.
        epochs_done: Epochs before the step, with the part of the current one. From the horizon
            on, the rate stays as it is there.
        drops: So many plateaus have been met so far.
    """
    if options.horizon is None:
        raise ValueError("expected a resolved horizon, got None: pass the plan's config")
    done = min(epochs_done, options.horizon)
    warm = _warmup(options.warmup, done)
    if options.schedule == "plateau":
        return options.learning_rate * warm * float(options.step_factor**drops)
    return options.learning_rate * warm * _schedule(options, options.horizon, done)


def _warmup(warmup: float, done: float) -> float:
    """Share of the peak, rising in a straight line to 1 over the warm-up."""
    return 1.0 if done >= warmup else LOWEST_SHARE + (1 - LOWEST_SHARE) * done / warmup


def _schedule(options: OptimizerConfig, horizon: float, done: float) -> float:
    """Share of the peak by the schedule alone; a cosine begins where the warm-up ends."""
    if options.schedule == "step":
        return float(options.step_factor ** math.floor(done / options.step_epochs))
    if options.schedule == "cosine" and done > options.warmup:
        part = (done - options.warmup) / (horizon - options.warmup)
        return LOWEST_SHARE + (1 - LOWEST_SHARE) * (1 + math.cos(math.pi * part)) / 2
    return 1.0


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use ``rate`` from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> bool:
    """Scale all gradients together so that their common 2-norm is at most ``max_norm``.

    Args:
        parameters: Those without a gradient are passed over.
        max_norm: 0 never scales.

    Returns:
        Whether the norm is finite. If not, the gradients are left as they are and the caller
        skips the step.
    """
    with_gradient = [p for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in with_gradient if p.grad is not None])
    if not math.isfinite(norm.item()):
        return False
    if max_norm > 0:
        nn.utils.clip_grads_with_norm_(with_gradient, max_norm, norm)
    return True


def optimizer_arrays(model: nn.Module, optimizer: torch.optim.Optimizer) -> Arrays:
    """The optimizer's state as copies, named ``<parameter>/<state key>``.

    Empty before the first step. Everything a step reads is in it or in the config: loading it
    and going on gives the same bytes as never having saved.
    """
    return {
        f"{name}/{key}": tensor_array(value)
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if value is not None
    }


def load_optimizer_arrays(
    model: nn.Module, optimizer: torch.optim.Optimizer, arrays: Mapping[str, np.ndarray]
) -> None:
    """Replace the optimizer's state by ``arrays``, copied; nothing in them resets it.

    Raises:
        CheckpointError: An array belongs to no parameter of the model, or does not fit it.
    """
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for name, array in arrays.items():
        owner, _, key = name.rpartition("/")
        if owner not in parameters:
            raise CheckpointError(f"optimizer state {name}: the model has no parameter {owner!r}")
        optimizer.state[parameters[owner]][key] = _state_tensor(name, array, parameters[owner])


def _state_tensor(name: str, array: np.ndarray, parameter: nn.Parameter) -> torch.Tensor:
    tensor = torch.from_numpy(np.array(array))
    if name.endswith("/step"):  # Adam counts on the CPU, also for parameters on a GPU
        return tensor
    if tensor.shape != parameter.shape:
        raise CheckpointError(
            f"optimizer state {name}: expected shape {tuple(parameter.shape)}, "
            f"got {tuple(tensor.shape)}"
        )
    return tensor.to(parameter.device, parameter.dtype)
