r"""The relative biases ALiBi, T5 and KERPLE.

The bias b of ALiBi and of KERPLE depends only on the absolute value of the distance Δ between a
query and a key, :math:`b(\Delta) = b(-\Delta)`. :class:`T5Bias` treats keys after the query
differently from keys before it. No bias masks the keys after the query; the causal mask of
attention does that.
"""

from __future__ import annotations

from bisect import bisect_left

import torch
from torch import Tensor, nn

from stringlib.by_name import by_name
from stringlib.encoders.relative_bias import RelativeBias
from stringlib.precision import at_least_float32, widen, widest
from stringlib.spec import Positions, checked


class ALiBi(RelativeBias):
    r"""Fixed biases :math:`-m_h |\Delta|` of the distance Δ, with a slope :math:`m_h` per head.

    See equation :eq:`eq-bias-alibi`. Among the biases that depend only on the distance, ALiBi is
    the only one for which the following always holds, :eq:`eq-path-alibi`. The factor
    :math:`e^{b(\Delta)}` from a key to a later query is the product of the factors from the key to
    a token in between and from this token to the query.

    The module has no learned parameters, and it adds nothing to the ``state_dict``.

    Args:
        heads: Number of heads :math:`H`. If H is a power of two, the slopes are
            :math:`m_h = 2^{-8h/H}, 1 \le h \le H`. Otherwise let p be the largest power of two
            below H. The first p slopes are those for p heads. The other slopes are the first,
            third, fifth, … slope for 2p heads.

    Attributes:
        slopes: The slopes :math:`m_h`, ``(heads,)``.

    Source:
        Press et al. 2022, section 3. The rule for other numbers of heads is in their code.
    """

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__(heads)
        self.register_buffer("slopes", torch.empty(self.heads), persistent=False)
        self.reset_non_persistent_buffers()

    @checked
    def at(self, distances: Positions[Tensor, "n"]) -> Tensor:
        """Return the bias at each distance, ``(heads, n)``."""
        slopes = self.slopes.to(at_least_float32(self.slopes.dtype))
        return (-slopes[:, None] * distances.to(slopes.dtype).abs()).to(self.slopes.dtype)

    def reset_non_persistent_buffers(self) -> None:
        """Compute the slopes again."""
        power = 1 << (self.heads.bit_length() - 1)
        slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
        slopes += [2 ** (-4 * h / power) for h in range(1, 2 * (self.heads - power), 2)]
        self.slopes.copy_(torch.tensor(slopes, dtype=widest(self.slopes.device)))


class T5Bias(RelativeBias):
    r"""Learned bias for each bucket of distances, equation :eq:`eq-bias-t5`.

    Half of the buckets (rounded down) contain one distance each: 0, 1, 2, … The other buckets
    contain intervals of distances, whose lengths grow geometrically. All distances of at least
    ``max_distance`` are in the last bucket. The boundaries are those of T5's formula, computed in
    integer arithmetic. If ``bidirectional``, each of the two directions has half of the buckets,
    divided in this way.

    Args:
        heads: Number of heads, each with its own biases.
        num_buckets: Number of buckets. If ``bidirectional``, the first half is for keys up to the
            query, the second half for keys after it. The first bucket of the second half, for
            distance 0, is never used. Default: 32.
        max_distance: Distances of at least this number are in the last bucket. The last bucket can
            also contain smaller distances. With the default arguments the last bucket begins at 91.
            Default: 128.
        bidirectional: If True (default), keys after the query have buckets of their own. If False,
            keys after the query are in the bucket of distance 0. Use False with a causal mask.

    Attributes:
        weight: The biases, ``(num_buckets, heads)``. Their initial values are normal with a
            standard deviation of 0.02.

    Raises:
        ValueError: If there are fewer than two buckets per direction, if ``num_buckets`` is odd
            for two directions, or if ``max_distance`` is at most half of the number of buckets per
            direction.

    Source:
        Raffel et al. 2020, section 2.1. The formula is in their code.
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
            even = "even and " if bidirectional else ""
            raise ValueError(
                f"num_buckets must be {even}at least {2 * sides} with "
                f"bidirectional={bidirectional}, got {num_buckets}"
            )
        self.num_buckets, self.bidirectional = int(num_buckets), bidirectional
        self._side = self.num_buckets // sides
        if max_distance <= self._side // 2:
            raise ValueError(
                f"max_distance must be at least {self._side // 2 + 1}, got {max_distance}. Each "
                f"distance below {self._side // 2} has a bucket of its own."
            )
        self.max_distance = int(max_distance)
        self.weight = nn.Parameter(torch.empty(self.num_buckets, self.heads))
        whole = torch.empty(self._side - 1, dtype=torch.int64)
        self.register_buffer("boundaries", whole, persistent=False)
        self.reset_non_persistent_buffers()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values for the biases."""
        nn.init.normal_(self.weight, std=0.02)

    @checked
    def buckets(self, distances: Positions[Tensor, "..."]) -> Tensor:
        """Return the bucket of each distance (query minus key), int64, in the given shape."""
        if not self.bidirectional:
            return torch.bucketize(distances.clamp(min=0), self.boundaries, right=True)
        near = torch.bucketize(widen(distances).abs(), self.boundaries, right=True)
        return near + self._side * (distances < 0)

    @checked
    def at(self, distances: Positions[Tensor, "n"]) -> Tensor:
        """Return the bias at each distance, ``(heads, n)``."""
        return nn.functional.embedding(self.buckets(distances), self.weight).mT

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return (
            f"heads={self.heads}, num_buckets={self.num_buckets}, "
            f"max_distance={self.max_distance}, bidirectional={self.bidirectional}"
        )

    def reset_non_persistent_buffers(self) -> None:
        """Set ``boundaries`` to the smallest distance of each bucket except the first."""
        exact, far = self._side // 2, self._side - self._side // 2

        def first(m: int) -> int:
            """Return the smallest n with (n / exact)^far >= (max_distance / exact)^m."""
            least = self.max_distance**m * exact**far
            return bisect_left(range(self.max_distance), least, key=lambda n: n**far * exact**m)

        grown = [first(m) for m in range(far)]
        self.boundaries.copy_(torch.tensor([*range(1, exact), *grown]))


class KerpleLog(RelativeBias):
    r"""Biases :math:`-r_1 \log(1 + r_2|\Delta|)` of the distance Δ, with learned numbers r₁ and r₂.

    See equation :eq:`eq-bias-kerple`. The logarithms of :math:`r_1` and :math:`r_2` are learned, so
    :math:`r_1` and :math:`r_2` are always positive.

    Args:
        heads: Number of heads, each with its own :math:`r_1, r_2 > 0`.

    Attributes:
        log_r1: Logarithm of :math:`r_1`, ``(heads,)``. Initially :math:`r_1` is uniform in (0, 2),
            but at least 0.01.
        log_r2: Logarithm of :math:`r_2`, ``(heads,)``. Initially :math:`r_2` is uniform in (0, 1),
            but at least 0.01.

    Source:
        Chi et al. 2022, the logarithmic variant. The initial values are those of their code, which
        learns :math:`r_1` and :math:`r_2` themselves and clamps them at 0.01.
    """

    def __init__(self, heads: int) -> None:
        super().__init__(heads)
        self.log_r1 = nn.Parameter(torch.empty(self.heads))
        self.log_r2 = nn.Parameter(torch.empty(self.heads))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new initial values for r₁ and r₂."""
        self.log_r1.uniform_(0, 2).clamp_(min=SMALLEST).log_()
        self.log_r2.uniform_(0, 1).clamp_(min=SMALLEST).log_()

    @property
    def r1(self) -> Tensor:
        """The factor :math:`r_1` of the logarithm, ``(heads,)``, in at least float32."""
        return self.log_r1.to(at_least_float32(self.log_r1.dtype)).exp()

    @property
    def r2(self) -> Tensor:
        """The factor :math:`r_2` of the distance, ``(heads,)``, in at least float32.

        Up to a distance of about :math:`1/r_2` the bias is nearly linear in the distance.
        """
        return self.log_r2.to(at_least_float32(self.log_r2.dtype)).exp()

    @checked
    def at(self, distances: Positions[Tensor, "n"]) -> Tensor:
        """Return the bias at each distance, ``(heads, n)``."""
        r1, r2 = self.r1[:, None], self.r2[:, None]
        return (-r1 * (r2 * distances.to(r2.dtype).abs()).log1p()).to(self.log_r1.dtype)


class KerplePower(RelativeBias):
    r"""Biases :math:`-r_1 |\Delta|^{r_2}` of the distance Δ, with learned numbers r₁ and r₂.

    See equation :eq:`eq-bias-kerple`.

    Args:
        heads: Number of heads, each with its own :math:`r_1 > 0` and :math:`0 < r_2 < 2`.

    Attributes:
        log_r1: Logarithm of :math:`r_1`, ``(heads,)``. Initially :math:`r_1` is uniform in (0, 1),
            but at least 0.01.
        logit_r2: The learned number x in :math:`r_2 = 2/(1 + e^{-x})`, ``(heads,)``. Initially
            :math:`r_2` is uniform in (0, 2), but at least 0.01 away from both ends.

    Source:
        Chi et al. 2022, the power variant. The initial values are those of their code, which
        learns :math:`r_1` and :math:`r_2` themselves and clamps them to [0.01, 2].
    """

    def __init__(self, heads: int) -> None:
        super().__init__(heads)
        self.log_r1 = nn.Parameter(torch.empty(self.heads))
        self.logit_r2 = nn.Parameter(torch.empty(self.heads))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new initial values for r₁ and r₂."""
        self.log_r1.uniform_(0, 1).clamp_(min=SMALLEST).log_()
        self.logit_r2.uniform_(0, 1).clamp_(SMALLEST / 2, 1 - SMALLEST / 2).logit_()

    @property
    def r1(self) -> Tensor:
        """The factor :math:`r_1` of the power, ``(heads,)``, in at least float32."""
        return self.log_r1.to(at_least_float32(self.log_r1.dtype)).exp()

    @property
    def r2(self) -> Tensor:
        """The exponent :math:`r_2` of the distance, ``(heads,)``, in at least float32."""
        return 2 * self.logit_r2.to(at_least_float32(self.logit_r2.dtype)).sigmoid()

    @checked
    def at(self, distances: Positions[Tensor, "n"]) -> Tensor:
        """Return the bias at each distance, ``(heads, n)``."""
        r1, r2 = self.r1[:, None], self.r2[:, None]
        far = distances.to(r2.dtype).abs()
        # 0^r is 0 for every r > 0, but its second derivative in r would be computed as 0 · ∞
        powers = torch.where(far > 0, far, 1).pow(r2)
        return (-r1 * torch.where(far > 0, powers, 0)).to(self.log_r1.dtype)


SMALLEST = 0.01
"""Lower limit of the initial values of r₁ and r₂ in KERPLE."""
