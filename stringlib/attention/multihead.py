r"""A layer of attention, put together from its parts. Skeleton: to be written."""
