r"""The base class of relative biases: a number for each distance, added to the logits of softmax.

:math:`\operatorname{softmax}_j(q_i^\top k_j/\sqrt d + b(t_i - s_j))`, :eq:`eq-bias-softmax`. The
bias is added after the division by :math:`\sqrt d`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.derived import Derived
from stringlib.spec import Count0, Reals, Whole, checked


class RelativeBias(Derived):
    r"""Base of the biases: a subclass says what it adds :meth:`at` each distance.

    The bias of a pair of tokens does not depend on their content. So, for any query, it
    multiplies the ratio of the weights of two keys by a factor that is the same whatever the
    three tokens are, equation :eq:`eq-bias-ratio`.

    Args:
        heads: Number of heads, each with a bias of its own.
    """

    @checked
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = int(heads)

    def at(self, distances: Reals[Tensor, "n"]) -> Tensor:
        r"""Return the bias at each distance.

        Args:
            distances: :math:`\Delta = t - s`, the query's position less the key's, ``(n,)``.

        Returns:
            ``(heads, n)``, in the dtype of the module. It is computed in float32 or better.
        """
        raise NotImplementedError

    @checked
    def forward(self, num_queries: Count0, num_keys: Count0, *, offset: Whole = 0) -> Tensor:
        """Return the bias of every query and key, to be added to the scaled logits.

        Entry (h, i, j) is the bias of head h at distance ``offset + i - j``. Each distance is
        computed once, whatever the number of pairs.

        Args:
            num_queries: Number of queries.
            num_keys: Number of keys, which stand at 0, 1, 2, …
            offset: Position of the first query: ``num_keys - num_queries`` when the queries are
                the last tokens, as in decoding with a cache.

        Returns:
            ``(heads, num_queries, num_keys)``, in the dtype and on the device of the module.
        """
        tensors = (*self.parameters(), *self.buffers())
        device = tensors[0].device if tensors else None  # one's own may hold none
        line = self.at(torch.arange(offset - num_keys, offset + num_queries, device=device))
        query = torch.arange(num_keys, num_keys + num_queries, device=device)
        which = query[:, None] - torch.arange(num_keys, device=device)
        # gather reads one index for all heads; its backward beats those of unfold and of indexing
        spread = line.gather(1, which.flatten().expand(self.heads, -1))
        return spread.unflatten(1, (num_queries, num_keys))

    def extra_repr(self) -> str:
        """Describe the arguments in ``repr``."""
        return f"heads={self.heads}"
