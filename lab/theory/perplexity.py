"""Conversion of bits per byte to perplexity, for any unit of text."""

from __future__ import annotations

from stringlib.spec import Positive, checked


@checked
def perplexity(bits: float, unit: Positive = 1.0) -> float:
    """Return the perplexity for given bits per byte, :eq:`eq-perplexity`.

    The perplexity is the number of equally likely answers that would be equally hard to guess.
    Models with different units, such as bytes and words, can be compared only by bits per byte.

    Args:
        bits: Bits per byte, :eq:`eq-bits-per-byte`. For the difference of two models, the result is
            the quotient of their perplexities.
        unit: Number of bytes of a unit: 1 for bytes, the mean length of a word for words.
    """
    return float(2 ** (bits * unit))
