"""Quantities that the book derives but that no layer computes.

- The errors of random features: :mod:`~lab.theory.variance`, and for structured rows
  :mod:`~lab.theory.structured_variance`.
- The scores of RoPE as a function of distance: :mod:`~lab.theory.rope_decay`; the scores of an
  encoder as a function of the offset: :mod:`~lab.theory.offsets`; and texts that are longer than in
  training: :mod:`~lab.theory.extrapolation`.
- The cost of attention, :mod:`~lab.theory.cost`, and how much it retrieves,
  :mod:`~lab.theory.capacity`.
- Statistics of results: means and intervals, :mod:`~lab.theory.spread`, and perplexity,
  :mod:`~lab.theory.perplexity`.
"""
