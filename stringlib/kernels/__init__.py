"""The inner loops, which a reader may skip: tensors in, tensors out, nothing checked.

What calls them has checked its arguments. Decays are logarithms of at most 0, of shape
``(..., n, 1)``, one a token, or ``(..., n, m)``, one a token and feature. The gradients that are
written by hand are here, and nowhere else.
"""
