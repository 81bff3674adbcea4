"""The inner loops of the package: functions of tensors that do not check their arguments.

The callers check the arguments. To understand the package you need not read these modules. Decays
are given as logarithms, which are at most 0. Their shape is ``(..., n, 1)`` for one decay per
token, and ``(..., n, m)`` for one decay per token and feature. These modules contain all gradients
of the package that are written by hand.
"""
