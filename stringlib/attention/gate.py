r"""A gate behind attention: Y ⊙ σ(X W). Skeleton: to be written."""
