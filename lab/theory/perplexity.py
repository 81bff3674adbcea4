"""From bits to perplexity, and from one unit of text to another."""

from __future__ import annotations

from stringlib.spec import Positive, checked


@checked
def perplexity(bits: float, unit: Positive = 1.0) -> float:
    """Return the perplexity of a model by its bits per byte, :eq:`eq-perplexity`.

    It is the number of equally likely answers that would be as hard to guess. Models with
    different units, such as bytes and words, compare in bits per byte alone.

    Args:
        bits: Bits per byte, :eq:`eq-bits-per-byte`. Of two models the difference, which gives the
            quotient of their perplexities.
        unit: Bytes of what the perplexity is of: 1 for a byte, the mean length for a word.
    """
    return float(2 ** (bits * unit))
