"""Sampling of tokens from a language model, one by one, with a state after each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stringlib.inputs import per_head

LEAST_TEMPERATURE = 1e-30
"""Smallest temperature other than 0. Logits up to 10⁸, divided by this, are finite in float32."""


def sampled(
    model: Any,
    tokens: Tensor,
    count: int,
    key_mask: Tensor | None,
    temperature: float,
    generator: torch.Generator | None,
) -> Tensor:
    """Return the prompt followed by ``count`` tokens, as ``LanguageModel.generate`` does.

    Args:
        model: A :class:`~stringlib.models.language.LanguageModel`.
        tokens: The prompts, ``(batch, seq)``.
        count: Number of tokens to sample.
        key_mask: False for padding, ``(batch, seq)``, or None.
        temperature: Number by which the logits are divided, or 0 for the largest logit.
        generator: Random number generator, or None for the global generator.

    Raises:
        ValueError: If ``tokens`` are empty or end in padding, an argument has an invalid value or
            shape, or the layers have no state.
    """
    if 0 < temperature < LEAST_TEMPERATURE:
        raise ValueError(
            f"temperature must be 0 or at least {LEAST_TEMPERATURE:g}, got {temperature:g}. "
            "Logits divided by a smaller number may not be finite. Pass 0 for the most "
            "likely token."
        )
    if not tokens.shape[-1]:
        raise ValueError(
            "tokens must have at least one token in each row, got shape "
            f"{tuple(tokens.shape)}. Begin with a start token if there is no prompt."
        )
    for block in model.blocks:
        # a wrapper may hide the attribute; a layer without a state then raises its own error
        if count and not getattr(block, "has_state", True):
            raise ValueError(
                "generate() needs layers with a state, got a layer of linear attention with "
                "rotated features, a Toeplitz weight, a relative bias or another weight that "
                "has no recurrent form. Use softmax or weight='retnet', or call the model on "
                "all tokens for each next token."
            )
    positions = None
    if key_mask is not None:
        per_head(key_mask, (len(tokens), 1, tokens.shape[-1]), tokens.device)
        key_mask = key_mask.view(-1, tokens.shape[-1]).expand(tokens.shape)
        if not key_mask[:, -1].all():
            raise ValueError(
                "key_mask must be True for the last token of each row, got "
                f"{key_mask[:, -1].tolist()}. Pad on the left."
            )
        # padding gets position 0 as well, which has no effect because it is masked
        positions = (key_mask.cumsum(-1) - 1).clamp(min=0)[..., None]
    drawn = [tokens]
    room = tokens.shape[-1] + count
    state = model._state_after(tokens[:, :0], room) if count else None
    for _ in range(count):
        scores, state = model(
            drawn[-1],
            positions,
            key_mask=key_mask,
            state=state,
            return_state=True,
            logits_to_keep=1,
        )
        if positions is not None:
            positions, key_mask = positions[:, -1:] + 1, None
        last = scores[:, -1]
        if temperature == 0:
            token = last.argmax(-1, keepdim=True)
        else:
            shares = (last.float() / temperature).softmax(-1)
            token = torch.multinomial(shares, 1, generator=generator)
        drawn.append(token)
    return torch.cat(drawn, -1)
