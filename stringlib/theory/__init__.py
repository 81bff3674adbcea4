"""What the book proves and no layer computes.

How far random features are from the exponential (:mod:`~stringlib.theory.variance`, for structured
rows :mod:`~stringlib.theory.structured_variance`) and the random turn that makes any of them
relative (:mod:`~stringlib.theory.torus`); how the scores of RoPE fall with distance
(:mod:`~stringlib.theory.rope_decay`), what an encoder makes of an offset
(:mod:`~stringlib.theory.offsets`) and of longer texts than in training
(:mod:`~stringlib.theory.extrapolation`); what attention costs (:mod:`~stringlib.theory.cost`) and
how much it recalls (:mod:`~stringlib.theory.capacity`); and how results are told: mean and interval
(:mod:`~stringlib.theory.spread`), bits as perplexity (:mod:`~stringlib.theory.perplexity`). Nothing
here imports more than encoders and what stands below them.
"""
