"""The inner loops of the package: functions of tensors, most of which do not check their arguments.

The callers check the arguments. To understand the package you need not read these modules. Decays
are given as logarithms, which are at most 0. For n tokens, the arguments ``log_decay`` of most
functions have shape ``(..., n, 1)`` for one decay per token, and ``(..., n, m)`` for one decay per
token and feature. These modules contain all gradients of the package that are written by hand.
"""
