r"""Data-dependent biases of softmax attention: FoX, PaTH and CoPE.

The bias of a query i and a key j depends on the tokens from j to i. It is added to the scaled
logits, :eq:`eq-token-bias`. To add a method of your own, subclass
:class:`~stringlib.attention.logit_bias.TokenBias`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from stringlib.attention.logit_bias import TokenBias
from stringlib.kernels.features import unit
from stringlib.precision import at_least_float32, widen
from stringlib.spec import checked


class ForgettingBias(TokenBias):
    r"""The bias of the Forgetting Transformer (FoX): a forget gate for each token and head.

    The gate :math:`f_t = \sigma(w^\top x_t + b)` multiplies the weights of all keys before token t.
    So the bias is :math:`\sum_{t=j+1}^{i} \log f_t`, :eq:`eq-fox`. If all tokens have the same
    gate, the bias is that of ALiBi. One more channel of queries and keys would have the same
    effect, :eq:`eq-fox-channel`, but in half precision this channel loses too many digits.

    Args:
        dim: Number of channels of a token.
        heads: Number of query heads.

    Attributes:
        to_gate: The linear map to the logit of each gate, with a bias.

    Source:
        Lin et al. 2025, section 3.1.
    """

    reads_keys = False

    @checked
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(heads)
        self.to_gate = nn.Linear(dim, heads)

    def marks(self, tokens: Tensor) -> Tensor:
        """Return the logarithms of the gates, ``(..., heads, n, 1)``."""
        gates = self.to_gate(tokens)
        return logsigmoid(gates.to(at_least_float32(gates.dtype))).mT[..., None]

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        """Return the sums of the logarithms of the gates between each key and each query."""
        # float64, because the sum over all tokens is much larger than the difference
        sums = widen(marks[..., 0]).cumsum(-1)
        queries = sums[..., sums.shape[-1] - q.shape[-2] :]
        return (queries[..., :, None] - sums[..., None, :]).to(q.dtype)


class PathBias(TokenBias):
    r"""The bias of PaTH attention: each token transforms the channels of the keys before it.

    Token t has the matrix :math:`H_t = I - \beta_t w_t w_t^\top` with a unit vector :math:`w_t` and
    :math:`0 < \beta_t < 2`. The logit of query i and key j is
    :math:`q_i^\top H_i \cdots H_{j+1} k_j / \sqrt d`, :eq:`eq-path`. This module returns the
    difference from :math:`q_i^\top k_j / \sqrt d`, computed with one triangular system for all
    pairs, :eq:`eq-path-solve`. A step of decoding solves the system again, at a cost of keys² · d.
    Without softmax and with keys as w, this is the delta rule, :eq:`eq-path-delta`.

    Args:
        dim: Number of channels of a token.
        heads: Number of query heads.
        head_dim: Number of channels of a head.

    Attributes:
        to_vector: The linear map to the vectors w before they are normalised.
        to_rate: The linear map to the logit of β / 2 of each head, with a bias.

    Source:
        Yang et al. 2025, section 2. The paper also applies a short convolution to w.
    """

    @checked
    def __init__(self, dim: int, heads: int, head_dim: int) -> None:
        super().__init__(heads)
        self.to_vector = nn.Linear(dim, heads * head_dim, bias=False)
        self.to_rate = nn.Linear(dim, heads)

    def marks(self, tokens: Tensor) -> Tensor:
        """Return w and β of each token, ``(..., heads, n, head_dim + 1)``."""
        vectors = self.to_vector(tokens)
        exact = at_least_float32(vectors.dtype)
        vectors = unit(vectors.to(exact).unflatten(-1, (self.heads, -1)).transpose(-3, -2))
        rates = 2 * self.to_rate(tokens).to(exact).sigmoid()
        return torch.cat([vectors, rates.mT[..., None]], -1)

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        """Return by how much the matrices H between key and query change each logit."""
        w, beta = marks[..., :-1], marks[..., -1:]
        seen = (q @ w.mT).tril(k.shape[-2] - q.shape[-2])
        system, right = (beta * (w @ w.mT)).tril(-1), (beta * (w @ k.mT)).tril(-1)
        changes = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
        return -(seen @ changes) / q.shape[-1] ** 0.5


class ContextualBias(TokenBias):
    r"""Contextual position encoding (CoPE): each query counts the tokens that matter to it.

    The gate of query i for token t is :math:`g_{it} = \sigma(q_i^\top k_t/\sqrt d)`. The position
    of key j is the sum of the gates from j to i, :math:`p_{ij} = \sum_{t=j}^{i} g_{it}`, at most
    ``cope_positions - 1``. The bias is :math:`q_i^\top e_{p_{ij}}/\sqrt d`, :eq:`eq-cope`. The
    vectors e are learned at integer positions and interpolated linearly between them. The code of
    the authors does not divide the bias by :math:`\sqrt d`, so its vectors are
    :math:`e/\sqrt d`.

    Args:
        heads: Number of query heads, which share the vectors.
        head_dim: Number of channels of a head.
        cope_positions: Number of positions with a vector of their own, at least 2. Default: 64.

    Attributes:
        vectors: The learned vectors, ``(cope_positions, head_dim)``, 0 at the start.

    Source:
        Golovneva et al. 2024, equations 3 to 5 and the code of the authors.
    """

    @checked
    def __init__(self, heads: int, head_dim: int, cope_positions: int = 64) -> None:
        super().__init__(heads)
        if cope_positions < 2:
            raise ValueError(f"cope_positions must be at least 2, got {cope_positions}")
        self.vectors = nn.Parameter(torch.zeros(cope_positions, head_dim))

    def forward(self, q: Tensor, k: Tensor, marks: Tensor) -> Tensor:
        """Return the products of each query with the vector at the position of each key."""
        n, keys, scale = q.shape[-2], k.shape[-2], q.shape[-1] ** -0.5
        gates = (q @ k.mT * scale).sigmoid() * marks.mT  # marks are 0 for padding
        gates = gates.tril(keys - n)
        positions = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(self.vectors) - 1)
        products = q @ self.vectors.to(q.dtype).mT * scale
        # clamped as integers, because the position of a query that is NaN is NaN
        below = positions.detach().long().clamp(0, len(self.vectors) - 2)
        low, high = (products.gather(-1, at) for at in (below, below + 1))
        return torch.lerp(low, high, positions - below)


TOKEN_BIASES: dict[str, Callable[..., TokenBias]] = {
    "fox": ForgettingBias,
    "path": PathBias,
    "cope": ContextualBias,
}
"""Constructors of token biases by name.

A constructor receives ``dim``, ``heads``, ``head_dim`` and the options of the layer if it has
parameters of these names.
"""
