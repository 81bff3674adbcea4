"""A causal language model with any encoder and any attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from stringlib.encoders.absolute import LearnedAbsolute, Sinusoidal
from stringlib.encoders.bias import ALiBi, KerpleLog, KerplePower, T5Bias
from stringlib.models.blocks import Block, initialize

BIASES = {"alibi": ALiBi, "t5": T5Bias, "kerple-log": KerpleLog, "kerple-power": KerplePower}


class LanguageModel(nn.Module):
    """Embedding, blocks, norm, and a score for each token that may follow."""

    def __init__(
        self,
        vocab: int,
        dim: int,
        depth: int,
        heads: int,
        encoder: Any = None,
        attention: Any = "softmax",
        gate: str | None = None,
        *,
        hidden: int | None = None,
        mlp: str | None = "swiglu",
        tied: bool = True,
        length: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.absolute: nn.Module | None = None
        if encoder == "sinusoidal":
            self.absolute, encoder = Sinusoidal(dim), None
        elif encoder == "learned":
            assert length is not None
            self.absolute, encoder = LearnedAbsolute(length, dim), None
        elif encoder in BIASES:
            encoder = BIASES[encoder](heads)
        if options.get("weight") == "toeplitz":
            options["length"] = length
        self.blocks = nn.ModuleList(
            Block(
                dim,
                heads,
                mlp=mlp,
                hidden=hidden or 4 * dim,
                encoder=encoder,
                attention=attention,
                gate=gate,
                causal=True,
                **options,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.readout = nn.Linear(dim, vocab, bias=False)
        initialize(self)
        if tied:
            self.readout.weight = self.embed.weight

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return scores, ``(batch, seq, vocab)``, of the token after each."""
        x = self.embed(tokens)
        if positions is None:
            positions = torch.arange(tokens.shape[-1], device=tokens.device)[:, None]
        if self.absolute is not None:
            x = self.absolute(x, positions)
        for block in self.blocks:
            x = block(x, positions)
        return self.readout(self.norm(x))
