"""Call other libraries as their users call them. All libraries are optional.

The environment of `make bench` contains them, see requirements.txt in this folder.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import shutil
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

Rotate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def versions(names: Sequence[str]) -> dict[str, str | None]:
    """Return the version of each distribution, or None if it is not installed."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def rotary_embedding_torch(head_dim: int, seq: int, device: torch.device) -> Rotate:
    """Return the RoPE of rotary-embedding-torch, for ``(batch, heads, seq, head_dim)``.

    Pairs consist of neighbouring channels. The library caches the angles.
    """
    module = importlib.import_module("rotary_embedding_torch")
    rope = module.RotaryEmbedding(head_dim, cache_max_seq_len=max(seq, 1)).to(device)
    return lambda q, k: (rope.rotate_queries_or_keys(q), rope.rotate_queries_or_keys(k))


def transformers(head_dim: int, seq: int, device: torch.device) -> Rotate:
    """Return the RoPE of the Llama of transformers, for ``(batch, heads, seq, head_dim)``.

    Pairs consist of the channels i and i + d/2. Cosines and sines are computed once, as in a model,
    which shares them between its layers.
    """
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(hidden_size=head_dim, num_attention_heads=1, head_dim=head_dim)
    rope = llama.LlamaRotaryEmbedding(config).to(device)
    places = torch.arange(seq, device=device)[None]
    cos, sin = rope(torch.empty(0, device=device), places)
    return lambda q, k: llama.apply_rotary_pos_emb(q, k, cos, sin)


def torchtune(head_dim: int, seq: int, device: torch.device) -> Rotate:
    """Return the RoPE of torchtune, for ``(batch, seq, heads, head_dim)``.

    Pairs consist of neighbouring channels. The library reads the angles from a table.
    """
    rope = _torchtune_file().RotaryPositionalEmbeddings(head_dim, max_seq_len=seq).to(device)
    return lambda q, k: (rope(q), rope(k))


def _torchtune_file() -> ModuleType:
    """Return one file of torchtune as a module.

    The whole package imports libraries that RoPE does not need.
    """
    package = importlib.util.find_spec("torchtune")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("torchtune must be installed, got no package. Install torchtune.")
    path = Path(package.submodule_search_locations[0]) / "modules" / "position_embeddings.py"
    spec = importlib.util.spec_from_file_location("torchtune_position_embeddings", path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"torchtune must have a module at {path}, got none")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def llama(
    cache: str, vocab: int, dim: int, depth: int, heads: int, room: int, device: torch.device
) -> tuple[Any, Any]:
    """Return the Llama of transformers with random weights, and a cache of the class ``cache``."""
    transformers = importlib.import_module("transformers")
    config = transformers.LlamaConfig(
        vocab_size=vocab,
        hidden_size=dim,
        intermediate_size=8 * dim // 3,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        max_position_embeddings=room,
    )
    model = transformers.LlamaForCausalLM(config).to(device).eval()
    lengths = {"max_cache_len": room} if cache == "StaticCache" else {}
    return model, getattr(transformers, cache)(config=config, **lengths)


def compiled(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled by ``torch.compile`` into one graph.

    Raises:
        ModuleNotFoundError: If there is no C++ compiler.
    """
    if shutil.which("c++") is None:
        raise ModuleNotFoundError(
            "torch.compile must find a C++ compiler named c++, got none. Install a C++ compiler."
        )
    # each number of threads, with gradients and without, is one; beyond 8 it would give up
    config: Any = importlib.import_module("torch._dynamo.config")
    config.recompile_limit = 64
    made: Callable[..., Any] = torch.compile(call, fullgraph=True, dynamic=False)
    return made


def flex_attention(bias: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return compiled FlexAttention with one bias per offset, ``(heads, 2n - 1)``."""
    attend = importlib.import_module("torch.nn.attention.flex_attention").flex_attention
    last = bias.shape[-1] // 2

    def add(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + bias[head, key - query + last]

    return compiled(lambda q, k, v: attend(q, k, v, score_mod=add))


def performer_features(matrix: Tensor) -> Callable[[Tensor, bool], Tensor]:
    """Return the softmax features of performer-pytorch with a given random matrix.

    The library adds 1e-4 to each feature, so that no denominator is 0. Here nothing is added, so
    that all contestants compute the same.

    Args:
        matrix: Random matrix, ``(m, head_dim)``.
    """
    kernel = importlib.import_module("performer_pytorch.performer_pytorch").softmax_kernel
    return lambda x, is_query: kernel(x, projection_matrix=matrix, is_query=is_query, eps=0.0)


def performer_attention(causal: bool) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the attention of performer-pytorch on features; causal in a form that needs no GPU."""
    module = importlib.import_module("performer_pytorch.performer_pytorch")
    form = module.causal_linear_attention_noncuda if causal else module.linear_attention
    attend: Callable[[Tensor, Tensor, Tensor], Tensor] = form
    return attend


def performer_layer(dim: int, heads: int, matrix: Tensor) -> torch.nn.Module:
    """Return the causal layer of performer-pytorch with a given random matrix.

    Its features are those of :func:`performer_features`.
    """
    module = importlib.import_module("performer_pytorch.performer_pytorch")
    features, m = performer_features(matrix), len(matrix)
    with redirect_stdout(io.StringIO()):  # it says that it found no GPU code
        layer: torch.nn.Module = module.SelfAttention(
            dim, causal=True, heads=heads, dim_head=dim // heads, nb_features=m
        )
    attention: Any = layer.fast_attention
    attention.forward = lambda q, k, v: attention.causal_linear_fn(
        features(q, True), features(k, False), v, eps=0.0
    )
    return layer


def fast_transformers_linear(device: torch.device) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the linear attention of fast-transformers with elu(x) + 1, not causal.

    The arguments have shape ``(batch, seq, heads, d)``.
    """
    attention = importlib.import_module("fast_transformers.attention.linear_attention")
    masking = importlib.import_module("fast_transformers.masking")
    layer = attention.LinearAttention(0).to(device)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n = q.shape[1]
        everything = masking.FullMask(n, device=device)
        lengths = masking.LengthMask(torch.full((len(q),), n, device=device))
        out: Tensor = layer(q, k, v, everything, lengths, lengths)
        return out

    return call


def fast_transformers_causal() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the causal product of fast-transformers in C++, divided by the sum of the weights.

    The arguments have shape ``(batch, heads, seq, …)``.
    """
    product = importlib.import_module("fast_transformers.causal_product").causal_dot_product

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        total = torch.einsum("bhnm,bhnm->bhn", q, k.cumsum(2)) + 1e-6
        out: Tensor = product(q, k, v)
        return out / total[..., None]

    return call


def fla(form: str, device: torch.device) -> Callable[..., Tensor]:
    """Return a chunked form of flash-linear-attention without scaling of the queries.

    The arguments have shape ``(batch, seq, heads, …)``. The kernels are written in Triton and need
    a GPU. They are not in requirements.txt. To use them, install fla-core with a PyTorch for CUDA.

    Args:
        form: Name of the form, ``"retention"``, ``"simple_gla"``, ``"gla"`` or ``"delta_rule"``.
        device: Device of the tensors.

    Raises:
        ModuleNotFoundError: If the device is not a GPU or fla-core is not installed.
    """
    if device.type != "cuda":
        raise ModuleNotFoundError(f"device must be a CUDA device for fla-core, got {device}")
    call = getattr(importlib.import_module(f"fla.ops.{form}"), f"chunk_{form}")
    return lambda *inputs: call(*inputs, scale=1.0)[0]
