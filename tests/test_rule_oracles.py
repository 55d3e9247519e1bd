"""Map, reduce and plain training agree: what the rules must be worth on real gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from contributions import contributions, rule
from mapreduce_rnn import optim
from mapreduce_rnn.config import OptimizerConfig
from mapreduce_rnn.reduce import Arrays, average
from mapreduce_rnn.reduce.params import load_arrays, module_arrays, parameter_arrays

Examples = tuple[Tensor, Tensor]

ROUNDS = 4


def network(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)).to(dtype)


def examples(number: int, n: int, dtype: torch.dtype = torch.float64) -> Examples:
    generator = torch.Generator().manual_seed(number)
    return (
        torch.randn(n, 4, generator=generator, dtype=dtype),
        torch.randn(n, 1, generator=generator, dtype=dtype),
    )


def trained(
    model: nn.Module, options: OptimizerConfig, state: Arrays, batch: Examples
) -> tuple[Arrays, Arrays]:
    """One step on the mean loss of a batch; the model's arrays and the optimizer's."""
    optimizer = optim.build_optimizer(options, model.parameters())
    optim.load_optimizer_arrays(model, optimizer, state)
    optimizer.zero_grad()
    (model(batch[0]) - batch[1]).square().mean().backward()
    optimizer.step()
    return module_arrays(model), optim.optimizer_arrays(model, optimizer)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("shares", [[4, 4, 4], [1, 7, 2, 5]])
def test_a_round_of_one_batch_each_is_one_big_batch(momentum: float, shares: list[int]) -> None:
    """SGD, and its momentum averaged like the model: linear in the gradient."""
    options = OptimizerConfig(optimizer="sgd", learning_rate=0.1, momentum=momentum)
    mapped, plain = network(), network()
    model, state, plain_state = module_arrays(mapped), {}, {}
    for number in range(ROUNDS):
        batch = examples(number, sum(shares))
        _, plain_state = trained(plain, options, plain_state, batch)
        results = []
        for part in zip(*(t.split(shares) for t in batch), strict=True):
            load_arrays(mapped, model)
            results.append(trained(mapped, options, state, part))
        models, states = zip(*results, strict=True)
        model, _ = average(model, contributions(*models, weights=shares))
        state, _ = average(states[0], contributions(*states, weights=shares))
        for name, array in module_arrays(plain).items():
            np.testing.assert_allclose(model[name], array, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "options"), [("mean", ()), ("momentum", ("eta=0", "zeta=1")), ("momentum", ())]
)
def test_one_slot_is_plain_training_byte_for_byte(name: str, options: tuple[str, ...]) -> None:
    adam = OptimizerConfig(optimizer="adam", learning_rate=0.01)
    mapped, plain = network(torch.float32), network(torch.float32)
    chosen = rule(name, *options, slots=1)
    model, kept = module_arrays(mapped), chosen.init(parameter_arrays(mapped))
    state, plain_state = {}, {}
    for number in range(ROUNDS):
        batch = examples(number, 8, torch.float32)
        _, plain_state = trained(plain, adam, plain_state, batch)
        load_arrays(mapped, chosen.start(model, kept, 0))
        result, state = trained(mapped, adam, state, batch)
        reduction = chosen.apply(model, kept, contributions(result, weights=[8]))
        model, kept = reduction.model, reduction.state
        for parameter, array in module_arrays(plain).items():
            assert model[parameter].tobytes() == array.tobytes()
