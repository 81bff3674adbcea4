"""What attention costs: multiplications inside matrix products, for one head."""

from __future__ import annotations

from stringlib.inputs import require_count


def pair_products(n: int, m: int, width: int) -> int:
    r"""Return :math:`n^2(m + w)`: all pairs compared, and summed; :eq:`eq-linear-cost`.

    Args:
        n: Tokens.
        m: Numbers that a query and a key are compared by: features, or channels of softmax.
        width: Numbers that are summed, w: channels of a value, and 1 for the denominator.
    """
    return n * n * (m + width)


def linear_products(n: int, m: int, width: int) -> int:
    """Return :math:`2nmw`: keys into a state, queries out of it; :eq:`eq-linear-cost`."""
    return 2 * n * m * width


def chunk_products(n: int, m: int, width: int, chunk: int) -> int:
    r"""Return :math:`nc(m + w) + (2n - c)mw`, the causal sum in chunks; :eq:`eq-linear-cost`.

    Args:
        n: Tokens, a multiple of ``chunk``.
        m: Features.
        width: Numbers that are summed.
        chunk: Tokens of a chunk, c: 1 for the recurrence, n for the matrix form.

    Raises:
        TypeError: If ``chunk`` is not an integer.
        ValueError: If it does not divide n.
    """
    require_count("chunk", chunk)
    if n % chunk:
        raise ValueError(f"chunk must divide n {n}, got {chunk}")
    # the first chunk has no state to read
    return n * chunk * (m + width) + (2 * n - chunk) * m * width
