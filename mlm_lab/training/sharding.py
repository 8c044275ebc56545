"""Parameters, gradients and moments in parts, one on each rank: torch's FSDP2 under Lightning's ModelParallelStrategy.

module -> each block sharded, then the rest as one: the embeddings stay with the heads that are tied to them
rank r: rows first_r .. of every parameter and moment -> its file of a checkpoint -> read back by any number of ranks, or by one alone

Not torch.distributed.checkpoint: its metadata is a pickle, which is a program and is never read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from mlm_lab.models.transformer import TransformerEncoder


class Sharded(ModelParallelStrategy):
    """All ranks share the data and the parameters out: no tensor parallelism."""

    def setup_environment(self) -> None:
        self._data_parallel_size, self._tensor_parallel_size = self.num_nodes * self.num_processes, 1
        super().setup_environment()


def shard(module: nn.Module, mesh: torch.distributed.DeviceMesh) -> None:
    """Each layer of every stack is gathered when it computes, and let go again; layers that a stack goes through several times, and all
    that is no layer, are gathered once a step."""
    stacks = [part for part in module.modules() if isinstance(part, TransformerEncoder) and len(part.layers) == part.num_layers]
    for layer in (layer for stack in stacks for layer in stack.layers):
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)


def is_sharded(module: nn.Module) -> bool:
    return isinstance(module, FSDPModule)


def whole_state(module: nn.Module) -> dict[str, torch.Tensor]:
    """The whole module on the CPU, for `load_state_dict` of one that is not sharded. Every rank calls it."""
    _let_go(module)
    return {name: (t.full_tensor() if isinstance(t, DTensor) else t).cpu() for name, t in module.state_dict().items()}


class Part(NamedTuple):
    """This rank's rows of a tensor."""

    rows: torch.Tensor
    shape: tuple[int, ...]
    """Of the whole."""
    first: int
    """Number of the first row."""


Parts = Mapping[str, Mapping[str, Any]]


def own_parts(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    """name -> Part as a mapping, of all that this rank has: PARAMETER, and PARAMETER@MOMENT."""
    return {name: _part(tensor)._asdict() for name, tensor in _named(module, optimizer)}


def parts_of_whole(
    module: nn.Module, optimizer: torch.optim.Optimizer, weights: Mapping[str, torch.Tensor], state: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """A checkpoint of a start that had the model in one piece, as one part. state: of its optimiser, which numbers the parameters in the
    order in which `optimizer` has them."""
    _let_go(module)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    found = dict(weights) | {name: buffer for name, buffer in module.named_buffers() if name not in weights}
    for number, moments in state["state"].items():
        found |= {f"{names[id(parameters[number])]}@{moment}": value for moment, value in moments.items()}
    return {name: Part(tensor, tuple(tensor.shape), 0)._asdict() for name, tensor in found.items()}


def load_parts(module: nn.Module, optimizer: torch.optim.Optimizer, files: Sequence[Parts]) -> None:
    """Fill a module and its optimiser, sharded or not, from what all ranks of an earlier start have written.

    Raises KeyError, ValueError where the parts are of another module.
    """
    _let_go(module)
    shapes = {name: tuple(part["shape"]) for name, part in files[0].items()}
    parameters = dict(module.named_parameters())
    for name, shape in shapes.items():
        parameter, _, moment = name.partition("@")
        if moment:
            own = parameters[parameter]
            like = torch.zeros_like(own) if shape == tuple(own.shape) else torch.zeros(shape, device=own.device)
            optimizer.state[own][moment] = like
    with torch.no_grad():
        for name, tensor in _named(module, optimizer):
            _fill(tensor, [file[name] for file in files])


def _named(module: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    _let_go(module)
    for name, parameter in module.named_parameters():
        yield name, parameter.detach()
        for moment, value in optimizer.state.get(parameter, {}).items():
            yield f"{name}@{moment}", value
    yield from module.named_buffers()


def _part(tensor: torch.Tensor) -> Part:
    if not isinstance(tensor, DTensor):
        return Part(tensor.detach().cpu(), tuple(tensor.shape), 0)
    rows = -(-len(tensor) // tensor.device_mesh.size())  # of each rank but the last ones
    return Part(tensor.to_local().detach().cpu().clone(), tuple(tensor.shape), min(rows * tensor.device_mesh.get_local_rank(), len(tensor)))


def _fill(tensor: torch.Tensor, parts: Sequence[Mapping[str, Any]]) -> None:
    """Copy the rows that are ours from those who had them."""
    if tuple(tensor.shape) != tuple(parts[0]["shape"]):
        raise ValueError(f"a parameter of shape {tuple(tensor.shape)}, the checkpoint's is {tuple(parts[0]['shape'])}")
    if tensor.ndim == 0:
        tensor.copy_(parts[0]["rows"])
        return
    place = _part(tensor)
    own = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    first, last = place.first, place.first + len(own)
    for part in parts:
        start, stop = max(first, part["first"]), min(last, part["first"] + len(part["rows"]))
        if start < stop:
            own[start - first : stop - first].copy_(part["rows"][start - part["first"] : stop - part["first"]])


def _let_go(module: nn.Module) -> None:
    """What a forward without a backward has gathered (a validation) is given back, so that parameters are this rank's parts."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()
