r"""RetNet, GLA, RWKV-6 and SSD by their names. Skeleton: to be written."""
