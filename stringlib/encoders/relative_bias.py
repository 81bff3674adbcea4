r"""The base class of relative biases: a number for each distance, added to the logits of softmax.

The weight of query i, at position :math:`t_i`, on key j, at position :math:`s_j`, is
:math:`\operatorname{softmax}_j(q_i^\top k_j/\sqrt d + b(t_i - s_j))`, :eq:`eq-bias-softmax`. The
bias b is added after the division by :math:`\sqrt d`, where d is the number of channels of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stringlib.derived import Derived
from stringlib.spec import Count0, Positions, Whole, checked


class RelativeBias(Derived):
    r"""Base class of relative biases; a subclass implements :meth:`at`.

    The bias of a query and a key depends on their distance and not on their content. The bias
    multiplies the ratio of the weights of two keys by a factor that depends only on the positions
    of the query and the two keys, equation :eq:`eq-bias-ratio`.

    The blocks of a model share one bias. With FSDP2, therefore, give the bias to ``fully_shard``
    before the blocks.

    Args:
        heads: Number of heads, each with a bias of its own.
    """

    @checked
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = int(heads)

    def at(self, distances: Positions[Tensor, "n"]) -> Tensor:
        r"""Return the bias at each distance.

        Args:
            distances: Distances :math:`\Delta = t - s`, the position of the query minus that of the
                key, ``(n,)``.

        Returns:
            ``(heads, n)``, in the dtype of the module, computed in at least float32.
        """
        raise NotImplementedError(f"{type(self).__name__} must define at(distances)")

    @checked
    def forward(self, num_queries: Count0, num_keys: Count0, *, offset: Whole = 0) -> Tensor:
        """Return the bias of every pair of a query and a key, to be added to the scaled logits.

        Entry (h, i, j) is the bias of head h for query i and key j, at distance ``offset + i - j``.
        The bias is computed once per distance, not once per pair.

        Args:
            num_queries: Number of queries.
            num_keys: Number of keys, which are at the positions 0, 1, 2, …
            offset: Position of the first query. Use ``num_keys - num_queries`` if the queries are
                the last tokens, as in decoding with a cache. Default: 0.

        Returns:
            ``(heads, num_queries, num_keys)``, in the dtype and on the device of the module.
        """
        tensors = (*self.parameters(), *self.buffers())
        if getattr(self, "_is_replica", False):  # of nn.DataParallel: parameters are attributes
            tensors += tuple(x for x in vars(self).values() if isinstance(x, Tensor))
        device = tensors[0].device if tensors else None  # a subclass may have no tensors
        line = self.at(torch.arange(offset - num_keys, offset + num_queries, device=device))
        query = torch.arange(num_keys, num_keys + num_queries, device=device)
        which = query[:, None] - torch.arange(num_keys, device=device)
        # gather: all heads share one index, and its backward is faster than that of unfold or x[i]
        spread = line.gather(1, which.flatten().expand(self.heads, -1))
        return spread.unflatten(1, (num_queries, num_keys))

    def extra_repr(self) -> str:
        """Return the arguments that ``repr`` shows."""
        return f"heads={self.heads}"
