"""The numbers of a small trained model as text, for a record."""

from __future__ import annotations

import base64

import torch
from torch import Tensor, nn

from stringlib.spec import checked


@checked
def packed(model: nn.Module) -> str:
    """Return parameters and buffers of a model in half precision, in base64.

    A tensor that has several names, such as an embedding that is also the readout, is there once.
    """
    numbers = torch.cat(
        [x.detach().float().flatten() for x in _each(model.state_dict(keep_vars=True))]
    )
    return base64.b64encode(numbers.half().numpy().tobytes()).decode()


@checked
def unpack(model: nn.Module, text: str) -> None:
    """Give a model the numbers that :func:`packed` wrote of one that was made in the same way.

    Raises:
        ValueError: If the text is none of that function, or of more or fewer numbers.
    """
    state = model.state_dict(keep_vars=True)
    each = _each(state)
    try:
        numbers = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float16)
    except ValueError:
        raise ValueError(f"text must be what packed returns, got {text[:20]!r}") from None
    sizes = [x.numel() for x in each]
    if sum(sizes) != len(numbers):
        raise ValueError(f"text must hold the {sum(sizes)} numbers of model, got {len(numbers)}")
    parts = numbers.split(sizes)
    read = {id(x): part.view(x.shape) for x, part in zip(each, parts, strict=True)}
    model.load_state_dict({name: read[id(x)] for name, x in state.items()})


def _each(state: dict[str, Tensor]) -> list[Tensor]:
    """Return the tensors of a state, each once."""
    return [*{id(x): x for x in state.values()}.values()]
