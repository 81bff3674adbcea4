"""What holds for every test: sums are added in one order, and two workers share two cores."""

import torch

torch.set_num_threads(1)
