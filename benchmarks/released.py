"""Put our encoders into every family of transformers and timm that has rotary positions.

``python -m benchmarks.released`` builds a small model of each family with random weights. It
replaces the rotary module by what ``RotaryTables.from_module`` returns, or by the lines of
``book/own_lines.py``. Then it compares outputs, bfloat16, generation with two caches, left padding
and one graph with those of the original model, and finds out whether a basis folds through norms of
queries and keys. A family counts only if frequencies that are 10% higher change its outputs
visibly. The script needs the extra ``interop`` and about ten minutes. It writes
``results/released.json``, which the page "Released models" shows. Each row has its duration in
seconds. The duration of the record is their sum, also if only some families were measured again.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.small import attempts, build, calls, filled, known, small, tokens
from book.own_lines import OWN
from lab.console import allow_every_letter
from lab.records import read_record, write_record
from stringlib import CirculantSTRING, RotaryEncoder, foldable
from stringlib.interop.adapters import RotaryTables

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "results" / "released.json"
SECONDS = 40  # of a processor, for one family
MOVED = 1e-4  # what frequencies that are a tenth faster change at least, where they are used

TOWERS = {
    "deepseek_vit": "deepseek_vit_412m",
    "eva02": "eva02_tiny_patch14_224",
    "gemma4_vit": "gemma4_vit_167m",
    "qwen3_vit": "qwen3_vit_88m",
    "vit dinov3": "vit_small_patch16_dinov3",
    "vit lingbot": "vit_small_patch16_lingbot",
    "vit pe": "vit_pe_core_tiny_patch16_384",
    "vit rope": "vit_small_patch16_rope_224",
    "vit rope_mixed": "vit_small_patch16_rope_mixed_224",
    "vit rope_reg": "vit_medium_patch16_rope_reg1_gap_256",
    "vit sapiens2": "vit_base_patch16_sapiens2",
}
"""Family of timm → its smallest model."""

WITHOUT_MODULE = {"codegen": "CodeGenAttention", "gptj": "GPTJAttention"}
WITHOUT_MODULE |= {"roformer": "RoFormerSinusoidalPositionalEmbedding"}
WITHOUT_MODULE |= {"lightglue": "LightGluePositionalEncoder", "vjepa2": "VJEPA2RopeAttention"}
"""Families whose rotations are in no module of that name → the class that has them."""

REASONS = {
    "esmfold2": "its module is given atoms and the number of their residue, not tokens",
    "lightglue": "its angles are learned projections of points, not positions",
    "musicflamingo": "its angles are products of a position and the time of the sample",
    "vjepa2": "its tables do not fit its pairs: it has no rotation (chapter 24)",
}
"""Families that are left as they are → why."""

NORMS = (
    ("q_norm", "k_norm"), ("q_layernorm", "k_layernorm"), ("query_layernorm", "key_layernorm"),
    ("q_layer_norm", "k_layer_norm"), ("norm_query", "norm_key"), ("qk_norm", "qk_norm"),
)  # fmt: skip
"""What the norms of queries and of keys are called in a layer."""

Row = dict[str, Any]


def rotary_classes(module: Any) -> list[str]:
    """Return the names of the classes of rotary modules that a model's file defines."""
    other = ("Attention", "Layer", "MLP", "Block")
    return [
        name
        for name, each in vars(module).items()
        if inspect.isclass(each) and issubclass(each, nn.Module)
        and each.__module__ == module.__name__ and not hasattr(each, "config_class")
        and any(word in name for word in ("Rotary", "Rope", "RoPE"))
        and not any(word in name for word in other)
    ]  # fmt: skip


def families() -> Iterator[tuple[str, Any, list[str]]]:
    """Yield each family of transformers, with the module of its model and its rotary classes."""
    root = Path(importlib.import_module("transformers").__path__[0]) / "models"
    for path in sorted(root.glob("*/modeling_*.py")):
        family, text = path.parent.name, path.read_text(encoding="utf8")
        if family not in WITHOUT_MODULE and not any(w in text for w in ("Rotary", "Rope", "RoPE")):
            continue
        module = importlib.import_module(f"transformers.models.{family}.{path.stem}")
        kinds = [WITHOUT_MODULE[family]] if family in WITHOUT_MODULE else rotary_classes(module)
        if kinds:
            yield family, module, kinds


def exchange(model: nn.Module, kinds: list[str]) -> dict[str, str]:
    """Put encoders into a model, and return the layout of their tables by class.

    A class that needs lines of its own has the layout "own lines".
    """
    done = {}
    for name, each in [*model.named_modules()]:
        kind, (parent, _, own) = type(each).__name__, name.rpartition(".")
        if kind in kinds:
            new = OWN[kind](each) if kind in OWN else RotaryTables.from_module(each)
            if own:  # else it is the model itself, and was written into
                setattr(model.get_submodule(parent), own, new)
            done[kind] = "own lines" if kind in OWN else str(getattr(new, "layout", ""))
    return done


def lines(kind: str) -> int:
    """Return how many lines of code put an encoder in for a class, without the import."""
    if kind not in OWN:
        return 1
    body = inspect.getsource(OWN[kind]).partition('"""\n')[2]
    return len([line for line in body.splitlines() if line.strip()])


def outputs(found: Any) -> list[Tensor]:
    """Return the floating-point tensors in the result of a model."""
    if isinstance(found, Tensor):
        return [found.float()] if found.is_floating_point() else []
    parts = found.values() if isinstance(found, dict) else found
    return [t for p in parts for t in outputs(p)] if isinstance(parts, list | tuple) or isinstance(
        found, dict
    ) else []  # fmt: skip


def far(found: Any, wanted: Any) -> float:
    """Return the largest difference of two results of a model.

    The difference is divided by the largest entry of the same tensor.

    Raises:
        ValueError: If the difference is not finite.
    """
    pairs = [p for p in zip(outputs(found), outputs(wanted), strict=True) if p[1].abs().sum() > 0]
    largest = max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)
    if not math.isfinite(largest):
        raise ValueError(f"found must differ from wanted by a finite number, got {largest}")
    return largest


def faster(model: nn.Module, kinds: list[str]) -> nn.Module:
    """Return a copy of a model whose encoders have 10% higher frequencies.

    Tables that a layer holds are computed again.
    """
    moved, own = copy.deepcopy(model), RotaryEncoder._own_frequencies
    quicken(moved)
    with patch.object(RotaryEncoder, "_own_frequencies", lambda self: 1.1 * own(self)):
        exchange(moved, [kind for kind in kinds if kind in OWN])  # writes those tables anew
    return moved


def quicken(model: nn.Module) -> None:
    """Raise the frequencies of all encoders in a model by 10%."""
    for encoder in (each for each in model.modules() if isinstance(each, RotaryEncoder)):
        for speeds in (*encoder.buffers(), *encoder.parameters()):
            speeds.mul_(1.1)


def seen(theirs: nn.Module, ours: nn.Module, given: dict[str, Any], kinds: list[str]) -> bool:
    """Return whether wrong frequencies would change the outputs of this call visibly."""
    return far(faster(ours, kinds)(**given), theirs(**given)) >= MOVED


def attempt(run: Callable[[], Any]) -> Any:
    """Return the result of a function, or the error that it raises."""
    try:
        return run()
    except Exception as error:
        return error


def as_loaded(model: nn.Module, kinds: list[str]) -> nn.Module:
    """Return a copy of a model in bfloat16 with exact frequencies, as from ``from_pretrained``."""
    kept = {n: copy.deepcopy(m) for n, m in model.named_modules() if type(m).__name__ in kinds}
    narrow = copy.deepcopy(model).bfloat16()
    for name, each in kept.items():
        if type(each).__name__ not in OWN:
            parent, _, own = name.rpartition(".")
            setattr(narrow.get_submodule(parent), own, each)
    return narrow


def compare(theirs: nn.Module, ours: nn.Module, given: dict[str, Any], kinds: list[str]) -> Row:
    """Return the row of comparisons of a model with our encoder and the original model."""
    before = theirs(**given)
    row: Row = {"difference": far(ours(**given), before)}
    narrow = {
        name: x.bfloat16() if isinstance(x, Tensor) and x.is_floating_point() else x
        for name, x in given.items()
    }
    for name, model in (
        ("theirs", as_loaded(theirs, kinds)),
        ("ours", copy.deepcopy(ours).bfloat16()),
    ):
        error = attempt(lambda model=model: far(model(**narrow), before))
        row[f"bfloat16 {name}"] = None if isinstance(error, Exception) else error
    text = given.get("input_ids")
    can = text is not None and "decoder_input_ids" not in given
    if can and attempt(theirs.can_generate) is True:
        for cache in ("dynamic", "static"):
            told = {
                "attention_mask": torch.ones_like(text),
                "max_new_tokens": 8,
                "do_sample": False,
            }
            told |= {"cache_implementation": cache} if cache == "static" else {}
            found = [attempt(lambda m=m, t=told: m.generate(text, **t)) for m in (theirs, ours)]
            row[cache] = same(*found)
    if can and "position_ids" in inspect.signature(theirs.forward).parameters:
        seen = torch.ones_like(text)
        seen[0, :6] = 0
        told = {**given, "attention_mask": seen, "position_ids": (seen.cumsum(-1) - 1).clamp(min=0)}
        padded = [attempt(lambda m=m, t=told: outputs(m(**t))[0][0, 6:]) for m in (theirs, ours)]
        row["padding"] = None if isinstance(padded[0], Exception) else attempt(
            lambda: far(padded[1], padded[0])
        )  # fmt: skip
    row["graph"] = one_graph(theirs, ours, given)
    return {k: str(v)[:100] if isinstance(v, Exception) else v for k, v in row.items()}


def through_norms(model: nn.Module) -> str | None:
    """Return whether a basis folds through the norms of queries and keys, in words.

    "any scales" means that it folds for all scales, and "equal scales" that it folds for equal
    scales only, with which the model is built. "none" means that it does not fold. "behind" means
    that the norms come after the rotation, so that they do not matter. Without norms the result is
    None.
    """
    found = set()
    for layer in model.modules():
        if any(word in type(layer).__name__ for word in ("Cross", "Index")):
            continue  # it turns nothing, or chooses tokens only
        held = dict(layer.named_children())
        for pair in NORMS:
            norms = [held[name] for name in pair if name in held]
            alone = all(len(inspect.signature(n.forward).parameters) == 1 for n in norms)
            if len(norms) < 2 or not alone or any(isinstance(n, nn.Identity) for n in norms):
                continue  # one that is given both at once (ZAYA) cannot be asked
            text = inspect.getsource(type(layer).forward)
            if 0 <= text.find("apply_rotary") < text.find(pair[0]):
                found.add("behind")  # a basis comes before the rotation, and so before the norm
                continue
            sizes = [p.numel() for p in norms[1].parameters()]
            width = known(layer, "head_dim") or known(layer, "qk_head_dim") or max(sizes)
            found.add(folding(CirculantSTRING(width), *norms))
    return ", ".join(sorted(found)) or None


def folding(encoder: RotaryEncoder, *norms: nn.Module) -> str:
    """Return for which scales of two norms a basis folds, in words, by :func:`foldable`."""
    varied = [copy.deepcopy(norm) for norm in norms]
    for parameter in (p for norm in varied for p in norm.parameters()):
        nn.init.uniform_(parameter, 0.5, 1.5)
    if attempt(lambda: foldable(encoder, *varied)) is True:
        return "any scales"
    return "equal scales" if attempt(lambda: foldable(encoder, *norms)) is True else "none"


def same(theirs: Any, ours: Any) -> Any:
    """Return whether two generated texts are equal; None if the original model cannot generate."""
    if isinstance(theirs, Exception):
        return None
    return ours if isinstance(ours, Exception) else bool(torch.equal(theirs, ours))


def one_graph(theirs: nn.Module, ours: nn.Module, given: dict[str, Any]) -> bool | None:
    """Return whether a model with our encoder compiles into one graph.

    If this is impossible for the original model, too, the result is None.
    """

    def traced(model: nn.Module) -> Any:
        torch.compiler.reset()
        return far(torch.compile(model, fullgraph=True, backend="eager")(**given), model(**given))

    if not isinstance(attempt(lambda: traced(ours)), Exception):
        return True
    return None if isinstance(attempt(lambda: traced(theirs)), Exception) else False


def tables_alone(module: nn.Module) -> Row:
    """Return the row of a rotary module whose tables are compared without a whole model."""
    kind, x = type(module).__name__, torch.zeros(1, 7, 1)
    if kind in OWN:
        ours = OWN[kind](copy.deepcopy(module))
        ways = [[(torch.zeros(1, 3, 64, 96),), (torch.zeros(1, 9, 64),)]]  # a picture, or tokens
    else:
        ours, ways = RotaryTables.from_module(module), []
        for name in ours.scales:
            axes, told = ours._of(name)[0].coord_dim, [name] * bool(name)
            at = torch.randint(90, (1, 7, axes), generator=torch.Generator().manual_seed(0))
            ids = at if ours.coordinates == "last" else at.movedim(-1, 0)
            ways.append([(x, ids[0], *told), (x, ids, *told)])
    differences = []
    for way in ways:  # asked in another way than its own it answers something else
        found = [attempt(lambda g=given: far(flat(ours(*g)), flat(module(*g)))) for given in way]  # type: ignore
        differences.append(min(each for each in found if isinstance(each, float)))
    return {"difference": max(differences)}


def flat(found: Any) -> list[Tensor]:
    """Return the numbers of the tensors of a table as vectors, whatever their shapes."""
    return [
        torch.view_as_real(t).flatten() if t.is_complex() else t.flatten() for t in parts(found)
    ]


def parts(found: Any) -> list[Tensor]:
    """Return the tensors of a table."""
    return [found] if isinstance(found, Tensor) else [*found]


class TooLong(BaseException):
    """Error that is raised when a family takes more seconds than it is given."""


def measure(family: str, module: Any, kinds: list[str]) -> Row:
    """Return the row of one family of transformers."""
    base = importlib.import_module("transformers").PreTrainedModel
    models = [
        each
        for name, each in vars(module).items()
        if inspect.isclass(each) and issubclass(each, base) and each.__module__ == module.__name__
        and not name.endswith("PreTrainedModel")
    ]  # fmt: skip
    ends = ("ForCausalLM", "TextModel", "VisionModel", "Model")
    models.sort(key=lambda m: ([m.__name__.endswith(e) for e in ends].index(True)
                               if m.__name__.endswith(ends) else 9, len(m.__name__)))  # fmt: skip
    left, rows, spare, norms = set(kinds), [], {}, set()
    source = inspect.getsource(module)
    mrope = "mrope_section" in source
    normed = any(name in source for pair in NORMS for name in pair)
    for kind in models:
        for config in attempts(kind.config_class, family, mrope, norms=True):
            model = attempt(lambda k=kind, c=config: build(k, c))
            if isinstance(model, nn.Module):
                norms.add(attempt(lambda m=model: through_norms(m)))
                break
        wanted = left or (normed and norms <= {None})
        for config in attempts(kind.config_class, family, mrope) if wanted else ():
            theirs = attempt(lambda k=kind, c=config: build(k, c))
            if not isinstance(theirs, nn.Module):
                continue
            norms.add(attempt(lambda t=theirs: through_norms(t)))
            if not left:
                break
            held = {type(each).__name__: each for each in theirs.modules()}
            here = [name for name in sorted(left) if name in held]
            spare |= {name: held[name] for name in here}
            given = next((g for g in calls(theirs, config) if works(theirs, g)), None)
            if not here or given is None:
                continue
            ours = copy.deepcopy(theirs)
            exchange(ours, here)
            if not seen(theirs, ours, given, here):
                continue  # it is not used in this call
            rows.append({"model": kind.__name__, **compare(theirs, ours, given, here)})
            left -= set(here)
            break
    for name in sorted(left):
        each = spare.get(name)
        if each is None or (
            name not in OWN
            and isinstance(attempt(lambda e=each: RotaryTables.from_module(e)), Exception)
        ):
            each = by_itself(vars(module)[name], [m.config_class for m in models])
        if each is not None:
            rows.append({"model": "tables alone", **tables_alone(each)})
            left.remove(name)
    return {**together(rows), "left": sorted(left), "norms": words(norms)}


def words(found: set[Any]) -> str | None:
    """Return as text what was found about the norms in all models of a family."""
    return ", ".join(sorted(str(each) for each in found if each is not None)) or None


def by_itself(kind: Any, configs: list[type]) -> nn.Module | None:
    """Return a rotary module of a default configuration, if no model of its family was built."""
    parts = [p for c in configs for p in (getattr(c, "sub_configs", None) or {}).values()]
    for config in dict.fromkeys([*configs, *parts]):
        made = attempt(lambda config=config: kind(config()))
        if isinstance(made, nn.Module) and kind.__name__ in OWN:
            return made
        if isinstance(made, nn.Module) and not isinstance(
            attempt(lambda m=made: RotaryTables.from_module(m)), Exception
        ):
            return made
    return None


def works(model: nn.Module, given: dict[str, Any]) -> bool:
    """Return whether a call of a model returns finite numbers."""
    found = attempt(lambda: outputs(model(**given)))
    return isinstance(found, list) and bool(found) and all(t.isfinite().all() for t in found)


def together(rows: list[Row]) -> Row:
    """Return one row for all parts of a family, with the worst value of each column."""
    row: Row = {"model": ", ".join(each["model"] for each in rows)}
    for name in dict.fromkeys(key for each in rows for key in each if key != "model"):
        values = [each[name] for each in rows if each.get(name) is not None]
        words = [value for value in values if isinstance(value, str)]
        flags = [value for value in values if isinstance(value, bool)]
        numbers = [v for v in values if isinstance(v, float)]
        row[name] = (words or [None])[0] or (all(flags) if flags else max(numbers, default=None))
    return row


def tower(name: str) -> Row:
    """Return the row of one family of timm, with an image that is wider than high."""
    size = 14 if "patch14" in name else 16
    told: dict[str, Any] = {"img_size": (4 * size, 6 * size), "num_classes": 5}
    made = attempt(lambda: importlib.import_module("timm").create_model(name, **told, depth=2))
    if isinstance(made, Exception):
        made = importlib.import_module("timm").create_model(name, num_classes=5)
    theirs = filled(made)
    shape = getattr(made, "pretrained_cfg", {}).get("input_size", (3, 224, 224))
    wide = torch.randn(1, 3, 4 * size, 6 * size)
    given = wide if works_with(theirs, wide) else torch.randn(1, *shape)
    kinds = sorted({type(m).__name__ for m in theirs.modules() if "otary" in type(m).__name__})
    ours = copy.deepcopy(theirs)
    exchange(ours, kinds)
    told = {"x": given}
    if not seen(Called(theirs), Called(ours), told, kinds):
        raise ValueError("outputs must change with the frequencies, got almost no change")
    return {
        "model": name,
        "kinds": kinds,
        "norms": words({attempt(lambda: through_norms(theirs))}),
        **compare(Called(theirs), Called(ours), told, kinds),
    }


def naflex() -> Row:
    """Return the row of SigLIP 2, a model without rotations of its own.

    Images are compared alone and in a batch. The entry "padding" is that of the smaller image.
    """
    library, kind = importlib.import_module("transformers"), "Siglip2VisionModel"
    config = small(library.Siglip2VisionConfig, {"num_patches": 16})
    theirs = build(getattr(library, kind), config)
    assert theirs is not None
    ours = copy.deepcopy(theirs)
    exchange(ours, [kind])
    pixels, shapes, real = torch.randn(2, 12, 48), torch.tensor([[3, 4], [2, 5]]), torch.ones(2, 12)
    real[1, 10:] = 0
    given = {"pixel_values": pixels, "pixel_attention_mask": real, "spatial_shapes": shapes}
    both = ours(**given).last_hidden_state

    def alone() -> list[float]:
        found = []
        for at, length in ((0, 12), (1, 10)):
            told = {n: x[at : at + 1] if x is shapes else x[at : at + 1, :length]
                    for n, x in given.items()}  # fmt: skip
            found.append(far(ours(**told).last_hidden_state, both[at : at + 1, :length]))
        return found

    whole, padded = alone()
    graph = one_graph(theirs, ours, given)
    quicken(ours)
    if min(alone()) < MOVED:
        raise ValueError("outputs must change with the frequencies, got almost no change")
    return {
        "model": kind, "kinds": [kind], "difference": whole, "padding": padded, "graph": graph,
    }  # fmt: skip


def far_away() -> dict[str, float]:
    """Return the difference of a Llama by the first position of its text.

    The original Llama computes angles in float32.
    """
    library = importlib.import_module("transformers")
    theirs = build(library.LlamaForCausalLM, small(library.LlamaConfig, {}))
    assert theirs is not None
    ours, found = copy.deepcopy(theirs), {}
    exchange(ours, ["LlamaRotaryEmbedding"])
    for first in (0, 1000, 100_000):
        told = {"position_ids": torch.arange(first, first + 20).expand(2, -1)}
        found[str(first)] = far(ours(tokens(), **told), theirs(tokens(), **told))
    return found


def works_with(model: nn.Module, x: Tensor) -> bool:
    """Return whether a model of timm accepts an image."""
    return not isinstance(attempt(lambda: model(x)), Exception)


class Called(nn.Module):
    """A model of timm whose argument has the name ``x``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        """Return the outputs of the model."""
        return self.model(x)


@torch.no_grad()
def main() -> None:
    """Measure all families, or those named on the command line, and write the record of all."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    importlib.import_module("transformers").logging.set_verbosity_error()
    named = sys.argv[1:]
    rows: dict[str, Row] = read_record(RECORD)["data"]["rows"] if named else {}

    def stop(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGPROF, stop)
    jobs: list[tuple[str, str, list[str], Callable[[], Row]]] = [
        ("transformers", family, kinds, lambda f=family, m=module, k=kinds: measure(f, m, k))  # type: ignore
        for family, module, kinds in families()
    ]
    jobs.append(("transformers", "siglip2 NaFlex", [], naflex))
    jobs += [("timm", f, [], lambda n=n: tower(n)) for f, n in TOWERS.items()]  # type: ignore
    for library, family, kinds, run in jobs:
        if named and family not in named:
            continue
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        row: Row = {}
        began = time.perf_counter()
        try:
            row = run()
        except TooLong:
            row = {"error": f"took more than {SECONDS} seconds"}
        except Exception as error:
            row = {"error": f"{type(error).__name__}: {error}"[:200]}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        kinds = row.pop("kinds", kinds)
        row |= {
            "kinds": kinds,
            "lines": max(map(lines, kinds), default=0),
            "reason": REASONS.get(family),
            "seconds": round(time.perf_counter() - began, 1),
        }
        rows[f"{library}: {family}"] = row
        print(f"{family:28}", {k: v for k, v in row.items() if v not in (None, [])}, flush=True)
    names = ("transformers", "timm")
    write_record(
        RECORD,
        command="python -m benchmarks.released",
        seeds=[0],
        wall_s=sum(row["seconds"] for row in rows.values()),
        data={
            "libraries": {n: importlib.import_module(n).__version__ for n in names},
            "far": far_away(),
            "rows": dict(sorted(rows.items())),
        },
        source=Path(__file__),
    )


if __name__ == "__main__":
    allow_every_letter()
    main()
