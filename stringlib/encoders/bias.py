r"""The relative biases ALiBi, T5 and KERPLE.

They depend only on the absolute distance, :math:`b(\Delta) = b(-\Delta)`, except for
:class:`T5Bias`, which has separate buckets for keys after the query. No bias hides later keys: that
is done by the causal mask of attention.
"""

from __future__ import annotations

from bisect import bisect_left

import torch
from torch import Tensor, nn

from stringlib.by_name import by_name
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.precision import at_least_float32, widest
from stringlib.spec import Reals, checked


class ALiBi(RelativeBias):
    r"""Fixed linear biases, :math:`b(\Delta) = -m_h |\Delta|`, equation :eq:`eq-bias-alibi`.

    Nothing is learned and nothing is in the ``state_dict``.

    Args:
        heads: Number of heads :math:`H`. For a power of two the slopes are
            :math:`m_h = 2^{-8h/H}, 1 \le h \le H`. Otherwise the slopes of the largest power of
            two below H come first, then every other slope of twice that power, steepest first.

    Attributes:
        slopes: :math:`m_h`, ``(heads,)``.

    Source:
        Press et al. 2022, section 3; the rule for other numbers of heads is in their code.
    """

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__(heads)
        self.register_buffer("slopes", torch.empty(self.heads), persistent=False)
        self._refill()

    @checked
    def at(self, distances: Reals[Tensor, "n"]) -> Tensor:
        """Return the bias at each distance, ``(heads, n)``."""
        slopes = self.slopes.to(at_least_float32(self.slopes.dtype))
        return (-slopes[:, None] * distances.abs().to(slopes.dtype)).to(self.slopes.dtype)

    def _refill(self) -> None:
        power = 1 << (self.heads.bit_length() - 1)
        slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
        slopes += [2 ** (-4 * h / power) for h in range(1, 2 * (self.heads - power), 2)]
        self.slopes.copy_(torch.tensor(slopes, dtype=widest(self.slopes.device)))


class T5Bias(RelativeBias):
    r"""One learned number for each bucket of distances, equation :eq:`eq-bias-t5`.

    Half of a side's buckets hold one distance each, the others intervals that grow
    geometrically; all distances from ``max_distance`` on share the last one. The boundaries are
    those of T5's formula, in exact arithmetic.

    Args:
        heads: Number of heads.
        num_buckets: Number of buckets. If ``bidirectional``, the first half is for keys up to the
            query, the second half for keys after it; the first bucket of the second half, for
            distance 0, is never used.
        max_distance: Where the last bucket begins, at the latest.
        bidirectional: Whether keys after the query have buckets of their own. If not, they all
            share that of distance 0, as is right under a causal mask.

    Attributes:
        weight: ``(num_buckets, heads)``. Starts normal with a standard deviation of 0.02.

    Raises:
        ValueError: If there are fewer than two buckets a side, an odd number for two sides, or
            ``max_distance`` lies among the distances with a bucket of their own.

    Source:
        Raffel et al. 2020, section 2.1; the formula is in their code.
    """

    boundaries: Tensor

    @by_name("num_buckets", "max_distance", "bidirectional")
    @checked
    def __init__(
        self,
        heads: int,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
    ) -> None:
        super().__init__(heads)
        sides = 2 if bidirectional else 1
        if num_buckets < 2 * sides or num_buckets % sides:
            even = " and even, for two sides" if bidirectional else ""
            raise ValueError(f"num_buckets must be at least {2 * sides}{even}, got {num_buckets}")
        self.num_buckets, self.bidirectional = int(num_buckets), bidirectional
        self._side = self.num_buckets // sides
        if max_distance <= self._side // 2:
            raise ValueError(
                f"max_distance must be at least {self._side // 2 + 1}, got {max_distance}"
            )
        self.max_distance = int(max_distance)
        self.weight = nn.Parameter(torch.empty(self.num_buckets, self.heads))
        whole = torch.empty(self._side - 1, dtype=torch.int64)
        self.register_buffer("boundaries", whole, persistent=False)
        self._refill()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the numbers anew."""
        nn.init.normal_(self.weight, std=0.02)

    @checked
    def buckets(self, distances: Reals[Tensor, "..."]) -> Tensor:
        """Return the bucket of each distance, query less key: int64, of the same shape."""
        if not self.bidirectional:
            return torch.bucketize(distances.clamp(min=0), self.boundaries, right=True)
        near = torch.bucketize(distances.abs(), self.boundaries, right=True)
        return near + self._side * (distances < 0)

    @checked
    def at(self, distances: Reals[Tensor, "n"]) -> Tensor:
        """Return the bias at each distance, ``(heads, n)``."""
        return nn.functional.embedding(self.buckets(distances), self.weight).mT

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return (
            f"heads={self.heads}, num_buckets={self.num_buckets}, "
            f"max_distance={self.max_distance}, bidirectional={self.bidirectional}"
        )

    def _refill(self) -> None:
        """Write the smallest distance of each bucket but the first."""
        exact, far = self._side // 2, self._side - self._side // 2

        def first(m: int) -> int:
            """Return the first n with (n / exact)^far >= (max_distance / exact)^m."""
            least = self.max_distance**m * exact**far
            return bisect_left(range(self.max_distance), least, key=lambda n: n**far * exact**m)

        grown = [first(m) for m in range(far)]
        self.boundaries.copy_(torch.tensor([*range(1, exact), *grown]))


class KerpleLog(RelativeBias):
    r"""Learned logarithmic biases, :math:`-r_1 \log(1 + r_2|\Delta|)`, :eq:`eq-bias-kerple`.

    Args:
        heads: Number of heads, each with its own :math:`r_1, r_2 > 0`.

    Attributes:
        log_r1: Logarithm of :math:`r_1`, ``(heads,)``: positive whatever is learned. Starts with
            :math:`r_1` uniform in (0, 2), at least 0.01.
        log_r2: Logarithm of :math:`r_2`, ``(heads,)``. Starts with :math:`r_2` uniform in (0, 1),
            at least 0.01.

    Source:
        Chi et al. 2022, the logarithmic variant; the initial state is that of their code, which
        clamps the numbers at 0.01 instead of learning logarithms.
    """

    def __init__(self, heads: int) -> None:
        super().__init__(heads)
        self.log_r1 = nn.Parameter(torch.empty(self.heads))
        self.log_r2 = nn.Parameter(torch.empty(self.heads))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the numbers anew."""
        self.log_r1.uniform_(0, 2).clamp_(min=SMALLEST).log_()
        self.log_r2.uniform_(0, 1).clamp_(min=SMALLEST).log_()

    @property
    def r1(self) -> Tensor:
        """The factor, ``(heads,)``, float32 or better."""
        return self.log_r1.to(at_least_float32(self.log_r1.dtype)).exp()

    @property
    def r2(self) -> Tensor:
        """The inverse of the distance at which decay sets in, ``(heads,)``, float32 or better."""
        return self.log_r2.to(at_least_float32(self.log_r2.dtype)).exp()

    @checked
    def at(self, distances: Reals[Tensor, "n"]) -> Tensor:
        """Return the bias at each distance, ``(heads, n)``."""
        r1, r2 = self.r1[:, None], self.r2[:, None]
        return (-r1 * (r2 * distances.abs().to(r2.dtype)).log1p()).to(self.log_r1.dtype)


class KerplePower(RelativeBias):
    r"""Learned power biases, :math:`b(\Delta) = -r_1 |\Delta|^{r_2}`, :eq:`eq-bias-kerple`.

    Args:
        heads: Number of heads, each with its own :math:`r_1 > 0` and :math:`0 < r_2 < 2`.

    Attributes:
        log_r1: Logarithm of :math:`r_1`, ``(heads,)``: positive whatever is learned. Starts with
            :math:`r_1` uniform in (0, 1), at least 0.01.
        logit_r2: ``(heads,)``, :math:`r_2 = 2/(1 + e^{-x})`. Starts with :math:`r_2` uniform in
            (0, 2), at least 0.01 away from both ends.

    Source:
        Chi et al. 2022, the power variant; the initial state is that of their code, which
        clamps the numbers to [0.01, 2] instead.
    """

    def __init__(self, heads: int) -> None:
        super().__init__(heads)
        self.log_r1 = nn.Parameter(torch.empty(self.heads))
        self.logit_r2 = nn.Parameter(torch.empty(self.heads))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the numbers anew."""
        self.log_r1.uniform_(0, 1).clamp_(min=SMALLEST).log_()
        self.logit_r2.uniform_(0, 1).clamp_(SMALLEST / 2, 1 - SMALLEST / 2).logit_()

    @property
    def r1(self) -> Tensor:
        """The factor, ``(heads,)``, float32 or better."""
        return self.log_r1.to(at_least_float32(self.log_r1.dtype)).exp()

    @property
    def r2(self) -> Tensor:
        """The exponent, ``(heads,)``, float32 or better."""
        return 2 * self.logit_r2.to(at_least_float32(self.logit_r2.dtype)).sigmoid()

    @checked
    def at(self, distances: Reals[Tensor, "n"]) -> Tensor:
        """Return the bias at each distance, ``(heads, n)``."""
        r1, r2 = self.r1[:, None], self.r2[:, None]
        far = distances.abs().to(r2.dtype)
        # 0^r is 0 for every r > 0, but its second derivative in r would be 0 times infinity
        powers = torch.where(far > 0, far, 1).pow(r2)
        return (-r1 * torch.where(far > 0, powers, 0)).to(self.log_r1.dtype)


SMALLEST = 0.01
"""No learned number of KERPLE starts below this."""
