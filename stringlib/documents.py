"""Packed sequences: several documents in one row of tokens.

No token attends to a token of another document.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from stringlib.inputs import any_eager, can_inspect, common_shape, in_torch_func
from stringlib.precision import widest
from stringlib.spec import Count0, Floats, Indices, checked


class Documents(NamedTuple):
    """Boundaries and positions of the documents of packed sequences.

    Attributes:
        numbers: Index of the document of each token in its row, counted from 0, ``(..., n)``.
        starts: True for the first token of each document except the first document,
            ``(..., n)``.
        offsets: Position of each token in its document minus its index in the row, ``(..., n)``.
        earlier: Number of tokens of the first document that a state already contains.
    """

    numbers: Tensor
    starts: Tensor
    offsets: Tensor
    earlier: int

    @property
    def positions(self) -> Tensor:
        """Position of each token in its document, ``(..., n)``."""
        return self.offsets + torch.arange(self.offsets.shape[-1], device=self.offsets.device)

    @property
    def of_keys(self) -> Tensor:
        """Index of the document of each key, ``(..., earlier + n)``.

        The keys of a state come first. They belong to document 0.
        """
        return pad(self.numbers, (self.earlier, 0))

    def apart(self) -> Tensor:
        """Return a mask, True for pairs of tokens in different documents, ``(..., 1, n, n)``."""
        return apart(self.numbers, self.numbers)

    def restarted(self, matrix: Tensor) -> Tensor:
        """Return the weight of each pair of tokens, given the weights of pairs of positions.

        The position of a token is its position in its document. The weight of tokens in different
        documents is 0.

        Args:
            matrix: The weights w(i, j) of a query at position i and a key at position j,
                ``(..., n, n)``.
        """
        at = self.positions.unsqueeze(-2)
        pairs = (*common_shape(matrix.shape[:-2], at.shape[:-1]), *matrix.shape[-2:])
        rows = matrix.expand(pairs).gather(-2, at[..., :, None].expand(pairs))
        return rows.gather(-1, at[..., None, :].expand(pairs)).masked_fill(self.apart(), 0)

    def last_length(self) -> int:
        """Return the number of tokens of the last document, including those of a state.

        Raises:
            ValueError: If the number is not the same in all rows.
        """
        if not self.numbers.shape[-1]:
            return self.earlier
        lengths = (self.positions[..., -1] + 1).unique().tolist()
        if len(lengths) > 1:
            raise ValueError(
                "return_state must be False unless the last document has the same length in every "
                f"row, got the lengths {lengths}. A state has one length for all rows. Process the "
                "rows separately, or leave return_state out."
            )
        return int(lengths[0]) if lengths else self.earlier


@checked
def documents_of(
    x: Floats[Tensor, "... heads n d"],
    document_ids: Indices[Tensor, "...? n"] | Documents,
    earlier: Count0 = 0,
) -> Documents:
    """Return the documents of packed sequences.

    Args:
        x: Vectors of the tokens, ``(..., heads, n, d)``.
        document_ids: Integers, ``(..., n)``, equal for the tokens of a document, and larger for
            later documents. A :class:`Documents` is returned unchanged.
        earlier: Number of tokens of a state, which belong to the first document. Default: 0.

    Raises:
        ValueError: If the integers decrease along a row. This is checked on the CPU only.
    """
    if isinstance(document_ids, Documents):
        return document_ids
    before, after = document_ids[..., :-1], document_ids[..., 1:]
    if any_eager(before, lambda x: x > after):
        larger, smaller = (x[before > after][0].item() for x in (before, after))
        raise ValueError(
            f"document_ids must not decrease along a row, got {smaller} after {larger}. The tokens "
            "of a document must be consecutive. Sort the tokens by document."
        )
    starts = pad(before != after, (1, 0))[..., : document_ids.shape[-1]]
    numbers = starts.cumsum(-1)
    if torch.compiler.is_exporting():  # ONNX has no running maximum
        earlier_documents = (numbers.unsqueeze(-1) > numbers.unsqueeze(-2)).sum(-1)
        first = torch.where(numbers > 0, earlier_documents, -earlier)
    else:
        index = torch.arange(starts.shape[-1], device=starts.device)
        first = torch.where(starts, index, -earlier).cummax(-1).values
    return Documents(numbers, starts, -first, earlier)


def token_positions(start: int | Tensor, count: int, device: torch.device | None = None) -> Tensor:
    """Return the positions of tokens in the widest dtype, ``(count,)`` or ``(..., 1, count)``.

    Args:
        start: Position of the first token. For packed documents, a tensor ``(..., 1, count)`` with
            one number per token, to which the index of the token is added.
        count: Number of tokens.
        device: Device of the result. Default: the default device of torch.
    """
    if isinstance(start, Tensor):
        return start + torch.arange(count, dtype=widest(device), device=device)
    return torch.arange(start, start + count, dtype=widest(device), device=device)


def require_reach(horizon: float, start: int | Tensor, count: int, hint: str) -> None:
    """Raise ``ValueError`` if tokens contain a distance greater than the horizon of a weight.

    For packed documents whose positions cannot be inspected, nothing is checked.

    Args:
        horizon: The largest accepted distance.
        start: Position of the first token. For packed documents, a tensor ``(..., 1, count)`` with
            one number per token, to which the index of the token is added.
        count: Number of tokens.
        hint: Reason and remedy, the end of the error.
    """
    if not isinstance(start, Tensor):
        length = start + count
    elif not start.numel() or not can_inspect(start) or in_torch_func():
        return
    else:
        length = int(token_positions(start, count, start.device).max()) + 1
    if length - 1 > horizon:
        raise ValueError(
            f"horizon must be at least {length - 1} for {length} tokens, got {horizon}. {hint}"
        )


def apart(queries: Tensor, keys: Tensor) -> Tensor:
    """Return a mask, True for a query and a key of different documents, ``(..., 1, n, keys)``.

    Args:
        queries: Index of the document of each query, ``(..., n)``.
        keys: Index of the document of each key, ``(..., keys)``.

    Returns:
        The mask. Its dimension of size 1 is for heads.
    """
    return (queries[..., :, None] != keys[..., None, :]).unsqueeze(-3)


@checked
def document_ids_of(cu_seqlens: Indices[Tensor, "ends"], length: Count0) -> Tensor:
    """Return the ``document_ids`` of a packed sequence, given its cumulative lengths.

    Args:
        cu_seqlens: Cumulative lengths of the documents, as the functions of flash-attention take
            them: 0, the end of the first document, the end of the second document, and so on.
        length: Number of tokens of the packed sequence. Tokens after the last document, such as
            padding, form one more document.

    Returns:
        Integers 0, 1, 2, … for the documents, ``(length,)``.

    Raises:
        ValueError: If the cumulative lengths do not start with 0, decrease, or exceed ``length``.
            On a GPU, only an empty tensor raises this error.

    Example:
        >>> document_ids_of(torch.tensor([0, 2, 5]), 6)
        tensor([0, 0, 1, 1, 1, 2])
    """
    if not cu_seqlens.numel() or any_eager(
        cu_seqlens, lambda x: (x[0] != 0) | (x.diff() < 0).any() | (x[-1] > length)
    ):
        raise ValueError(
            f"cu_seqlens must start with 0, not decrease and not exceed length = {length}, "
            f"got {cu_seqlens.tolist()}"
        )
    index = torch.arange(length, device=cu_seqlens.device)
    return torch.bucketize(index, cu_seqlens[1:].to(index.dtype), right=True)
