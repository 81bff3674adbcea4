"""The options of ``python -m lab.train``."""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lab.tasks import TASKS
from lab.train.cells import OWN, Cell, axes, pairs, read_cells
from lab.train.hardware import PRECISIONS
from lab.train.runner import count, make_runs_parser
from lab.train.settings import Settings

ABOUT = """Train on one of the book's tasks, with several seeds, and compare methods.

If an option is a list of names, joined by commas, the command trains every combination with every
seed. To train only certain combinations, describe each one with --cell. At the end, the command
prints a table of means, differences from the baseline (paired by seed) and 95 % intervals. The
folder then contains table.md, plot.png, plot.svg, record.json, and for each run its parameters
(checkpoint.pt) and metrics.jsonl.

If --rate is a list, the command chooses a learning rate for each method. Each rate is tried with
the first seed and scored on the first test set of the task's validation split, which consists of
training data that are held out, or of new draws. The best rate is used for all seeds. The final
test sets are never used for this choice.

If a command is stopped, run it again to continue. Finished runs are not repeated."""

EXAMPLES = """examples:
  # five seeds of one method
  python -m lab.train recall --attention favor-circulant --seeds 5 --steps 400
  # a layer that can solve the task, and one that cannot
  python -m lab.train recall --shift off,on --rate 1e-2 --steps 400 --seeds 3
  # three methods, on 16 pairs, with a token shift
  python -m lab.train recall --attention softmax,relu,favor --shift on \\
      --task-option pairs=16 --seeds 5
  # two encoders of a vision transformer
  python -m lab.train moved-digits --encoder axial,circulant --penalty 1e-6
  # two cells, each with the best of three learning rates, two runs at a time
  python -m lab.train recall --cell "plain: attention=elu" \\
      --cell "decay: attention=elu weight=ssd" --rate 1e-3,3e-3,1e-2 --seeds 5 --jobs 2
  # your own encoder, which my_module registers: ENCODERS["mine"] = MyEncoder
  python -m lab.train text --import my_module --encoder rope,mine --seeds 3
  # a language model on two GPUs, in bfloat16
  python -m lab.train text --model-option size=small --encoder rope --steps 20000 \\
      --warmup 500 --accelerator cuda --devices 2 --precision bf16-mixed
  # on two machines: run on both, with NODE_RANK=0 or 1 and the same MASTER_ADDR and MASTER_PORT
  python -m lab.train text --accelerator cuda --devices 8 --nodes 2 --folder /shared/run

tasks: {tasks}
attention: {attention}
encoders: {encoder}
gates: {gate}
weights: {weight}"""

SETTINGS_HELP = {
    "steps": "number of updates of each run",
    "batch_size": "examples per update, over all processes",
    "rate": "largest learning rate, or several to choose from, such as 1e-3,3e-3",
    "warmup": "updates until the learning rate is largest; then it falls as half a cosine",
    "weight_decay": "weight decay of AdamW, for matrices only",
    "clip": "largest norm of the gradient, or none for no limit",
    "penalty": "λ of the penalty λ Σ c² on the coefficients of Circulant-STRING, such as 1e-6",
    "encoder_rate": "learning rate of rotary encoders, if it differs from --rate",
    "log_every": "updates between two lines of metrics",
    "checkpoint_every": "updates between two checkpoints",
    "evaluate_every": "updates between two evaluations; by default only at the end",
}


@dataclass(frozen=True)
class Options:
    """The options of a command line.

    Attributes:
        task: Name of the task.
        task_options: Options of the task.
        imports: Modules that are imported first and may add names.
        cells: Name → each method that is compared.
        baseline: Name of the method with which the others are compared.
        seeds: The seeds.
        jobs: Number of runs at a time.
        folder: Folder for the results.
        fresh: Whether to start from the beginning even if there are checkpoints.
        progress: Whether to show progress bars. None means only in a terminal.
        hardware: Arguments of :func:`~lab.train.hardware.make_fabric`.
    """

    task: str
    task_options: dict[str, Any]
    imports: tuple[str, ...]
    cells: dict[str, Cell]
    baseline: str
    seeds: range
    jobs: int
    folder: Path
    fresh: bool
    progress: bool | None
    hardware: dict[str, Any]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with the names that are registered now."""
    names = {axis: ", ".join(known) for axis, known in axes().items()}
    parser = argparse.ArgumentParser(
        "python -m lab.train",
        usage="python -m lab.train TASK [options]",
        description=ABOUT,
        epilog=EXAMPLES.format(tasks=", ".join(TASKS), **names),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        parents=[_first_parser(), make_runs_parser(seeds=1, jobs=1)],
    )
    add = parser.add_argument
    add("task", help="name of the task, see below")
    add(
        "--task-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the task, such as pairs=16; repeatable",
    )
    model = parser.add_argument_group("model (defaults are those of the task)")
    for axis in names:
        model.add_argument(f"--{axis}", metavar="NAME,…", help=_axis_help(axis))
    for name, text in (
        ("dim", "number of channels of a token"),
        ("depth", "number of blocks"),
        ("heads", "number of heads of a block"),
        ("features", "number of random features of FAVOR+"),
    ):
        model.add_argument(f"--{name}", type=int, metavar="N", help=text)
    model.add_argument(
        "--model-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the model, such as horizon=64; repeatable",
    )
    model.add_argument(
        "--cell",
        action="append",
        default=[],
        metavar="TEXT",
        help='one method, "NAME: OPTION=VALUE …", with options of the model, and optionally '
        f"{', '.join(OWN)}; repeatable",
    )
    model.add_argument(
        "--cells",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="TOML file with a table for each method; repeatable",
    )
    model.add_argument(
        "--baseline", metavar="NAME", help="method with which the others are compared (the first)"
    )
    training = parser.add_argument_group("training")
    training.add_argument(
        "--first-seed", type=int, default=0, metavar="N", help="the first seed (0)"
    )
    for field in fields(Settings):
        if field.name in SETTINGS_HELP:
            kind: Callable[[str], Any] = int if "int" in str(field.type) else _number_or_none
            kind = str if field.name == "rate" else kind
            text = f"{SETTINGS_HELP[field.name]} ({field.default})".replace(" (None)", "")
            flag = "--" + field.name.replace("_", "-")
            training.add_argument(flag, type=kind, default=field.default, metavar="N", help=text)
    files = parser.add_argument_group("files")
    files.add_argument("--folder", type=Path, help="folder for the results (runs/TASK)")
    files.add_argument(
        "--fresh", action="store_true", help="start from the beginning instead of continuing"
    )
    files.add_argument("--quiet", action="store_true", help="no progress bar")
    hardware = parser.add_argument_group("hardware")
    hardware.add_argument(
        "--accelerator", default="auto", help="cpu, cuda, mps (STRINGLIB_DEVICE, or the best)"
    )
    each = "number of processes per machine for each run (1)"
    hardware.add_argument("--devices", type=count, default=1, help=each)
    hardware.add_argument("--nodes", type=count, default=1, help="number of machines (1)")
    hardware.add_argument("--precision", default="32-true", help=", ".join(PRECISIONS))
    return parser


def read_options(argv: Sequence[str] | None = None) -> Options:
    """Return the options of a command line. An error ends the process with exit code 2."""
    try:  # first of all: what follows, the help included, knows the names that they add
        import_modules(_first_parser().parse_known_args(argv)[0].imports)
    except (TypeError, ValueError) as error:
        make_parser().error(str(error))
    parser = make_parser()
    args = parser.parse_args(argv)
    try:
        return _options(args)
    except (TypeError, ValueError) as error:
        parser.error(str(error))


def import_modules(names: Sequence[str]) -> None:
    """Import modules, from the working directory too.

    Raises:
        ValueError: If there is no such module, or it cannot import something in its turn.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ValueError(
                f"--import must name a module that can be imported in {here}, got {name!r}: {error}"
            ) from None


def _first_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(
        "--import",
        action="append",
        default=[],
        dest="imports",
        metavar="MODULE",
        help="your module, which adds names to ENCODERS, FEATURES, WEIGHTS, BIASES or TASKS; "
        "repeatable",
    )
    return parser


def _options(args: argparse.Namespace) -> Options:
    if args.task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {args.task!r}")
    hardware = {k: getattr(args, k) for k in ("accelerator", "devices", "nodes", "precision")}
    if args.jobs > 1:
        if args.accelerator not in ("auto", "cpu") or args.devices * args.nodes > 1:
            raise ValueError(
                "--jobs must be 1 if there are several --devices or --nodes, or if --accelerator "
                f"is neither auto nor cpu, got {args.jobs}"
            )
        hardware["accelerator"] = "cpu"
    task_options = pairs("--task-option", args.task_option)
    _require_known(args.task, task_options)
    shared = pairs("--model-option", args.model_option)
    own = [name for name in shared if name in (*axes(), "dim", "depth", "heads")]
    if own:
        raise ValueError(f"--model-option must not contain {own[0]}. Pass --{own[0]} instead.")
    sizes = {"dim": args.dim, "depth": args.depth, "heads": args.heads}
    shared |= {name: size for name, size in sizes.items() if size is not None}
    named = {f.name: getattr(args, f.name) for f in fields(Settings) if hasattr(args, f.name)}
    cells = read_cells(args, shared, {**named, "seed": args.first_seed})
    if args.baseline not in (None, *cells):
        raise ValueError(f"--baseline must be one of {', '.join(cells)}, got {args.baseline!r}")
    return Options(
        task=args.task,
        task_options=task_options,
        imports=tuple(args.imports),
        cells=cells,
        baseline=args.baseline or next(iter(cells)),
        seeds=range(args.first_seed, args.first_seed + args.seeds),
        jobs=args.jobs,
        folder=args.folder or Path("runs") / args.task,
        fresh=args.fresh,
        progress=False if args.quiet else None,
        hardware=hardware,
    )


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
        "attention": "softmax, or linear attention with these features (softmax)",
        "encoder": "position encoding",
        "gate": "output gate of attention",
        "weight": "position weight of linear attention",
        "shift": "whether each key is mixed with the key before it: on, off",
    }[axis]


def _number_or_none(text: str) -> float | None:
    return None if text == "none" else float(text)
