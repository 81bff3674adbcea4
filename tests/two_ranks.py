"""What each of two processes does in the tests of wrappers that share a model among processes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel

from stringlib import FavorFeatures, LanguageModel, RotaryEncoder
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.models.blocks import Block
from tests.model_cases import model_and_input

WORLD = 2


def run(rank: int, work: str, folder: Path, cases: list[tuple[str, str]]) -> None:
    """Run a function of this file for each case in one of two processes, and write what fails."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), WORLD)
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD, timeout=limit)
    found = {}
    for kind, name in cases:
        try:
            WORK[work](kind, name)
        except Exception as error:
            found[f"{kind} {name}"] = f"{type(error).__name__}: {error}"
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def exact(kind: str, name: str) -> tuple[nn.Module, Tensor]:
    """Return a model in float64, and four inputs."""
    model, x = model_and_input(kind, name)
    x = torch.cat([x, x[:1]])
    return model.double(), x.double() if x.is_floating_point() else x


def shard(model: nn.Module) -> None:
    """Shard what blocks share, each block, and then the model, as the documentation says."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in model.modules():
        shared = sum(module is other for _, other in model.named_modules(remove_duplicate=False))
        if shared > 1 and isinstance(module, RotaryEncoder | RelativeBias):
            if next(module.parameters(), None) is None:
                continue
            fully_shard(module, mesh=mesh)
            if isinstance(module, RotaryEncoder):
                register_fsdp_forward_method(module, "phases")
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def fsdp(kind: str, name: str) -> None:
    """Compare outputs and gradients of a sharded model with those of one process."""
    model, x = exact(kind, name)
    plain = copy.deepcopy(model)
    shard(model)
    compare(model, plain, x)
    if isinstance(plain, LanguageModel) and all(block.has_state for block in plain.blocks):
        prompt = x[:, :3]
        assert torch.equal(
            model.generate(prompt, 2, temperature=0), plain.generate(prompt, 2, temperature=0)
        )


def fsdp1(kind: str, name: str) -> None:
    """Do the same with the older wrapper, whose units must not share parameters with each other."""
    model, x = exact(kind, name)
    plain = copy.deepcopy(model)
    biases = {id(m) for m in model.modules() if isinstance(m, RelativeBias)}
    shared = len(biases) < sum(
        isinstance(m, RelativeBias) for _, m in model.named_modules(remove_duplicate=False)
    )
    units = None if shared else ModuleWrapPolicy({Block})
    wrapped = FullyShardedDataParallel(
        model, device_id=torch.device("cpu"), use_orig_params=True, auto_wrap_policy=units
    )
    compare(wrapped, plain, x)


def ddp(kind: str, name: str) -> None:
    """Compare outputs and gradients of a replicated model with those of one process."""
    model, x = exact(kind, name)
    compare(DistributedDataParallel(model, find_unused_parameters=True), copy.deepcopy(model), x)


def compare(model: nn.Module, plain: nn.Module, x: Tensor) -> None:
    """Compare a step of a model, each process on its share of the inputs, with that of a copy."""
    rank = dist.get_rank()
    mine, want = model(x.chunk(dist.get_world_size())[rank]), plain(x)
    assert torch.allclose(mine, want.chunk(dist.get_world_size())[rank], rtol=0, atol=1e-10)
    mine.square().mean().backward()
    want.square().mean().backward()
    wanted = dict(plain.named_parameters())
    whole = nullcontext()
    if isinstance(model, FullyShardedDataParallel):
        whole = FullyShardedDataParallel.summon_full_params(model, with_grads=True)
    with whole:
        for name, p in model.named_parameters():
            q = wanted.pop(name.replace("_fsdp_wrapped_module.", "").removeprefix("module."))
            if q.grad is not None:
                assert p.grad is not None, name
                given = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
                # another order of addition
                assert torch.allclose(given, q.grad, rtol=1e-8, atol=1e-10), name
    assert not wanted


def redrawn(kind: str, name: str) -> None:
    """Redraw features in training: with one seed all processes have the same ones."""
    model, x = exact(kind, name)
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        for module in model.modules():
            if isinstance(module, FavorFeatures):
                module.redraw(torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        wrapped(x.chunk(WORLD)[dist.get_rank()]).square().mean().backward()
        optimizer.step()
    for key, value in model.state_dict().items():
        both = [torch.empty_like(value) for _ in range(WORLD)]
        dist.all_gather(both, value.contiguous())
        assert torch.equal(*both), key


WORK: dict[str, Callable[[str, str], None]] = {
    work.__name__: work for work in (fsdp, fsdp1, ddp, redrawn)
}
