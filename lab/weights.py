"""The numbers of a small trained model as text, for a record."""

from __future__ import annotations

import base64

import torch
from torch import nn

from stringlib.spec import checked


@checked
def packed(model: nn.Module) -> str:
    """Return parameters and buffers of a model in half precision, in base64."""
    numbers = torch.cat([x.detach().float().flatten() for x in model.state_dict().values()])
    return base64.b64encode(numbers.half().numpy().tobytes()).decode()


@checked
def unpack(model: nn.Module, text: str) -> None:
    """Give a model the numbers that :func:`packed` wrote of one that was made in the same way.

    Raises:
        ValueError: If the text is none of that function, or of more or fewer numbers.
    """
    state = model.state_dict()
    try:
        numbers = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float16)
    except ValueError:
        raise ValueError(f"text must be what packed returns, got {text[:20]!r}") from None
    sizes = [x.numel() for x in state.values()]
    if sum(sizes) != len(numbers):
        raise ValueError(f"text must hold the {sum(sizes)} numbers of model, got {len(numbers)}")
    parts = numbers.split(sizes)
    state = {name: part.view(x.shape) for (name, x), part in zip(state.items(), parts, strict=True)}
    model.load_state_dict(state)
