r"""Key shift: the key of a token is mixed with the key of the previous token (smeared keys)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stringlib.documents import Documents, documents_of
from stringlib.inputs import per_head
from stringlib.spec import Floats, Indices, checked


class KeyShift(nn.Module):
    r"""Mix of each key with the key of the previous token, with a learned share for each head.

    With the share :math:`\beta_h` of head h, the key of token t becomes
    :math:`(1 - \beta_h) k_t + \beta_h k_{t-1}`, equation :eq:`eq-key-shift`. The previous key of
    the first token is 0.

    Without a shift, the key of a token depends on this token alone. So in a single layer, the
    similarity of a query and the key of a token cannot depend on the token before it, as
    associative recall requires. With the shift, it does. The share is one number per head, so
    mixing commutes with a basis that acts on the channels of a head. Merging the basis of an
    encoder into the weights therefore remains exact.

    Args:
        heads: Number of key heads.

    Attributes:
        logit: Learned parameter, ``(heads,)``, with :math:`\beta_h = \sigma(\mathrm{logit}_h)`. It
            is 0 at the start, so that a key and the previous key have the share 1/2.

    Source:
        Olsson et al. 2022, the smeared-key architecture.
    """

    @checked
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = int(heads)
        self.logit = nn.Parameter(torch.zeros(heads))

    @checked
    def forward(
        self,
        k: Floats[Tensor, "... self.heads n d"],
        before: Floats[Tensor, "... self.heads 1 d"] | None = None,
        key_mask: Tensor | None = None,
        *,
        document_ids: Indices[Tensor, "...? n"] | Documents | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the mixed keys, and the last key before mixing.

        Args:
            k: Keys, ``(..., heads, seq, head_dim)``.
            before: Key of the token before the first one, ``(..., heads, 1, head_dim)``.
                Default: None, a key of 0.
            key_mask: False for padding, ``(..., seq)`` or ``(..., heads, seq)``. A key of padding
                is replaced by 0. Default: None, no padding.
            document_ids: Integers that increase from document to document, ``(..., seq)``, or the
                :class:`~stringlib.documents.Documents` that are made from such integers. The
                previous key of the first token of a document is 0. For the first document of a row
                the previous key is ``before``. Default: None, one document.

        Returns:
            Mixed keys, in the shape and dtype of ``k``, and the last key before mixing,
            ``(..., heads, 1, head_dim)``, to be passed as ``before`` with the next tokens.

        Raises:
            ValueError: If the leading dimensions of ``before`` are not those of ``k``.
        """
        if before is not None and before.shape[:-2] != k.shape[:-2]:
            raise ValueError(
                f"before must have shape {(*k.shape[:-2], 1, k.shape[-1])}, one key with the "
                f"leading dimensions of k, got {tuple(before.shape)}"
            )
        if key_mask is not None:
            k = k.masked_fill(~per_head(key_mask, k.shape[:-1], k.device)[..., None], 0)
        if before is None:
            before = k.new_zeros(*k.shape[:-2], 1, k.shape[-1])
        own = torch.cat([before.to(k.dtype), k], -2)
        previous = own[..., :-1, :]
        if document_ids is not None:
            starts = documents_of(k, document_ids).starts
            previous = previous.masked_fill(starts[..., None, :, None], 0)
        share = self.logit.sigmoid()[:, None, None].to(k.dtype)
        return torch.lerp(k, previous, share), own[..., -1:, :]
