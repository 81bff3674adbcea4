"""Convert the weights of a small trained model to text, which a record can contain."""

from __future__ import annotations

import base64

import torch
from torch import Tensor, nn

from stringlib.spec import checked


@checked
def packed(model: nn.Module) -> str:
    """Return the parameters and buffers of a model as text: half precision in base64.

    A tensor that has several names, such as an embedding that is also the readout, is written once.
    """
    numbers = torch.cat(
        [x.detach().float().flatten() for x in _each(model.state_dict(keep_vars=True))]
    )
    return base64.b64encode(numbers.half().numpy().tobytes()).decode()


@checked
def unpack(model: nn.Module, text: str) -> None:
    """Load the numbers that :func:`packed` returned into a model of the same architecture.

    Args:
        model: The model. Its parameters and buffers are changed in place.
        text: Text that :func:`packed` returned for a model of the same architecture.

    Raises:
        ValueError: If ``text`` is not a result of :func:`packed`, or contains another number of
            numbers than the model has.
    """
    state = model.state_dict(keep_vars=True)
    each = _each(state)
    try:
        numbers = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float16)
    except ValueError:
        raise ValueError(f"text must be a result of packed(), got {text[:20]!r}") from None
    sizes = [x.numel() for x in each]
    if sum(sizes) != len(numbers):
        raise ValueError(
            f"text must contain {sum(sizes)} numbers for this model, got {len(numbers)}. Pass the "
            "result of packed() for a model of the same architecture."
        )
    parts = numbers.split(sizes)
    read = {id(x): part.view(x.shape) for x, part in zip(each, parts, strict=True)}
    model.load_state_dict({name: read[id(x)] for name, x in state.items()})


def _each(state: dict[str, Tensor]) -> list[Tensor]:
    """Return the different tensors of a ``state_dict``. A tensor with several names occurs once."""
    return [*{id(x): x for x in state.values()}.values()]
