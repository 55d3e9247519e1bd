"""A module's parameters and buffers as named numpy arrays, and back.

numpy has no bfloat16: such tensors travel, and are reduced, as float32, which holds them exactly.
The global model then keeps more digits than the module, which rounds them when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mapreduce_rnn.errors import ReduceError
from mapreduce_rnn.reduce.base import Arrays, describe, differences, layout


def module_arrays(module: nn.Module) -> Arrays:
    """Copies of all parameters and persistent buffers, under their names in the state dict.

    A tensor with several names (tied weights) appears once, under the first.
    """
    return {name: tensor_array(tensor) for name, tensor in _tensors(module).items()}


def parameter_arrays(module: nn.Module) -> Arrays:
    """Those of :func:`module_arrays` that are parameters, not buffers."""
    return {
        name: tensor_array(tensor)
        for name, tensor in _tensors(module).items()
        if isinstance(tensor, nn.Parameter)
    }


def load_arrays(module: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Copy arrays, as from :func:`module_arrays`, into the module's own tensors, all or none.

    The tensors stay the same objects: optimizers go on pointing at them, tied weights stay tied,
    and the weights of an LSTM stay one block of memory, as cuDNN wants them. The arrays may be
    read-only and misaligned; they are only read.

    Raises:
        ReduceError: Names, shapes or dtypes differ; the message lists how.
    """
    tensors = _tensors(module)
    expected = {name: (tuple(t.shape), _dtype(t)) for name, t in tensors.items()}
    wrong = differences(expected, layout(arrays))
    if wrong:
        raise ReduceError(f"arrays do not fit the model: {describe(wrong)}")
    with torch.no_grad():
        for name, tensor in tensors.items():
            # torch warns about a read-only array and refuses a misaligned one: copied if so
            tensor.copy_(torch.from_numpy(np.require(arrays[name], requirements=["C", "A", "W"])))


def tensor_array(tensor: Tensor) -> NDArray[Any]:
    """A copy; float32 for bfloat16, which numpy does not have."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return np.array(tensor.numpy(), order="C")


def _dtype(tensor: Tensor) -> np.dtype[Any]:
    dtype = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype
    return np.dtype(str(dtype).removeprefix("torch."))


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """State dict with the tensors themselves, each once."""
    unique: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        unique.setdefault(id(tensor), (name, tensor))
    return dict(unique.values())
