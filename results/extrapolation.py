"""Train with short sequences, then read up to sixteen times as much: which encoding survives?

    python results/extrapolation.py      # writes results/extrapolation.json
    python results/extrapolation.py --seeds 1 --steps 20 --only 'needle*' --output /tmp/try.json

``text`` is byte after byte of a manual, ``needle`` a question about eight tokens that may stand
anywhere. Both are trained at 64 tokens. One trained RoPE model is tested as it is and with three
scalings of its frequencies; on text also after a few more steps at the longest length, with and
without interpolation. Nothing else is trained again.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lab.tasks import Task, make_task
from lab.tasks.task import IGNORE
from lab.train import Settings, fit
from lab.train.checkpoint import Checkpoint
from lab.train.study import Study
from stringlib import STRING, LanguageModel, MultiHeadAttention, RoPE
from stringlib.encoders.scaling import (
    ntk_aware,
    position_interpolation,
    yarn,
    yarn_attention_factor,
)

LENGTH, LENGTHS = 64, (64, 128, 256, 512, 1024)
EDGES = (0, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)  # of places in the longest window
LAST = 32  # bytes at the end of a window that are asked for at every length
FAST = 4  # turns from which YaRN leaves a pair alone: none makes its usual 32 in 64 tokens
STEPS, BATCH = 400, 32
TUNING = 100  # further steps at the longest length, when STEPS came before
METHODS: dict[str, dict[str, Any]] = {
    "rope": {"encoder": "rope"},
    "alibi": {"encoder": "alibi"},
    "kerple-log": {"encoder": "kerple-log"},
    "kerple-power": {"encoder": "kerple-power"},
    "t5": {"encoder": "t5"},
    "sinusoidal": {"encoder": "sinusoidal"},
    "none": {},
    "gla": {"attention": "elu", "weight": "gla"},
}
CELLS = {f"{task} {m}": {"task": task, "method": m} for task in ("text", "needle") for m in METHODS}


class Needle(Task):
    """Eight keys, each with a value, somewhere among filler; then a question for each key.

    A key and its value are one token, so that one layer can answer. Whoever attends by content
    alone answers at any distance.

    Args:
        length: Tokens of a sequence, the eight questions at its end included.
    """

    KEYS, VALUES, FILLERS = 8, 8, 16

    def __init__(self, length: int) -> None:
        self.length = length

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens and targets, ``(size, length)``; only the questions have a target."""
        told, fillers = self.KEYS * self.VALUES, self.FILLERS
        text = told + torch.randint(fillers, (size, self.length - self.KEYS), generator=generator)
        places = torch.rand(text.shape, generator=generator).argsort(-1)[:, : self.KEYS]
        values = torch.randint(self.VALUES, (size, self.KEYS), generator=generator)
        text.scatter_(1, places, torch.arange(self.KEYS) * self.VALUES + values)
        asked = torch.rand(size, self.KEYS, generator=generator).argsort(-1)
        tokens = torch.cat([text, told + fillers + asked], 1)
        targets = torch.full_like(tokens, IGNORE)
        targets[:, -self.KEYS :] = values.gather(1, asked)
        return tokens, targets

    def held_out(self) -> dict[str, Any]:
        """Return 64 sequences, the same every time."""
        return {"test": iter([self.batch(64, torch.Generator().manual_seed(10_000))])}

    def model(self, **options: Any) -> nn.Module:
        """Return one layer of attention, four heads of 16 channels."""
        vocab = self.KEYS * self.VALUES + self.FILLERS + self.KEYS
        sizes = {"dim": 64, "depth": 1, "heads": 4, "mlp": None, "tied": False}
        return LanguageModel(vocab, **{**sizes, **options})


def scaled(model: nn.Module, how: str, length: int) -> nn.Module:
    """Return a copy of a RoPE model whose frequencies are scaled from ``LENGTH`` to a length.

    Args:
        model: Trained with RoPE.
        how: ``"pi"``, ``"ntk"`` or ``"yarn"``; YaRN also sharpens the scores.
        length: Tokens it is to read.
    """
    scale = length / LENGTH
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "pi": lambda waves: position_interpolation(waves, scale),
        "ntk": lambda waves: ntk_aware(waves, scale),
        "yarn": lambda waves: yarn(waves, scale, LENGTH, fast=FAST),
    }
    model = copy.deepcopy(model)
    for layer in [m for m in model.modules() if isinstance(m, MultiHeadAttention)]:
        assert isinstance(layer.encoder, RoPE)
        layer.encoder = STRING(ways[how](layer.encoder.frequencies()))
        if how == "yarn":
            for part in (layer.to_q, layer.to_k):
                part.weight.data *= yarn_attention_factor(scale)
    return model


def always(model: nn.Module) -> Callable[[int], nn.Module]:
    """Return a function of a length that gives this model."""
    return lambda length: model


@torch.no_grad()
def bits(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return what each target costs, in bits, in the shape of the targets."""
    model.eval()
    size = max(1, 8192 // inputs.shape[-1])
    found = [
        nn.functional.cross_entropy(model(x).mT, y, reduction="none")
        for x, y in zip(inputs.split(size), targets.split(size), strict=True)
    ]
    model.train()
    return torch.cat(found) / math.log(2)


def by_place(costs: Tensor) -> list[float]:
    """Return the mean over the places between two ``EDGES``, for the windows' costs."""
    return [round(costs[:, a:b].mean().item(), 4) for a, b in itertools.pairwise(EDGES)]


def long_windows() -> tuple[Tensor, Tensor]:
    """Return bytes held out, ``(windows, LENGTHS[-1])``, and those that follow them."""
    task = make_task("text", test_lengths=LENGTHS[-1:])
    inputs, targets = zip(*task.held_out()[str(LENGTHS[-1])], strict=True)
    return torch.cat(inputs), torch.cat(targets)


def sliding(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the costs when no byte sees more than ``LENGTH``: windows that are ``LAST`` apart."""
    start = torch.arange(0, inputs.shape[-1] - LENGTH + 1, LAST)[:, None] + torch.arange(LENGTH)
    costs = bits(model, inputs[:, start].flatten(0, 1), targets[:, start].flatten(0, 1))
    costs = costs.unflatten(0, (len(inputs), -1))
    return torch.cat([costs[:, 0, :-LAST], costs[:, :, -LAST:].flatten(1)], 1)


def read_text(models: Callable[[int], nn.Module]) -> dict[str, list[float]]:
    """Return bits per byte: of the same bytes with ever more before them, and by place.

    Args:
        models: The model to use at a length.
    """
    inputs, targets = long_windows()
    whole = bits(models(LENGTHS[-1]), inputs, targets)
    ends = [bits(models(n), inputs[:, -n:], targets[:, -n:]) for n in LENGTHS[:-1]]
    return {
        "lengths": [round(c[:, -LAST:].mean().item(), 4) for c in [*ends, whole]],
        "places": by_place(whole),
    }


@torch.no_grad()
def read_needle(models: Callable[[int], nn.Module]) -> dict[str, Any]:
    """Return the accuracy at each length and, at the longest, right answers by distance.

    Args:
        models: The model to use at a length.
    """
    accuracy = []
    for n in LENGTHS:
        task = Needle(n)
        ((tokens, targets),) = task.held_out()["test"]
        asked = targets != IGNORE
        model = models(n).eval()
        found = torch.cat([model(x)[:, -task.KEYS :].argmax(-1) for x in tokens.split(8)])
        right = (found == targets[asked].view_as(found)).double()
        accuracy.append(round(right.mean().item(), 4))
    said = tokens[:, : -task.KEYS]
    keys = tokens[:, -task.KEYS :] - (task.KEYS * task.VALUES + task.FILLERS)
    place = (said[:, None] // task.VALUES == keys[..., None]).double().argmax(-1)
    away = torch.arange(LENGTHS[-1] - task.KEYS, LENGTHS[-1]) - place
    bins = torch.bucketize(away, torch.tensor(LENGTHS[:-1]), right=True)
    shares = [round(right[bins == b].mean().item(), 4) for b in range(len(LENGTHS))]
    return {"lengths": accuracy, "distances": shares}


def tuned(model: nn.Module, seed: int, steps: int) -> nn.Module:
    """Return a copy after further steps with windows of the longest length, as many bytes each."""
    model, longest = copy.deepcopy(model), LENGTHS[-1]
    task = make_task("text", length=longest, windows=1)
    size = BATCH * LENGTH // longest
    fit(model, task, Settings(steps, size, rate=1e-3, warmup=steps // 10, seed=1000 + seed))
    return model


def train(task: str, method: str, seed: int, steps: int, **told: Any) -> tuple[nn.Module, Any]:
    """Return a model trained at ``LENGTH``, and the history of its training.

    Args:
        task: ``"text"`` or ``"needle"``.
        method: One of ``METHODS``.
        seed: Of the weights and the batches.
        steps: Batches of 32 sequences.
        **told: For the training loop.
    """
    torch.manual_seed(seed)
    what = Needle(LENGTH) if task == "needle" else make_task("text", length=LENGTH, windows=1)
    model = what.model(**{"heads": 4, **METHODS[method]})
    settings = Settings(steps, BATCH, rate=5e-3, warmup=steps // 10, seed=seed)
    return model, fit(model, what, settings, **told)


def run(
    seed: int, steps: int, task: str, method: str, keep: Checkpoint | None = None
) -> dict[str, Any]:
    """Train one model; return its loss on the way and what it reads at each length.

    On text ``window`` is what it costs to read the same long windows with ``LENGTH`` at a time.
    """
    model, history = train(task, method, seed, steps, keep=keep)
    found: dict[str, Any] = {"losses": [round(x, 4) for x in history.losses]}
    models: dict[str, Callable[[int], nn.Module]] = {method: always(model)}
    if method == "rope":
        models |= {how: partial(scaled, model, how) for how in ("pi", "ntk", "yarn")}
    if task == "needle":
        return found | {"read": {name: read_needle(one) for name, one in models.items()}}
    if method == "rope":
        more = max(1, TUNING * steps // STEPS)
        for name, longer in (("rope tuned", model), ("pi tuned", scaled(model, "pi", LENGTHS[-1]))):
            models[name] = always(tuned(longer, seed, more))
    found["window"] = by_place(sliding(model, *long_windows()))
    return found | {"read": {name: read_text(one) for name, one in models.items()}}


STUDY = Study(__file__, __doc__, CELLS, run, steps=STEPS)


if __name__ == "__main__":
    STUDY.main()
