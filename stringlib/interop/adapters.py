"""Modules that put an encoder into models of other libraries.

A language model of the library transformers has one rotary module, from which all layers get their
cosines and sines. :class:`RotaryTables` replaces this module. A vision transformer often has no
rotary module, but it has projections to queries and keys. :class:`Rotated` replaces these
projections. Nothing else in the model changes. This file does not import the other libraries.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stringlib.encoders.checks import require_tables
from stringlib.encoders.rotary import RotaryEncoder
from stringlib.folding import additions_to_weight, require_foldable
from stringlib.inputs import require_name, require_places, require_same_device
from stringlib.interop.rotary_modules import Coordinates, Tables, find, laid_out
from stringlib.precision import at_least_float32, require_exact, widen, widest
from stringlib.spec import Floats, Positions, Positive, Reals, checked, require


class RotaryTables(nn.Module):
    """Replacement for the rotary module of a transformer, with the cosines and sines of an encoder.

    In models of the library transformers the rotary module is called ``rotary_emb``. The model
    rotates queries and keys by the cosines and sines that the module returns. Caches, generation
    and masks work as before. Frequencies stay exact when the model is converted to bfloat16.
    Learned frequencies get gradients. All layers share one table, so gradient checkpointing needs
    ``use_reentrant=False``.

    Cosines and sines do not contain the basis of an encoder. Merge the basis into the projections
    of queries and keys, with ``encoder.fold(weight, layout=layout)``.

    :meth:`from_module` finds the arguments by calling the module that is to be replaced. Move the
    new module to the device of the model. The tables are for all ``head_dim`` channels of the
    encoder. A model that rotates only some channels of a head needs an encoder whose ``head_dim``
    is the number of these channels.

    Args:
        encoder: Rotary encoder with ``heads=1``, or a dictionary with one rotary encoder with
            ``heads=1`` for each layer type of the model.
        layout: Order of the columns of the tables, which has to be the order that the model uses:

            - ``"half"`` (default; Llama): one column per pair, then the same columns again.
            - ``"interleaved"`` (Cohere): two equal neighbouring columns per pair.
            - ``"axes"`` (vision encoder of Gemma 4): for each coordinate in turn, one column per
              pair of this coordinate, then the same columns again.
            - ``"pairs"`` (GPT-OSS): one column per pair.
            - ``"complex"`` (Llama 4, DeepSeek-V2): one complex number per pair, cos + i sin.

            The layout does not determine which channels the model rotates as a pair: Llama 4
            rotates neighbouring channels, GPT-OSS channels i and i + d/2, and GLM neighbouring
            channels with ``"half"`` tables.
        scale: Factor of all cosines and sines (the attention factor of YaRN and LongRoPE). Logits
            are multiplied by the square of this factor. A dictionary has a factor for each layer
            type; layer types that it lacks have the factor 1. Default: 1.
        coordinates: Dimension of ``position_ids`` that contains the coordinates of a position, if
            it has several: ``"first"`` (default), as in models of text and images, or ``"last"``,
            as in vision encoders.
        wide: If True, tables are float32 even if tokens have a narrower dtype (OLMo). If False
            (default), tables have the dtype of the tokens.
        longer: Change of frequencies and scale for texts longer than in training, a
            :class:`~stringlib.encoders.scaling.Beyond` or a
            :class:`~stringlib.encoders.scaling.DynamicNTK`. A dictionary has such a module for each
            layer type; layer types that it lacks have no change. Default: no change.
        positions: Function that returns positions, ``(..., seq, coord_dim)``, for a model that does
            not pass ``position_ids``. The function is called with what the model passes instead,
            which is the image (DINOv3 of transformers), or the numbers of rows and columns (models
            of timm, see :meth:`get_embed`). Default: None, which means that the model passes
            ``position_ids``.

    Raises:
        ValueError: If a layer type is unknown, a scale is not positive, an encoder has more than
            one head or an odd ``head_dim``, or the layout is ``"axes"`` and ``head_dim`` is not a
            multiple of twice the number of coordinates.

    Example:
        >>> from stringlib import RoPE
        >>> tables = RotaryTables(RoPE(128, base=500_000))  # model.model.rotary_emb = tables
        >>> cos, sin = tables(torch.randn(2, 10, 4096), torch.arange(10)[None])
        >>> cos.shape
        torch.Size([1, 10, 128])
    """

    @checked
    def __init__(
        self,
        encoder: RotaryEncoder | Mapping[str, RotaryEncoder],
        layout: Tables = "half",
        scale: float | Mapping[str, float] = 1.0,
        *,
        coordinates: Coordinates = "first",
        wide: bool = False,
        longer: nn.Module | Mapping[str, nn.Module] | None = None,
        positions: Callable | None = None,
    ) -> None:
        super().__init__()
        by_type = encoder if isinstance(encoder, Mapping) else {"": encoder}
        for each in by_type.values():
            require("encoder", each, RotaryEncoder)
            if each.heads != 1:
                raise ValueError(
                    f"encoder must have heads=1 for tables, got heads={each.heads}. The rotary "
                    "module of a model rotates all heads alike. Use an encoder with heads=1."
                )
            require_tables(each)
            if layout == "axes" and each.head_dim % (2 * each.coord_dim):
                raise ValueError(
                    f"encoder must have a head_dim that is a multiple of {2 * each.coord_dim} for "
                    f"layout 'axes', got head_dim={each.head_dim}. In this layout the channels of "
                    f"each of the {each.coord_dim} coordinates form two halves of equal size."
                )
        scales = _by_type("scale", scale, by_type, 1.0)
        for factor in scales.values():
            require("scale", factor, Positive)
        self.encoder = nn.ModuleDict(encoder) if isinstance(encoder, Mapping) else encoder
        self.layout, self.scales = layout, {name: float(each) for name, each in scales.items()}
        self.coordinates, self.wide, self.positions = coordinates, wide, positions
        changes = _by_type("longer", longer, by_type, None)
        self.longer = nn.ModuleDict(
            {_key(name): each for name, each in changes.items() if each is not None}
        )

    @classmethod
    @checked
    def from_module(cls, rotary_emb: nn.Module) -> RotaryTables:
        """Return a replacement for a model's rotary module that gives the same cosines and sines.

        The method calls the module at a few positions, with a short and with a long text. From its
        tables the method finds the frequencies, the number of coordinates, the layout, the
        attention factor, and a scaling that depends on the length of the text. The class of the
        module does not matter. All other attributes that a model may read, such as ``config``, are
        copied.

        Args:
            rotary_emb: Module to be replaced, which must not be on the meta device. It is called
                with tokens and ``position_ids``. If its attribute ``rope_type`` is a dictionary,
                the keys are the layer types, and the module is called with each of them.

        Raises:
            ValueError: If the module is on the meta device, does not return cosines and sines of
                positions, has learned frequencies, or has tables of different forms for different
                layer types. Also if, for long texts, the module raises an error or changes its
                frequencies in another way than LongRoPE or dynamic NTK. The message names the class
                of the module.

        Example:
            >>> class Rotary(nn.Module):  # as in a model with the attention factor 1.2
            ...     def forward(self, x, position_ids):
            ...         angles = position_ids[..., None] * torch.tensor([1.0, 0.01]).repeat(2)
            ...         return 1.2 * angles.cos(), 1.2 * angles.sin()
            >>> RotaryTables.from_module(Rotary())
            RotaryTables(
              layout='half', scale=1.2
              (encoder): STRING(head_dim=4, coord_dim=1, heads=1)
              (longer): ModuleDict()
            )
        """
        types = getattr(rotary_emb, "rope_type", None)
        names = [*types] if isinstance(types, Mapping) and types else [None]  # ESM has {}
        found = [find(rotary_emb, name) for name in names]
        if any(each.form != found[0].form for each in found):
            raise ValueError(
                "rotary_emb must return tables of the same form for all layer types, got "
                f"{type(rotary_emb).__name__} with {[tuple(each.form) for each in found]} (layout, "
                "dimension of the coordinates, always float32). Write a module that calls another "
                "RotaryTables for each layer type."
            )

        def by_type(things: Iterable[Any]) -> Any:
            return dict(zip(names, things, strict=True)) if names != [None] else next(iter(things))

        tables = cls(
            by_type(each.encoder for each in found),
            found[0].form.layout,
            by_type(each.scale for each in found),
            coordinates=found[0].form.coordinates,
            wide=found[0].form.wide,
            longer=by_type(each.longer for each in found),
        )
        for name, value in vars(rotary_emb).items():
            if not (hasattr(tables, name) or callable(value) or isinstance(value, Tensor)):
                setattr(tables, name, value)
        where = [*rotary_emb.buffers(), *rotary_emb.parameters()]
        return tables.to(where[0].device) if where else tables

    @checked
    def forward(
        self,
        x: Floats[Tensor, "...any"],
        position_ids: Reals[Tensor, "... batch seq"] | None = None,
        layer_type: str | None = None,
    ) -> tuple[Tensor, Tensor] | Tensor:
        """Return cosines and sines in the form in which the model passes them to its layers.

        Args:
            x: Tokens, or an image if the model passes an image in place of tokens. If ``positions``
                is a function, it is called with ``x``. Otherwise only the dtype and the device of
                ``x`` are used.
            position_ids: Positions. Not used if ``positions`` is a function. The shape is one of:

                - ``(batch, seq)``; all coordinates of a position are then equal.
                - ``(c, batch, seq)`` for an encoder with c coordinates.
                - ``(..., seq, c)`` with ``coordinates="last"``, instead of the other two.

            layer_type: Layer type whose encoder is used, if ``encoder`` is a dictionary.

        Returns:
            The tables ``(cos, sin)``, each ``(batch, seq, head_dim)``, in the dtype of ``x``. With
            ``wide=True`` their dtype is float32, or that of ``x`` if it is wider. With the layout
            ``"pairs"`` each table has ``head_dim / 2`` columns. With the layout ``"complex"`` the
            result is one tensor, cos + i sin, with ``head_dim / 2`` columns, complex64 or wider. If
            positions have no batch dimension, the tables have none.

        Raises:
            ValueError: If the positions have another shape, or the layer type is unknown.
        """
        encoder, name = self._of(layer_type)
        positions = self._places(x, position_ids, encoder.coord_dim).to(x.device)
        return self._tables(positions, x.dtype, encoder, name)

    @property
    def dim(self) -> int:
        """The ``head_dim`` of the encoder, under the name that timm uses."""
        return self._of(None)[0].head_dim

    def get_embed(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Return sines and cosines side by side, as models of timm expect them from ``rope``.

        Args:
            shape: Numbers of rows and columns of patches. The function ``positions`` is called with
                these two numbers.
            dtype: Dtype of the result. Default: float32.

        Returns:
            All sines, then all cosines, ``(seq, 2 * head_dim)``. With the layout ``"pairs"`` the
            shape is ``(seq, head_dim)``.

        Raises:
            ValueError: If ``positions`` was not given, or the layout is ``"complex"``.
        """
        encoder, name = self._of(None)
        if self.positions is None:
            raise ValueError(
                "positions must be a function of the numbers of rows and columns for get_embed(), "
                "got None. Pass a function to RotaryTables, for example positions=grid_positions."
            )
        if self.layout == "complex":
            raise ValueError(
                "layout must not be 'complex' for get_embed(), got 'complex'. get_embed() returns "
                "sines and cosines side by side. Pass the layout of the model to RotaryTables, for "
                "example layout='interleaved'."
            )
        positions = self.positions(*shape).to(encoder.frequencies().device)
        cos, sin = self._tables(positions, dtype, encoder, name)
        return torch.cat([sin, cos], -1)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        scales = ", ".join(f"{name or 'scale'}={scale:g}" for name, scale in self.scales.items())
        return f"layout={self.layout!r}, {scales}"

    def _of(self, layer_type: str | None) -> tuple[RotaryEncoder, str]:
        if isinstance(self.encoder, RotaryEncoder):
            return self.encoder, ""
        require_name("layer_type", layer_type, self.encoder.keys())
        encoder = self.encoder[str(layer_type)]
        assert isinstance(encoder, RotaryEncoder)
        return encoder, str(layer_type)

    def _tables(
        self, positions: Tensor, dtype: torch.dtype, encoder: RotaryEncoder, name: str
    ) -> Any:
        frequencies, scale = encoder._all_frequencies(), self.scales[name]
        require_same_device("x", positions, "encoder", frequencies)
        if positions.shape[-1:] != (encoder.coord_dim,):
            raise ValueError(
                f"positions must return a tensor of shape (..., seq, {encoder.coord_dim}), got "
                f"{tuple(positions.shape)}. The encoder has coord_dim={encoder.coord_dim}."
            )
        require_exact("position_ids" if self.positions is None else "positions", positions)
        positions = widen(positions)
        if _key(name) in self.longer:
            length = positions.max() + 1
            frequencies, scale = self.longer[_key(name)](frequencies, scale, length)
        angles = positions @ frequencies[0].mT
        cos, sin = (
            laid_out(wave(angles) * scale, self.layout, encoder.coord_dim)
            for wave in (torch.cos, torch.sin)
        )
        if self.wide or self.layout == "complex":
            dtype = at_least_float32(dtype)
        cos, sin = cos.to(dtype), sin.to(dtype)
        return torch.complex(cos, sin) if self.layout == "complex" else (cos, sin)

    def _places(self, x: Tensor, position_ids: Tensor | None, axes: int) -> Tensor:
        """Return the positions of tokens, ``(..., seq, axes)``, for ``axes`` coordinates."""
        if self.positions is not None:
            return self.positions(x)
        shape: tuple[int, ...] = () if position_ids is None else tuple(position_ids.shape)
        if position_ids is not None and self.coordinates == "last" and shape[-1] == axes:
            return position_ids
        first = self.coordinates == "first"
        if position_ids is not None and first and shape[:-2] in ((), (axes,)):
            return position_ids.expand(axes, -1, -1).movedim(0, -1)
        wanted = "(batch, seq) or ({}, batch, seq)" if first else "(..., seq, {})"
        raise ValueError(
            f"position_ids must have shape {wanted.format(axes)}, got {shape or None}. If the "
            "model does not pass position_ids, give RotaryTables a function as positions."
        )


def _key(layer_type: str) -> str:
    """Return the name in a ``ModuleDict`` that belongs to a layer type.

    A layer type may be the empty string, which is not a valid name of a module.
    """
    return f"for {layer_type}"


def _by_type(name: str, given: Any, types: Collection[str], otherwise: Any) -> dict[str, Any]:
    """Return a dictionary with one entry per layer type.

    Args:
        name: Name of the argument, for an error message.
        given: Dictionary of the entries by layer type, or a single entry for all types.
        types: All layer types.
        otherwise: Entry of the layer types that the dictionary ``given`` lacks.
    """
    if [*types] == [""] or not isinstance(given, Mapping):
        return dict.fromkeys(types, given)
    for key in given:
        require_name(f"{name}'s layer types", key, types)
    return {key: given.get(key, otherwise) for key in types}


class Rotated(nn.Module):
    r"""Projection to queries and keys followed by a rotary encoder, :math:`R(r)\,(W x + b)`.

    This module replaces a projection of a model. There are two cases:

    - One projection gives queries, keys and values, in this order. ``heads`` is then twice the
      number of attention heads, so that the values are not rotated.
    - Queries and keys have separate projections. One module replaces the projection to queries,
      another module replaces the projection to keys, and the two modules have the same encoder.

    Token n is rotated by the position in row n of ``positions``. A token at position 0, such as a
    class token, is not rotated. With ``CirculantSTRING(..., zero=True)`` all rotations are
    initially the identity, so a trained model gives the same outputs until it is trained further.

    The model should multiply the rotated queries by the rotated keys without a norm in between. A
    norm of queries and keys (``q_norm``, ``k_norm``) would act on rotated vectors. A norm that only
    divides by the length commutes with every rotation. A norm that has learned weights, or
    subtracts a mean, does not commute with rotations. Logits then depend on the positions
    themselves, not only on their differences, and :meth:`folded` changes the logits.

    Some models of timm (EVA-02, BEiT) compute with the weight of the projection instead of calling
    it, because their bias is stored elsewhere. Their call
    ``torch.nn.functional.linear(x, qkv.weight, bias)`` returns rotated vectors, too.

    Args:
        linear: Projection of the model. Its parameters are in the ``state_dict`` under ``linear.``,
            so load the weights of the model before replacing the projection.
        encoder: Rotary encoder. An encoder with h heads rotates the first h heads of the output,
            then the next h, and so on. Use an encoder with ``heads=1`` if several query heads share
            a key head (grouped-query attention).
        positions: Positions of all tokens, ``(seq, coord_dim)``, or ``(batch, seq, coord_dim)`` if
            images have different positions. Alternatively a function that computes positions from
            the tokens, such as :class:`PatchPositions` or :class:`KeptPatches`. Positions are not
            in the ``state_dict``, and stay exact when the model is converted to bfloat16.
        heads: Number of heads of the output that are rotated, counted from the first head. Default:
            all heads.

    Attributes:
        linear: The projection.
        encoder: The encoder.
        positions: The positions, in float64 if the device supports this dtype. None if a function
            computes the positions.
        heads: Number of rotated heads.

    Example:
        >>> from stringlib import CirculantSTRING
        >>> from stringlib.positions import grid_positions
        >>> encoder = CirculantSTRING(64, coord_dim=2, heads=12, zero=True)
        >>> places = grid_positions(14, 14, num_prefix=1)
        >>> qkv = nn.Linear(768, 3 * 768)  # block.attn.qkv
        >>> qkv = Rotated(qkv, encoder, places, heads=24)
        >>> qkv(torch.randn(8, 197, 768)).shape
        torch.Size([8, 197, 2304])
    """

    positions: Any

    @checked
    def __init__(
        self,
        linear: nn.Linear,
        encoder: RotaryEncoder,
        positions: Positions[Tensor, "... seq encoder.coord_dim"] | Callable,
        heads: int | None = None,
    ) -> None:
        super().__init__()
        most, rest = divmod(linear.out_features, encoder.head_dim)
        if rest:
            raise ValueError(
                f"linear must have a multiple of {encoder.head_dim} output channels, got "
                f"{linear.out_features}. The encoder has head_dim={encoder.head_dim}. Pass an "
                "encoder with the head_dim of the model."
            )
        heads = most if heads is None else heads
        if not 0 < heads <= most or heads % encoder.heads:
            raise ValueError(
                f"heads must be a positive multiple of {encoder.heads} and at most {most}, got "
                f"{heads}. The encoder has heads={encoder.heads}, and the rows of linear are those "
                f"of heads={most} (the default)."
            )
        self.linear, self.encoder, self.heads = linear, encoder, int(heads)
        if isinstance(positions, Tensor) and positions.is_meta:
            raise ValueError(
                "positions must have values, got a tensor on the meta device. Create them with "
                "device='cpu'."
            )
        # not a buffer: libraries that build models on the meta device fill buffers that are not in
        # the state_dict with arbitrary numbers
        self.positions = (
            widen(positions.detach()).clone() if isinstance(positions, Tensor) else None
        )
        self.places = None if isinstance(positions, Tensor) else positions

    @property
    def weight(self) -> Tensor:
        """Weight of the projection, for models that compute with it instead of calling the module.

        ``torch.nn.functional.linear`` with this weight returns rotated vectors. Any other product
        with this weight raises an error.
        """
        turning = self.linear.weight.as_subclass(_RotaryWeight)
        turning.module = self
        return turning

    @property
    def channels(self) -> int:
        """Number of channels of a token before the projection."""
        return self.linear.in_features

    @checked
    def forward(self, x: Floats[Tensor, "... n self.channels"]) -> Tensor:
        """Return the projected tokens, with queries and keys rotated.

        Args:
            x: Tokens, ``(..., seq, channels)``.

        Returns:
            The projections, ``(..., seq, linear.out_features)``.
        """
        return self._turn(x, self.linear(x))

    def _turn(self, x: Tensor, projected: Tensor) -> Tensor:
        """Rotate ``projected``, the projection of the tokens ``x``, by the tokens' positions."""
        encoder, positions = self.encoder, self.positions
        if self.places is not None:
            positions = self.places(x)
        positions = positions.to(x.device)
        require_places("x", x, positions)
        turning, rest = projected.tensor_split([self.heads * encoder.head_dim], -1)
        by_head = turning.unflatten(-1, (-1, encoder.heads, encoder.head_dim)).movedim(-4, -2)
        if positions.ndim > 2:  # add a dimension for groups of heads, which share the positions
            positions = positions.unsqueeze(-3)
        rotated = encoder.rotate(by_head, positions).movedim(-2, -4).flatten(-3)
        return torch.cat([rotated, rest], -1)

    @torch.no_grad()
    def folded(self) -> Rotated:
        """Return a module that gives the same logits and takes as long as RoPE.

        The basis of the encoder is merged into a copy of the projection, and the new encoder has no
        basis. Queries and keys are then expressed in this basis, which cancels in their products,
        :eq:`eq-fold`. If queries and keys have separate projections, fold the projection to
        queries and the projection to keys.

        Raises:
            ValueError: If ``linear`` is not a plain linear layer, for example because its weight is
                computed at each call (parametrisation), or because it has forward hooks or an
                adapter. The basis would then be lost, or applied to only a part of the output. Also
                if the encoder or this module has hooks or a forward of its own.
        """
        encoder, linear = self.encoder, self.linear
        require_foldable("linear", linear, additions_to_weight)
        require_foldable("encoder", encoder)
        require_foldable("Rotated", self)
        linear = copy.deepcopy(linear)
        for parameter in (linear.weight, linear.bias):
            if parameter is not None:
                for part in parameter[: self.heads * encoder.head_dim].split(
                    encoder.heads * encoder.head_dim
                ):
                    part.copy_(encoder.fold(part, encoder.heads))
        return Rotated(linear, encoder.folded(), self.places or self.positions, self.heads)

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        tokens = "any" if self.positions is None else self.positions.shape[-2]
        return f"heads={self.heads}, tokens={tokens}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Rotated:
        """Move the positions to the device of the module, without rounding them to its dtype.

        The dtype bfloat16 has no odd integers above 256, so it would round the positions.
        """
        super()._apply(fn, recurse)
        if self.positions is not None:
            # an empty integer tensor finds the device, because each device supports integers
            device = fn(self.positions.new_empty(0, dtype=torch.int64)).device
            self.positions = self.positions.to(device, widest(device))
        return self


def load_encoders(model: nn.Module, directory: str | Path, variant: str | None = None) -> None:
    """Load the parameters of :class:`RotaryTables` and :class:`Rotated` that were saved in a model.

    ``save_pretrained`` saves these parameters together with the model. But ``from_pretrained``
    builds the original model, which does not contain these modules. Therefore ``from_pretrained``
    does not load the parameters of these modules, and reports them as unexpected.
    ``from_pretrained`` also reports the parameters of replaced projections as missing. Build the
    model, replace the same modules in it as before saving, and call this function::

        model = LlamaForCausalLM.from_pretrained(directory)
        model.model.rotary_emb = RotaryTables(CirculantSTRING(128))
        load_encoders(model, directory)

    ``save_pretrained`` may need two more arguments. If queries and keys share one encoder, two
    names refer to the same tensor. In this case pass
    ``state_dict={name: x.clone() for name, x in model.state_dict().items()}``. Some model families,
    such as ViT, save their parameters under other names. In this case pass
    ``save_original_format=False``.

    Args:
        model: Model in which the modules have already been replaced. It is changed in place.
        directory: Directory that ``save_pretrained`` wrote, with safetensors files.
        variant: Variant of the weights, as in the argument ``variant`` of ``from_pretrained``.
            Default: None, which means the files without a variant in their name.

    Raises:
        ValueError: If the model contains neither a :class:`RotaryTables` nor a :class:`Rotated`, if
            the directory has no safetensors file of the variant, or if the parameters in the files
            are not those of the modules.
        RuntimeError: If a saved parameter has another shape than the parameter of the module.
        ImportError: If safetensors is not installed.
    """
    safe_open: Any = import_module("safetensors").safe_open
    kinds = (RotaryTables, Rotated)
    names = [name for name, each in model.named_modules() if isinstance(each, kinds)]
    if not names:
        raise ValueError(
            "model must contain a RotaryTables or a Rotated, got a "
            f"{type(model).__name__} with neither. Replace the same modules as before saving."
        )
    wanted = {f"{name}.{key}" for name in names for key in model.get_submodule(name).state_dict()}
    saved: dict[str, Tensor] = {}
    of = "" if variant is None else f".{variant}"
    whole, index = f"model{of}.safetensors", Path(directory, f"model.safetensors.index{of}.json")
    if Path(directory, whole).exists():  # the file that from_pretrained prefers
        files = {whole}
    elif index.exists():
        files = {*json.loads(index.read_text(encoding="utf8"))["weight_map"].values()}
    else:
        raise ValueError(
            f"directory must contain {whole} or {index.name}, got {directory}, which has neither. "
            "Pass the directory to which save_pretrained wrote safetensors files, and the same "
            "variant as to save_pretrained."
        )
    for file in files:
        with safe_open(Path(directory, file), framework="pt") as tensors:
            keys = tensors.keys()
            own = [key for key in keys if key.startswith(tuple(f"{name}." for name in names))]
            saved |= {key: tensors.get_tensor(key) for key in own}
    if wanted != saved.keys():
        missing, left = sorted(wanted - saved.keys()), sorted(saved.keys() - wanted)
        raise ValueError(
            "directory must contain a checkpoint with the tensors of the model's encoders, got "
            f"{directory}. Missing: {', '.join(missing) or 'none'}. Unexpected: "
            f"{', '.join(left) or 'none'}. Build the same encoders as those that were saved, or "
            "pass the variant that was given to save_pretrained."
        )
    model.load_state_dict(saved, strict=False)


# functions that return the same weight in another dtype or on another device
SAME = (Tensor.detach, Tensor.to, Tensor.float, Tensor.double, Tensor.half, Tensor.bfloat16)
PRODUCTS = {"matmul", "mm", "addmm", "bmm", "baddbmm", "einsum", "tensordot", "__matmul__"}
PRODUCTS |= {"__rmatmul__", "inner", "mv", "addmv", "dot"}


class _RotaryWeight(Tensor):
    """Weight of a :class:`Rotated`, with which ``torch.nn.functional.linear`` rotates its result.

    Only the whole weight can be used, and only in ``torch.nn.functional.linear``. A product with a
    part of the weight, or any other product, raises an error, because it would return vectors that
    are not rotated.
    """

    module: Rotated | None = None

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is nn.functional.linear:
            given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
            x, weight = given["input"], given["weight"]
            module = getattr(weight, "module", None)
            if module is None:
                raise ValueError(
                    "weight must be the whole weight of the projection, got a slice or a product "
                    f"with shape {tuple(weight.shape)}. This projection applies a rotary "
                    "encoder. Call the module instead of computing with its weight."
                )
            with torch._C.DisableTorchFunctionSubclass():
                projected = nn.functional.linear(x, weight, given.get("bias"))
            return module._turn(x, projected)
        if getattr(function, "__name__", "") in PRODUCTS:
            raise ValueError(
                "weight must be used in torch.nn.functional.linear only, got the function "
                f"{function.__name__}. This projection applies a rotary encoder, which no other "
                "function does. Call the module instead of computing with its weight."
            )
        found = super().__torch_function__(function, types, args, kwargs)
        if function in SAME:
            found.module = args[0].module
        return found


class LatestCall:
    """Tensor that a hook stores in each call of a model, so that layers can use it in this call.

    Gradient checkpointing computes layers again during the backward pass. By then a later call of
    the model may have stored another tensor. During the backward pass ``_stored`` therefore returns
    the tensor that the first call since the last backward pass has stored.

    Attributes:
        unknown: Message of the error that is raised if no call has stored a tensor yet.
        mixed: Message of the error that is raised during a backward pass with gradient
            checkpointing, if several calls have stored different tensors.
    """

    unknown: str
    mixed: str

    def __init__(self) -> None:
        self.latest: Tensor | None = None
        # For the backward pass: what the first call since the last backward pass stored, whether a
        # later call stored something else, and whether a backward pass has used it.
        self.kept: Tensor | None = None
        self.several, self.used = False, False

    def _store(self, found: Tensor) -> None:
        self.latest = found
        # not needed when compiled, because the compiler itself handles recomputation
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            if self.kept is None or self.used:
                self.kept, self.several, self.used = found, False, False
            self.several = self.several or not torch.equal(self.kept, found)

    def _stored(self) -> Tensor:
        if self.latest is None:
            raise ValueError(self.unknown)
        backward = False
        if not torch.compiler.is_compiling():
            backward = torch._C._current_graph_task_id() >= 0
        if not backward or self.kept is None:
            return self.latest
        if self.several:
            raise ValueError(self.mixed)
        self.used = True
        return self.kept


class PatchPositions(LatestCall):
    """Positions of patches in a batch of images of different sizes (NaFlex models).

    A NaFlex model passes the shape of each image to its embedding. A hook on the embedding stores
    these shapes. A call of this object computes the positions from the stored shapes.

    Args:
        module: Embedding of the model.
        argument: Name of the argument of the embedding's ``forward`` that contains the number of
            rows and the number of columns of each image, ``(batch, 2)``.

    Example:
        >>> class Embeddings(nn.Module):
        ...     def forward(self, pixels, spatial_shapes):
        ...         return pixels
        >>> embeddings = Embeddings()
        >>> places = PatchPositions(embeddings, "spatial_shapes")
        >>> tokens = embeddings(torch.zeros(2, 4, 8), torch.tensor([[2, 2], [1, 3]]))
        >>> places(tokens)[1].tolist()  # the last token is padding
        [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 0.0]]
    """

    unknown = (
        "module must have been called before its positions are needed, got no call of the "
        "embedding that was given to PatchPositions. Call the whole model."
    )
    mixed = (
        "with gradient checkpointing, the images must have the same shapes in all calls of the "
        "model between two backward passes, got different shapes in two calls. Call backward() "
        "after each call of the model."
    )

    def __init__(self, module: nn.Module, argument: str) -> None:
        super().__init__()
        signature = inspect.signature(module.forward)
        require_name("argument", argument, signature.parameters)

        self.argument = argument
        # a bound method, so that the hook of a copied model belongs to the copied object
        module.register_forward_pre_hook(self._remember, with_kwargs=True)

    def _remember(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        self._store(torch.as_tensor(given[self.argument]))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the row and column of each patch, ``(batch, seq, 2)``; padding is at (0, 0).

        Args:
            x: Tokens, ``(batch, seq, channels)``. Only their number and their device are used.

        Raises:
            ValueError: If the model has not been called yet. Also during a backward pass with
                gradient checkpointing, if calls of the model had images of different shapes.
        """
        rows, columns = self._stored().to(x.device).unsqueeze(-1).unbind(1)
        index = torch.arange(x.shape[-2], device=x.device)
        cells = torch.stack([index // columns, index % columns], -1)
        return widen(cells * (index < rows * columns)[..., None])


class KeptPatches(LatestCall):
    """Positions of the patches that a model keeps in training (patch dropout).

    A model of timm with ``patch_drop_rate`` drops random patches of each image in its module
    ``patch_drop``. One hook on this module appends the number of each token to the channels of the
    token. Another hook splits the number off from the tokens that are kept. A call of this object
    returns the positions of the kept tokens.

    Args:
        module: The module that drops patches. It gets tokens, ``(batch, seq, channels)``, and
            returns the kept tokens, or a tuple that begins with them. In evaluation mode it must
            keep all tokens.
        positions: Positions of all tokens before some are dropped, ``(seq, coord_dim)``, with the
            position of the class token if there is one.

    Example:
        >>> from stringlib import CirculantSTRING
        >>> from stringlib.positions import grid_positions
        >>> class PatchDrop(nn.Module):  # model.patch_drop
        ...     def forward(self, x):
        ...         return x[:, [0, 3, 1]] if self.training else x
        >>> drop, qkv = PatchDrop(), nn.Linear(64, 192)  # block.attn.qkv
        >>> places = KeptPatches(drop, grid_positions(2, 2, num_prefix=1))
        >>> qkv = Rotated(qkv, CirculantSTRING(16, coord_dim=2), places, heads=8)
        >>> tokens = drop(torch.randn(8, 5, 64))
        >>> qkv(tokens).shape, places(tokens)[0].tolist()
        (torch.Size([8, 3, 192]), [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    """

    unknown = (
        "module must have been called before its positions are needed, got no call of the module "
        "that was given to KeptPatches. Call the whole model."
    )
    mixed = (
        "with gradient checkpointing, the model must be called once between two backward passes "
        "if patches are dropped, got several calls. Call backward() after each call of the model."
    )

    @checked
    def __init__(self, module: nn.Module, positions: Positions[Tensor, "seq coord_dim"]) -> None:
        super().__init__()
        self.positions = positions.detach().clone()
        # bound methods, so that the hooks of a copied model belong to the copied object
        module.register_forward_pre_hook(self._append)
        module.register_forward_hook(self._split_off)

    def _append(self, module: nn.Module, given: Any) -> Any:
        x, *others = given
        count = len(self.positions)
        if x.ndim != 3:
            raise ValueError(
                f"the tokens must have shape (batch, seq, channels), got {tuple(x.shape)}"
            )
        if x.shape[1] != count:
            raise ValueError(
                f"positions must have one row for each of the {x.shape[1]} tokens, got {count} "
                "rows. Include the positions of the tokens that the module will drop, and that of "
                "the class token if there is one."
            )
        if not module.training:
            return None
        number = torch.arange(count, device=x.device)
        # integers up to 256 are exact in bfloat16
        digits = torch.stack([number // 256, number % 256], -1).to(x.dtype)
        return torch.cat([x, digits.expand(len(x), -1, -1)], -1), *others

    def _split_off(self, module: nn.Module, given: Any, returned: Any) -> Any:
        first = returned[0] if isinstance(returned, tuple) else returned
        positions = widen(self.positions.to(first.device))
        if not module.training:
            self._store(positions)
            return None
        tokens, digits = first.split([first.shape[-1] - 2, 2], -1)
        high, low = digits.detach().long().unbind(-1)
        self._store(positions[256 * high + low])
        return (tokens, *returned[1:]) if isinstance(returned, tuple) else tokens

    def __call__(self, x: Tensor) -> Tensor:
        """Return the positions of the tokens that were kept, ``(batch, seq, coord_dim)``.

        In evaluation mode all images have the same positions, and the shape is
        ``(seq, coord_dim)``.

        Args:
            x: Tokens, ``(batch, seq, channels)``. Only their device is used.

        Raises:
            ValueError: If the model has not been called yet. Also during a backward pass with
                gradient checkpointing, if calls of the model kept different patches.
        """
        return self._stored().to(x.device)
