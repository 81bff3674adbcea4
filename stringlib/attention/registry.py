r"""Feature maps by name. Skeleton: to be completed."""
