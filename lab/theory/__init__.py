"""What the book proves and no layer computes.

How far random features are from the exponential (:mod:`~lab.theory.variance`, for structured
rows :mod:`~lab.theory.structured_variance`); how the scores of RoPE fall with distance
(:mod:`~lab.theory.rope_decay`), what an encoder makes of an offset (:mod:`~lab.theory.offsets`)
and of longer texts than in training (:mod:`~lab.theory.extrapolation`); what attention costs
(:mod:`~lab.theory.cost`) and how much it recalls (:mod:`~lab.theory.capacity`); and how results
are told: mean and interval (:mod:`~lab.theory.spread`), bits as perplexity
(:mod:`~lab.theory.perplexity`).
"""
