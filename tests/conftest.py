"""What holds for every test: sums are added in one order, and two workers share two cores."""

import gc
import os

import torch

os.environ["STRINGLIB_DEVICE"] = "cpu"  # on a machine with a GPU too

torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """Look for garbage among what a test makes, not again and again among all the tests."""
    gc.collect()
    gc.freeze()
