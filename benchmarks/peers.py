"""Other libraries' rotary embeddings, called as their users call them. All are optional."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

Rotate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

# The distributions that the environment of `make bench` has, see requirements.txt beside this.
PEERS = ("rotary-embedding-torch", "transformers", "torchtune")


def versions() -> dict[str, str | None]:
    """Return the version of each peer, None where it is not installed."""
    found: dict[str, str | None] = {}
    for name in PEERS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def rotary_embedding_torch(head_dim: int, seq: int, device: torch.device) -> Rotate:
    """Return its RoPE: neighbouring pairs, ``(batch, heads, seq, head_dim)``; angles are cached."""
    module = importlib.import_module("rotary_embedding_torch")
    rope = module.RotaryEmbedding(head_dim, cache_max_seq_len=max(seq, 1)).to(device)
    return lambda q, k: (rope.rotate_queries_or_keys(q), rope.rotate_queries_or_keys(k))


def transformers(head_dim: int, seq: int, device: torch.device) -> Rotate:
    """Return Llama's: channels (i, i + d/2), ``(batch, heads, seq, head_dim)``.

    Cosines and sines are made once, as a model does for all of its layers.
    """
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(hidden_size=head_dim, num_attention_heads=1, head_dim=head_dim)
    rope = llama.LlamaRotaryEmbedding(config).to(device)
    places = torch.arange(seq, device=device)[None]
    cos, sin = rope(torch.empty(0, device=device), places)
    return lambda q, k: llama.apply_rotary_pos_emb(q, k, cos, sin)


def torchtune(head_dim: int, seq: int, device: torch.device) -> Rotate:
    """Return its RoPE: neighbouring pairs, ``(batch, seq, heads, head_dim)``; from a table."""
    rope = _torchtune_file().RotaryPositionalEmbeddings(head_dim, max_seq_len=seq).to(device)
    return lambda q, k: (rope(q), rope(k))


def _torchtune_file() -> ModuleType:
    """Load one file: the package as a whole wants libraries that RoPE has no need of."""
    package = importlib.util.find_spec("torchtune")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'torchtune'")
    path = Path(package.submodule_search_locations[0]) / "modules" / "position_embeddings.py"
    spec = importlib.util.spec_from_file_location("torchtune_position_embeddings", path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module at {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
