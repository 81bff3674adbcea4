"""A module that carries an encoder into other libraries' models, and imports none of them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from stringlib.encoders.string import RotaryEncoder
from stringlib.inputs import (
    LAYOUTS,
    require_floats,
    require_kind,
    require_name,
    require_numbers,
    require_positive,
)
from stringlib.precision import widest


class RotaryTables(nn.Module):
    """What a language model of the library transformers has as its ``rotary_emb``.

    The model turns queries and keys by these tables, and does the rest as before: caches,
    generation, masks. Frequencies stay exact when the model is converted to bfloat16, and those
    that are learned get gradients. Tables hold no basis: put it into the projections of queries
    and keys, ``encoder.fold(weight, layout=layout)``.

    Move the module to the model's device. Its tables are as wide as the encoder's ``head_dim``: for
    a model that turns a part of its channels, make an encoder of these alone.

    Args:
        encoder: With ``heads=1``; or one for each of the model's layer types, by name.
        layout: How the model's own tables are laid out: ``"half"``, as Llama has them, or
            ``"interleaved"`` (Cohere). Some models turn neighbours, but read half tables (GLM).
        scale: Multiplies cosines and sines, and so logits by its square: the attention factor of
            YaRN and LongRoPE.

    Raises:
        TypeError: If an argument has the wrong kind.
        ValueError: If ``layout`` is unknown or ``scale`` not positive.

    Example:
        >>> from stringlib import RoPE
        >>> tables = RotaryTables(RoPE(128, base=500_000))  # model.model.rotary_emb = tables
        >>> cos, sin = tables(torch.randn(2, 10, 4096), torch.arange(10)[None])
        >>> cos.shape
        torch.Size([1, 10, 128])
    """

    def __init__(
        self,
        encoder: RotaryEncoder | Mapping[str, RotaryEncoder],
        layout: str = "half",
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        by_type = encoder if isinstance(encoder, Mapping) else {"": encoder}
        for each in by_type.values():
            require_kind("encoder", each, RotaryEncoder)
        require_name("layout", layout, LAYOUTS)
        require_positive("scale", scale)
        self.encoder = nn.ModuleDict(encoder) if isinstance(encoder, Mapping) else encoder
        self.layout, self.scale = layout, float(scale)

    def forward(
        self, x: Tensor, position_ids: Tensor, layer_type: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return cosines and sines as the model hands them to its layers.

        Args:
            x: Tokens; only their dtype and device are read.
            position_ids: ``(batch, seq)``; for an encoder of c coordinates ``(c, batch, seq)``, as
                models of images and texts hand them over, or ``(batch, seq)`` where all
                coordinates are the same.
            layer_type: Whose encoder is asked for, where layer types have their own.

        Returns:
            ``(cos, sin)``, each ``(batch, seq, head_dim)``, of the dtype of ``x``.

        Raises:
            TypeError: If ``x`` is not floating point, or positions are not numbers.
            ValueError: If a shape or the layer type does not fit, or the encoder's heads differ.
        """
        require_floats("x", x)
        require_numbers("position_ids", position_ids)
        encoder = self._encoder_of(layer_type)
        axes = encoder.coord_dim
        if position_ids.ndim != 2 and (position_ids.ndim != 3 or len(position_ids) != axes):
            raise ValueError(
                f"position_ids must have shape (batch, seq) or ({axes}, batch, seq), "
                f"got {tuple(position_ids.shape)}"
            )
        positions = position_ids.expand(axes, -1, -1).movedim(0, -1).to(x.device)
        tables = encoder.tables(positions, self.layout, widest(x.device))
        cos, sin = ((table * self.scale).to(x.dtype) for table in tables)
        return cos, sin

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"layout={self.layout!r}, scale={self.scale:g}"

    def _encoder_of(self, layer_type: str | None) -> RotaryEncoder:
        if isinstance(self.encoder, RotaryEncoder):
            return self.encoder
        require_name("layer_type", layer_type, self.encoder.keys())
        encoder = self.encoder[str(layer_type)]
        assert isinstance(encoder, RotaryEncoder)
        return encoder
