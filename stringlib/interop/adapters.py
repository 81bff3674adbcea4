"""Modules that carry an encoder into other libraries' models, one in each of two seams.

A language model asks one rotary module for its cosines and sines: :class:`RotaryTables` stands
there. A vision transformer has no such module, but projections to queries and keys:
:class:`Rotated` stands there. Nothing else of the model is touched, and no library is imported.
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

from stringlib.encoders.string import RotaryEncoder
from stringlib.inputs import require_name, require_places, require_same_device
from stringlib.interop.rotary_modules import Coordinates, Tables, find, laid_out
from stringlib.precision import at_least_float32, widen, widest
from stringlib.spec import Floats, Positions, Positive, Reals, checked, require


class RotaryTables(nn.Module):
    """What a language model of the library transformers has as its ``rotary_emb``.

    The model turns queries and keys by these tables, and does the rest as before: caches,
    generation, masks. Frequencies stay exact when the model is converted to bfloat16, and those
    that are learned get gradients; where layers are checkpointed, with ``use_reentrant=False``,
    for all of them share one table. Tables hold no basis: put it into the projections of queries
    and keys, ``encoder.fold(weight, layout=layout)``.

    :meth:`from_module` reads all arguments from the module that is to be replaced. Move the new one
    to the model's device. Its tables are as wide as the encoder's ``head_dim``: for
    a model that turns a part of its channels, make an encoder of these alone.

    Args:
        encoder: With ``heads=1``; or one for each of the model's layer types, by name.
        layout: How the model's own tables are laid out: ``"half"``, as Llama has them, or
            ``"interleaved"`` (Cohere); ``"axes"``, halves for each coordinate by itself (the tower
            of Gemma 4); ``"pairs"``, one column a pair (GPT-OSS); ``"complex"``,
            one tensor of complex numbers, one a pair (Llama 4, DeepSeek-V2). It does not say
            which channels are a pair: Llama 4 turns neighbours, GPT-OSS halves, and GLM turns
            neighbours by half tables.
        scale: Multiplies cosines and sines, and so logits by its square: the attention factor of
            YaRN and LongRoPE. Or one for each layer type, by name; 1 for those left out.
        coordinates: Where several coordinates stand in ``position_ids``: ``"first"``, as models of
            texts and images have them, or ``"last"``, as towers of images have them.
        wide: Whether tables are of float32 where tokens are narrower (OLMo).
        longer: What a long text changes: :class:`~stringlib.encoders.scaling.Beyond` or
            :class:`~stringlib.encoders.scaling.DynamicNTK`. Or one for each layer type.
        positions: For a model that hands no positions over: makes them, ``(..., seq, coord_dim)``,
            of what it does hand over: DINOv3 of transformers the picture, a model of timm the
            numbers of rows and columns (:meth:`get_embed`).

    Raises:
        ValueError: If a name in ``scale`` is unknown, a scale is not positive, or an encoder has
            no tables.

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
                    f"heads must be 1 for tables, which all heads share, got {each.heads}"
                )
            if each.head_dim % 2:
                raise ValueError(f"head_dim must be even for tables, got {each.head_dim}")
            if layout == "axes" and each.head_dim % (2 * each.coord_dim):
                raise ValueError(
                    f"head_dim must be a multiple of {2 * each.coord_dim} for tables with halves "
                    f"for each of {each.coord_dim} coordinates, got {each.head_dim}"
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
        """Return what stands in for a model's rotary module and makes the tables that it makes.

        The module is asked: for a few positions, for a text that is short and for one that is
        long. So layer types, coordinates, layout, attention factor and a scaling that depends on
        the length are those of the module, whatever its class. What a model reads from it besides,
        such as ``config``, is kept.

        Args:
            rotary_emb: The module, with its numbers: not one on the meta device. It is called with
                tokens and ``position_ids``, and with a layer type where ``rope_type`` has several.

        Raises:
            ValueError: If it makes no such tables, or changes them for long texts in a way that is
                neither LongRoPE nor dynamic NTK. The message names its class.

        Example:
            >>> class Rotary(nn.Module):  # as a model has it, with a factor of YaRN
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
                "rotary_emb must have one form of tables for all layer types, got "
                f"{type(rotary_emb).__name__}"
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
        """Return cosines and sines as the model hands them to its layers.

        Args:
            x: Tokens; only their dtype and device are read.
            position_ids: ``(batch, seq)``; for an encoder of c coordinates ``(c, batch, seq)``, as
                models of images and texts hand them over, or ``(batch, seq)`` where all
                coordinates are the same. With coordinates last ``(..., seq, c)``. Not at all where
                ``positions`` makes them.
            layer_type: Whose encoder is asked for, where layer types have their own.

        Returns:
            ``(cos, sin)``, each ``(batch, seq, head_dim)``, of the dtype of ``x``; with layout
            ``"pairs"`` of ``head_dim / 2`` columns, with ``"complex"`` as one tensor cos + i sin,
            complex64 or wider. Without a dimension of the batch where positions have none.
        """
        encoder, name = self._of(layer_type)
        positions = self._places(x, position_ids, encoder.coord_dim).to(x.device)
        return self._tables(positions, x.dtype, encoder, name)

    @property
    def dim(self) -> int:
        """Channels of a head, by the name that timm reads."""
        return self._of(None)[0].head_dim

    def get_embed(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Return sines and cosines side by side: what timm asks of the ``rope`` of a model.

        Args:
            shape: Rows and columns of patches, of which ``positions`` makes positions.
            dtype: Of the result.
        """
        encoder, name = self._of(None)
        if self.positions is None:
            raise ValueError("positions must be given for tables of a shape, got None")
        if self.layout == "complex":
            raise ValueError("layout must have cosines and sines by themselves, got 'complex'")
        positions = self.positions(*shape).to(encoder.frequencies().device)
        cos, sin = self._tables(positions, dtype, encoder, name)
        return torch.cat([sin, cos], -1)

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
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
        require_same_device("x", positions, "encoder", frequencies)  # a product would not say it
        if positions.shape[-1:] != (encoder.coord_dim,):
            raise ValueError(
                f"positions must make shape (..., seq, {encoder.coord_dim}), got "
                f"{tuple(positions.shape)}"
            )
        if _key(name) in self.longer:
            length = positions.max() + 1
            frequencies, scale = self.longer[_key(name)](frequencies, scale, length)
        angles = widen(positions) @ frequencies[0].mT
        cos, sin = (
            laid_out(wave(angles) * scale, self.layout, encoder.coord_dim)
            for wave in (torch.cos, torch.sin)
        )
        if self.wide or self.layout == "complex":
            dtype = at_least_float32(dtype)
        cos, sin = cos.to(dtype), sin.to(dtype)
        return torch.complex(cos, sin) if self.layout == "complex" else (cos, sin)

    def _places(self, x: Tensor, position_ids: Tensor | None, axes: int) -> Tensor:
        """Return where tokens stand, ``(..., seq, axes)``."""
        if self.positions is not None:
            return self.positions(x)
        shape: tuple[int, ...] = () if position_ids is None else tuple(position_ids.shape)
        if position_ids is not None and self.coordinates == "last" and shape[-1] == axes:
            return position_ids
        first = self.coordinates == "first"
        if position_ids is not None and first and shape[:-2] in ((), (axes,)):
            return position_ids.expand(axes, -1, -1).movedim(0, -1)
        wanted = "(batch, seq) or ({}, batch, seq)" if first else "(..., seq, {})"
        raise ValueError(f"position_ids must have shape {wanted.format(axes)}, got {shape or None}")


def _key(layer_type: str) -> str:
    """Return a name that a module may have: the only layer type has none."""
    return f"for {layer_type}"


def _by_type(name: str, given: Any, types: Collection[str], otherwise: Any) -> dict[str, Any]:
    """Return one thing for each layer type."""
    if [*types] == [""] or not isinstance(given, Mapping):
        return dict.fromkeys(types, given)
    for key in given:
        require_name(f"{name}'s layer types", key, types)
    return {key: given.get(key, otherwise) for key in types}


class Rotated(nn.Module):
    r"""A projection to queries, keys or both, turned: :math:`R(r)\,(W x + b)` head by head.

    It stands where a model has the projection: a fused ``[q; k; v]`` with ``heads`` twice those of
    attention, or one module for queries and one for keys with the same encoder. Every token stands
    at its row of ``positions``; one that is at 0, such as a class token, is not turned. With
    ``CirculantSTRING(..., zero=True)`` a trained model says what it said, and learns from there.

    Queries and keys should go from here to their products. A norm between (``q_norm``, ``k_norm``)
    sees turned vectors. One that only divides by the length commutes with every rotation. One with
    learned weights, or that subtracts a mean, does not: logits then depend on the positions
    themselves, not on their differences alone, and :meth:`folded` changes them.

    Some models of timm multiply by ``weight`` themselves, to add a bias that lies elsewhere
    (EVA-02, BEiT). They find it here by this name, and what they get is turned, bias included.

    Args:
        linear: The model's projection. In the ``state_dict`` its parameters are then under
            ``linear.``: load the model's weights first.
        encoder: One with ``heads=h`` serves h heads, then the next h. Where a key serves several
            queries (grouped queries), it should have ``heads=1``.
        positions: Of all tokens, ``(seq, coord_dim)``, or ``(batch, seq, coord_dim)`` where each
            picture has its own; or what makes them of the tokens that are projected, such as
            :class:`PatchPositions`. They are not in the ``state_dict``, and
            stay exact when the model is converted to bfloat16.
        heads: How many heads of the output, the first ones, are turned; all if omitted.

    Attributes:
        linear: The projection.
        encoder: The encoder.
        positions: The positions, float64 where the device has it; None if they are made anew.
        heads: How many heads are turned.

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
                f"linear must project to heads of {encoder.head_dim} channels, those of the "
                f"encoder, got {linear.out_features} rows"
            )
        heads = most if heads is None else heads
        if not 0 < heads <= most or heads % encoder.heads:
            raise ValueError(
                f"heads must be a multiple of {encoder.heads}, the heads of the encoder, and at "
                f"most {most}, those of linear, got {heads}"
            )
        self.linear, self.encoder, self.heads = linear, encoder, int(heads)
        if isinstance(positions, Tensor) and positions.is_meta:
            raise ValueError("positions must have numbers, got a tensor on the meta device")
        # no buffer: libraries that build models on meta fill those in no state_dict with anything
        self.positions = (
            widen(positions.detach()).clone() if isinstance(positions, Tensor) else None
        )
        self.places = None if isinstance(positions, Tensor) else positions

    @property
    def weight(self) -> Tensor:
        """The projection's weight, for models that multiply by it themselves."""
        turning = self.linear.weight.as_subclass(_TurningWeight)
        turning.module = self
        return turning

    @property
    def channels(self) -> int:
        """Channels of a token, as the projection reads them."""
        return self.linear.in_features

    @checked
    def forward(self, x: Floats[Tensor, "... n self.channels"]) -> Tensor:
        """Return the projected tokens, turned.

        Args:
            x: ``(..., seq, channels)``.

        Returns:
            ``(..., seq, rows)``, what ``linear`` gives but for the turn.
        """
        return self._turn(x, self.linear(x))

    def _turn(self, x: Tensor, projected: Tensor) -> Tensor:
        """Return tokens ``x`` that were projected, turned where they stand."""
        encoder, positions = self.encoder, self.positions
        if self.places is not None:
            positions = self.places(x)
        positions = positions.to(x.device)
        require_places("x", x, positions)
        turning, rest = projected.tensor_split([self.heads * encoder.head_dim], -1)
        by_head = turning.unflatten(-1, (-1, encoder.heads, encoder.head_dim)).movedim(-4, -2)
        if positions.ndim > 2:  # the same for each group of heads
            positions = positions.unsqueeze(-3)
        turned = encoder.rotate(by_head, positions).movedim(-2, -4).flatten(-3)
        return torch.cat([turned, rest], -1)

    @torch.no_grad()
    def folded(self) -> Rotated:
        """Return a module that costs what RoPE costs: the basis is in a copy of the projection.

        Its queries and keys are those of this one but for the basis, which cancels in their
        products, :eq:`eq-fold`. So fold the projections of both.

        Raises:
            ValueError: If weight or bias are computed anew at each call, or more is done than to
                multiply and add: a basis in the weight would be lost, or meet only a part.
        """
        encoder, linear = self.encoder, self.linear
        plain = type(linear).forward is nn.Linear.forward
        hooks = len(linear._forward_hooks) + len(self._forward_hooks)
        if not plain or hooks or not linear._parameters.keys() >= {"weight", "bias"}:
            names = ", ".join(name for name, _ in linear.named_parameters())
            raise ValueError(
                "linear must be a weight and a bias without hooks behind them to be folded, got "
                f"{type(linear).__name__} with {names} and {hooks} hooks"
            )
        linear = copy.deepcopy(linear)
        for parameter in (linear.weight, linear.bias):
            if parameter is not None:
                for part in parameter[: self.heads * encoder.head_dim].split(
                    encoder.heads * encoder.head_dim
                ):
                    part.copy_(encoder.fold(part, encoder.heads))
        return Rotated(linear, encoder.folded(), self.places or self.positions, self.heads)

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        tokens = "any" if self.positions is None else self.positions.shape[-2]
        return f"heads={self.heads}, tokens={tokens}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Rotated:
        """Move, and keep positions exact: bfloat16 has no odd numbers beyond 256."""
        super()._apply(fn, recurse)
        if self.positions is not None:
            # every device has integers: only they can ask where all is moved to
            device = fn(self.positions.new_empty(0, dtype=torch.int64)).device
            self.positions = self.positions.to(device, widest(device))
        return self


def load_encoders(model: nn.Module, directory: str | Path, variant: str | None = None) -> None:
    """Give a model that has :class:`RotaryTables` or :class:`Rotated` the numbers saved with them.

    ``save_pretrained`` writes them with the rest. ``from_pretrained`` builds the model that the
    library knows, which has no place for them: it reports them as unexpected, or as missing what
    they hold, and goes on. So build the model, put in the same modules as before, and call this::

        model = LlamaForCausalLM.from_pretrained(directory)
        model.model.rotary_emb = RotaryTables(CirculantSTRING(128))
        load_encoders(model, directory)

    Two things ``save_pretrained`` may have to be told. Where queries and keys share one encoder,
    that two names may be one tensor:
    ``state_dict={name: x.clone() for name, x in model.state_dict().items()}``. For families that
    write other names than they have, such as ViT, that names stay: ``save_original_format=False``.

    Args:
        model: With its modules in place.
        directory: That ``save_pretrained`` wrote, with files of safetensors.
        variant: Which of several weights, as ``from_pretrained`` calls it.

    Raises:
        ValueError: If the model has no such module, or something of one is not in the files, or
            something is left over there.
        ImportError: If safetensors is not installed.
    """
    safe_open: Any = import_module("safetensors").safe_open  # whoever has such files has it
    kinds = (RotaryTables, Rotated)
    places = [name for name, each in model.named_modules() if isinstance(each, kinds)]
    if not places:
        raise ValueError("model must have RotaryTables or Rotated in it, got none")
    wanted = {
        f"{place}.{key}" for place in places for key in model.get_submodule(place).state_dict()
    }
    saved: dict[str, Tensor] = {}
    of = "" if variant is None else f".{variant}"
    whole, index = f"model{of}.safetensors", Path(directory, f"model.safetensors.index{of}.json")
    if Path(directory, whole).exists():  # as from_pretrained chooses, whatever lies beside it
        files = {whole}
    elif index.exists():
        files = {*json.loads(index.read_text(encoding="utf8"))["weight_map"].values()}
    else:
        raise ValueError(f"directory must hold {whole} or {index.name}, got {directory}")
    for file in files:
        with safe_open(Path(directory, file), framework="pt") as tensors:
            keys = tensors.keys()
            own = [key for key in keys if key.startswith(tuple(f"{place}." for place in places))]
            saved |= {key: tensors.get_tensor(key) for key in own}
    if wanted != saved.keys():
        missing, left = sorted(wanted - saved.keys()), sorted(saved.keys() - wanted)
        raise ValueError(
            f"directory must hold what the model's encoders have, got {directory} without "
            f"{', '.join(missing) or 'nothing'} and with {', '.join(left) or 'nothing'} besides"
        )
    model.load_state_dict(saved, strict=False)


# what gives the same weight in another dtype or place
SAME = (Tensor.detach, Tensor.to, Tensor.float, Tensor.double, Tensor.half, Tensor.bfloat16)
PRODUCTS = {"matmul", "mm", "addmm", "bmm", "baddbmm", "einsum", "tensordot", "__matmul__"}
PRODUCTS |= {"__rmatmul__", "inner", "mv", "addmv", "dot"}


class _TurningWeight(Tensor):
    """The weight of a :class:`Rotated`: what is projected by it is turned."""

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
                    "weight must be that of the whole projection, whose tokens are turned, got "
                    f"shape {tuple(weight.shape)} made of it"
                )
            with torch._C.DisableTorchFunctionSubclass():
                projected = nn.functional.linear(x, weight, given.get("bias"))
            return module._turn(x, projected)
        if getattr(function, "__name__", "") in PRODUCTS:
            raise ValueError(
                "weight must be multiplied by torch.nn.functional.linear, which turns its tokens, "
                f"got {function.__name__}"
            )
        found = super().__torch_function__(function, types, args, kwargs)
        if function in SAME:
            found.module = args[0].module
        return found


class PatchPositions:
    """Positions of the patches of pictures of several sizes, as NaFlex models tell their shapes.

    Args:
        module: The model's embedding, which is called with the shapes.
        argument: What its ``forward`` calls them: rows and columns of each picture,
            ``(batch, 2)``.

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

    def __init__(self, module: nn.Module, argument: str) -> None:
        signature = inspect.signature(module.forward)
        require_name("argument", argument, signature.parameters)

        self.argument = argument
        self.shapes: Tensor | None = None  # told last
        self.kept: Tensor | None = None  # told since the last backward pass, for it
        self.several, self.used = False, False  # whether others were, and whether it used them
        # a method, so that the hook of a copied model tells the copy
        module.register_forward_pre_hook(self._remember, with_kwargs=True)

    def _remember(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        self.shapes = torch.as_tensor(given[self.argument])
        # a compiler sees what is computed again
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            if self.kept is None or self.used:
                self.kept, self.several, self.used = self.shapes, False, False
            self.several = self.several or not torch.equal(self.kept, self.shapes)

    def __call__(self, x: Tensor) -> Tensor:
        """Return (row, column) of each token of ``(batch, seq, channels)``; padding is at 0."""
        if self.shapes is None:
            raise ValueError("shapes must be told by the model's embedding first, got none")
        shapes, backward = self.shapes, False
        if not torch.compiler.is_compiling():
            backward = torch._C._current_graph_task_id() >= 0
        if backward and self.kept is not None:
            # checkpointing computes layers again, when another picture may have been told
            if self.several:
                raise ValueError(
                    "shapes must be those of one call of the model between two backward passes "
                    "where checkpointing computes layers again, got several"
                )
            shapes, self.used = self.kept, True
        rows, columns = shapes.to(x.device).unsqueeze(-1).unbind(1)
        place = torch.arange(x.shape[-2], device=x.device)
        cells = torch.stack([place // columns, place % columns], -1)
        return widen(cells * (place < rows * columns)[..., None])
