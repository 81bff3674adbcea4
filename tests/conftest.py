"""What holds for every test: sums are added in one order, and two workers share two cores."""

import os

import torch

os.environ["STRINGLIB_DEVICE"] = "cpu"  # on a machine with a GPU too

torch.set_num_threads(1)
