"""Time the product with a circulant matrix, dense and by the fast Fourier transform.

    python results/circulant_speed.py      # writes results/circulant_speed.json
    python results/circulant_speed.py --seeds 1 --steps 3 --output /tmp/try.json

Two million numbers in float32, as vectors of d channels, times a d x d matrix: as a dense product,
and as x -> irfft(rfft(r) * rfft(s x)), forward alone and with the gradient of x, the latter also
with autograd's own derivative of the transforms. All forms take turns within a round, on one
thread; a "seed" is a repetition of the whole, its number the median of its rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from lab.train.study import Study
from stringlib.algebra import circulant, circular_convolution

SIZES = (32, 64, 128, 192, 256, 512, 1024)
NUMBERS = 2_000_000
FORMS = ("dense", "fft", "dense, gradient", "fft, gradient", "autograd, gradient")


def forms(d: int, seed: int) -> dict[str, Callable[[], Tensor]]:
    """Return one call for each of ``FORMS``: it returns the product, or the gradient of x."""
    generator = torch.Generator().manual_seed(seed)
    x, g = torch.randn(2, 8, NUMBERS // (8 * d), d, generator=generator)
    r, s = torch.randn(2, d, generator=generator).unbind()
    s, x = s.sign(), x.requires_grad_()
    matrix, spectrum = circulant(r) * s, torch.fft.rfft(r)

    products: dict[str, Callable[[], Tensor]] = {
        "dense": lambda: x @ matrix.mT,
        "fft": lambda: circular_convolution(x * s, spectrum),
        "autograd": lambda: torch.fft.irfft(torch.fft.rfft(x * s) * spectrum, n=d),
    }

    def call(form: str) -> Tensor:
        name, _, gradient = form.partition(", ")
        with torch.set_grad_enabled(bool(gradient)):
            y = products[name]()
            return torch.autograd.grad(y, x, g)[0] if gradient else y

    return {form: lambda form=form: call(form) for form in FORMS}


def run(seed: int, steps: int, d: int) -> dict[str, dict[str, float]]:
    """Return the milliseconds of each form, the median of the rounds."""
    calls = forms(d, seed)
    times: dict[str, list[float]] = {form: [] for form in calls}
    for _ in range(steps):
        for form, call in calls.items():
            start = time.perf_counter()
            call()
            times[form].append(time.perf_counter() - start)
    return {"ms": {f: round(1e3 * statistics.median(taken), 3) for f, taken in times.items()}}


CELLS = {f"d = {d}": {"d": d} for d in SIZES}
STUDY = Study(
    __file__,
    __doc__,
    CELLS,
    run,
    steps=9,
    steps_are="rounds of each form",
    jobs=1,
    beside={"numbers": NUMBERS},
)


if __name__ == "__main__":
    STUDY.main()
