"""Measure what a state of m features gives back of n stored pairs, and what softmax costs.

    python results/linear_attention.py      # writes results/linear_attention.json
    python results/linear_attention.py --seeds 2 --steps 1 --output /tmp/try.json

Keys are normal vectors of 64 channels, and each query is one of the keys. Two measures for every
way to compare: the error of what comes back, ||A - I||^2 / n, and how often the right value has the
largest product with it once the mean of all values is taken away, for normal values of 64
channels. A second part times softmax and ReLU attention, with gradients, in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lab.theory.capacity import recall_error
from lab.train.study import Study
from stringlib import ELUFeatures, FavorFeatures, ReLUFeatures, linear_attention, softmax_attention
from stringlib.attention.features import FeatureMap

D, MANY = 64, 1024
PAIRS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
HEADS, ROUNDS = 4, 5


def attend(phi: FeatureMap, keys: Tensor) -> Tensor:
    """Return the weights of linear attention, from keys that ask for themselves."""
    # what is left out of a query's features cancels, what is left out of one key's would not
    scores = phi(keys[None])[0] @ phi(keys[None], is_query=False)[0].mT
    return scores / scores.sum(-1, keepdim=True)


def favor(m: int) -> Callable[[Tensor], Tensor]:
    """Return the weights of orthogonal random features, drawn anew at each call."""
    return lambda keys: attend(FavorFeatures(D, m).double(), keys / D**0.25)


def wide_relu(keys: Tensor) -> Tensor:
    """Return the weights of ReLU features of many random directions."""
    return attend(ReLUFeatures(), keys @ torch.randn(D, MANY, dtype=torch.float64))


def least_squares(keys: Tensor) -> Tensor:
    """Return the weights of the best state that ReLU features can read."""
    features = keys.relu()
    return features @ torch.linalg.pinv(features)


METHODS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda keys: (keys @ keys.mT / D**0.5).softmax(-1),
    "elu": lambda keys: attend(ELUFeatures(), keys),
    "relu": lambda keys: attend(ReLUFeatures(), keys),
    "relu-1024": wide_relu,
    "favor": favor(D),
    "favor-1024": favor(MANY),
    "signed": lambda keys: keys @ keys.mT / D,
    "least-squares": least_squares,
}


def decoded(weights: Tensor, values: Tensor) -> float:
    """Return how often the right value has the largest product, the mean of all taken away."""
    centred = values - values.mean(0)
    found = weights @ values - values.mean(0)
    return (found @ centred.mT).argmax(-1).eq(torch.arange(len(values))).double().mean().item()


def recall(method: str, pairs: int, seed: int, draws: int) -> tuple[float, float]:
    """Return the mean error and the mean share decoded, over some draws of keys."""
    torch.manual_seed(10_000 * seed + pairs)
    errors, shares = [], []
    for _ in range(draws):
        keys, values = torch.randn(2, pairs, D, dtype=torch.float64)
        weights = METHODS[method](keys)
        errors.append(recall_error(weights).item())
        shares.append(decoded(weights, values))
    return sum(errors) / draws, sum(shares) / draws


def one_pass(method: str, causal: bool, q: Tensor, k: Tensor, v: Tensor) -> float:
    """Return the milliseconds of one forward and backward pass."""
    start = time.perf_counter()
    if method == "softmax":
        out = softmax_attention(q, k, v, causal=causal)
    else:
        out = linear_attention(q.relu(), k.relu(), v, causal=causal)
    torch.autograd.grad(out.sum(), (q, k, v))
    return 1e3 * (time.perf_counter() - start)


def milliseconds(lengths: Sequence[int], rounds: int = ROUNDS) -> dict[str, list[list[float]]]:
    """Return the times of each method at each length, the methods in turns."""
    names = {f"{m}{'-causal' * c}": (m, c) for c in (False, True) for m in ("softmax", "relu")}
    times: dict[str, list[list[float]]] = {name: [] for name in names}
    for n in lengths:
        torch.manual_seed(0)
        data = [torch.randn(1, HEADS, n, D, requires_grad=True) for _ in range(3)]
        for row in times.values():
            row.append([])
        for turn in range(rounds + 1):
            for name, (method, causal) in names.items():
                spent = one_pass(method, causal, *data)
                if turn:  # the first round warms up
                    times[name][-1].append(round(spent, 3))
    return times


def run(seed: int, steps: int, method: str) -> dict[str, list[float]]:
    """Return error and share decoded for each number of pairs."""
    errors, shares = zip(*(recall(method, n, seed, steps) for n in PAIRS), strict=True)
    return {"error": [round(e, 6) for e in errors], "decoded": [round(s, 5) for s in shares]}


CELLS = {method: {"method": method} for method in METHODS}
STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    run,
    steps=4,
    seeds=10,
    steps_are="draws of keys",
    beside={"pairs": PAIRS, "lengths": LENGTHS, "milliseconds": lambda: milliseconds(LENGTHS)},
)


if __name__ == "__main__":
    STUDY.main()
