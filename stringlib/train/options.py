"""The options of ``python -m stringlib.train``."""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from stringlib.attention.gate import GATES
from stringlib.attention.registry import FEATURES, WEIGHTS
from stringlib.encoders.registry import BIASES, ENCODERS
from stringlib.tasks import TASKS
from stringlib.train.hardware import PRECISIONS
from stringlib.train.settings import Settings

AXES: dict[str, tuple[str, ...]] = {
    "attention": ("softmax", *FEATURES),
    "encoder": ("none", *ENCODERS, *BIASES, "sinusoidal", "learned"),
    "gate": ("none", *GATES),
    "weight": ("none", *WEIGHTS),
    "shift": ("off", "on"),
}
"""What can be compared → the names it has."""

MEANING: dict[str, Any] = {"none": None, "off": False, "on": True}

ABOUT = """Train on one of the book's tasks, with several seeds, and compare methods.

Several names, joined by commas, are compared: each combination is trained with each seed. At the
end there is a table with means and 95 % intervals, and in the folder: table.md, plot.png,
plot.svg, record.json, and for each run its parameters (checkpoint.pt) and metrics.jsonl.

Started again, a command goes on where it was stopped; runs that are over are not repeated."""

EXAMPLES = """examples:
  # five seeds of one method
  python -m stringlib.train recall --attention favor-circulant --seeds 5 --steps 400
  # three methods, on 16 pairs, with a token shift
  python -m stringlib.train recall --attention softmax,relu,favor --shift on \\
      --task-option pairs=16 --seeds 5
  # two encoders of a vision transformer
  python -m stringlib.train moved-digits --encoder axial,circulant --penalty 1e-6
  # a language model on two GPUs, in bfloat16
  python -m stringlib.train text --model-option size=small --encoder rope --steps 20000 \\
      --warmup 500 --accelerator cuda --devices 2 --precision bf16-mixed
  # on two machines: this on both, with NODE_RANK=0 or 1 and the same MASTER_ADDR and MASTER_PORT
  python -m stringlib.train text --accelerator cuda --devices 8 --nodes 2 --folder /shared/run

tasks: {tasks}
attention: {attention}
encoders: {encoder}
gates: {gate}
weights: {weight}"""

SETTINGS_HELP = {
    "steps": "updates of each run",
    "batch_size": "examples an update, over all processes",
    "rate": "largest learning rate",
    "warmup": "updates before the rate is at its largest; then it falls as half a cosine",
    "weight_decay": "of AdamW, on matrices alone",
    "clip": "largest norm of the gradient, or none",
    "penalty": "λ of λ Σ c² on the coefficients of Circulant-STRING, such as 1e-6",
    "encoder_rate": "learning rate of rotary encoders, if it is not --rate",
    "log_every": "updates between two lines of metrics",
    "checkpoint_every": "updates between two checkpoints",
    "evaluate_every": "updates between two evaluations, if not at the end alone",
}


@dataclass(frozen=True)
class Options:
    """What the command line asked for.

    Attributes:
        task: Name of the task.
        task_options: Its options.
        cells: Name of each method that is compared → options of its model.
        settings: Those of seed 0.
        seeds: How many seeds.
        folder: Where results go.
        fresh: Whether to start anew.
        progress: Whether to show progress bars; None for: in a terminal.
        hardware: Arguments of :func:`~stringlib.train.hardware.make_fabric`.
    """

    task: str
    task_options: dict[str, Any]
    cells: dict[str, dict[str, Any]]
    settings: Settings
    seeds: int
    folder: Path
    fresh: bool
    progress: bool | None
    hardware: dict[str, Any]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    names = {axis: ", ".join(known) for axis, known in AXES.items()}
    parser = argparse.ArgumentParser(
        "python -m stringlib.train",
        usage="python -m stringlib.train TASK [options]",
        description=ABOUT,
        epilog=EXAMPLES.format(tasks=", ".join(TASKS), **names),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("task", help="what to learn, see below")
    add(
        "--task-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="such as pairs=16; repeatable",
    )
    model = parser.add_argument_group("model (the task's own unless given)")
    for axis in AXES:
        default = "softmax" if axis == "attention" else None
        model.add_argument(f"--{axis}", default=default, metavar="NAME,…", help=_axis_help(axis))
    for name, text in (
        ("dim", "channels of a token"),
        ("depth", "blocks"),
        ("heads", "heads of a block"),
        ("features", "random features of FAVOR+"),
    ):
        model.add_argument(f"--{name}", type=int, metavar="N", help=text)
    model.add_argument(
        "--model-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="such as horizon=64; repeatable",
    )
    training = parser.add_argument_group("training")
    training.add_argument("--seeds", type=int, default=1, help="how many, from 0 (1)")
    for field in fields(Settings):
        if field.name in SETTINGS_HELP:
            kind = int if "int" in str(field.type) else _number_or_none
            text = f"{SETTINGS_HELP[field.name]} ({field.default})".replace(" (None)", "")
            flag = "--" + field.name.replace("_", "-")
            training.add_argument(flag, type=kind, default=field.default, metavar="N", help=text)
    files = parser.add_argument_group("files")
    files.add_argument("--folder", type=Path, help="where results go (runs/TASK)")
    files.add_argument("--fresh", action="store_true", help="start anew instead of going on")
    files.add_argument("--quiet", action="store_true", help="no progress bar")
    hardware = parser.add_argument_group("hardware")
    hardware.add_argument(
        "--accelerator", default="auto", help="cpu, cuda, mps (STRINGLIB_DEVICE, or the best)"
    )
    hardware.add_argument("--devices", type=int, default=1, help="processes a machine (1)")
    hardware.add_argument("--nodes", type=int, default=1, help="machines (1)")
    hardware.add_argument("--precision", default="32-true", help=", ".join(PRECISIONS))
    return parser


def read_options(argv: Sequence[str] | None = None) -> Options:
    """Return what the command line asks for; a bad one ends the process with code 2."""
    parser = make_parser()
    args = parser.parse_args(argv)
    try:
        return _options(args)
    except (TypeError, ValueError) as error:
        parser.error(str(error))


def _options(args: argparse.Namespace) -> Options:
    if args.task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {args.task!r}")
    if args.seeds < 1 or args.devices < 1 or args.nodes < 1:
        raise ValueError("--seeds, --devices and --nodes must be at least 1")
    task_options = _pairs("--task-option", args.task_option)
    _require_known(args.task, task_options)
    shared = _pairs("--model-option", args.model_option)
    own = [name for name in shared if name in (*AXES, "dim", "depth", "heads")]
    if own:
        raise ValueError(f"--model-option must be given as --{own[0]}, got {own[0]}")
    sizes = {"dim": args.dim, "depth": args.depth, "heads": args.heads}
    shared |= {name: size for name, size in sizes.items() if size is not None}
    named = {f.name: getattr(args, f.name) for f in fields(Settings) if hasattr(args, f.name)}
    return Options(
        task=args.task,
        task_options=task_options,
        cells=_cells(args, shared),
        settings=Settings(**named),
        seeds=args.seeds,
        folder=args.folder or Path("runs") / args.task,
        fresh=args.fresh,
        progress=False if args.quiet else None,
        hardware={k: getattr(args, k) for k in ("accelerator", "devices", "nodes", "precision")},
    )


def _cells(args: argparse.Namespace, shared: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return every combination of the names that were given, by a name of its own."""
    given = {}
    for axis, known in AXES.items():
        if getattr(args, axis) is not None:
            given[axis] = [name.strip() for name in getattr(args, axis).split(",")]
            bad = [name for name in given[axis] if name not in known]
            if bad:
                raise ValueError(f"--{axis} must name some of {', '.join(known)}, got {bad[0]!r}")
    drawn = [name for name in given["attention"] if name.startswith(("favor", "hyper"))]
    if args.features is not None and not drawn:
        raise ValueError(
            f"--features must go with an --attention that draws them, got {args.attention}"
        )
    cells = {}
    for combination in itertools.product(*given.values()):
        told = {a: MEANING.get(n, n) for a, n in zip(given, combination, strict=True)}
        if args.features is not None and told["attention"] in drawn:
            told["num_features"] = args.features
        words = [_word(axis, name) for axis, name in zip(given, combination, strict=True)]
        cells[" ".join(words)] = {**shared, **told}
    return cells


def _word(axis: str, name: str) -> str:
    """Return how a choice is called in a table."""
    if axis == "shift":
        return "shift" if name == "on" else "no-shift"
    return f"no-{axis}" if name == "none" else name


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return ``["pairs=16"]`` as ``{"pairs": 16}``; what is no Python value is a string."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"{flag} must be NAME=VALUE, got {text!r}")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def _require_known(task: str, options: dict[str, Any]) -> None:
    parameters = inspect.signature(TASKS[task]).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return  # handed on to a class that names what it does not know
    known = list(parameters)
    bad = [name for name in options if name not in known]
    if bad:
        raise ValueError(f"--task-option of {task} must be one of {', '.join(known)}, got {bad[0]}")


def _axis_help(axis: str) -> str:
    return {
        "attention": "softmax, or kernelised attention with these features (softmax)",
        "encoder": "how the model knows positions",
        "gate": "the gate behind attention",
        "weight": "the position weight of kernelised attention",
        "shift": "whether keys are mixed with those before them: on, off",
    }[axis]


def _number_or_none(text: str) -> float | None:
    return None if text == "none" else float(text)
