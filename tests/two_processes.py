"""A task of float64 for the tests of several processes; it may ask the first one to stop."""

from __future__ import annotations

import os
import signal

import torch
from torch import nn

from lab.tasks import TASKS
from lab.tasks.recall import Recall
from lab.tasks.task import IGNORE


class Recall64(Recall):
    """Recall whose loss keeps float64, with targets missing in some rows."""

    _losses = 0

    def batch(self, size, generator):
        tokens, targets = super().batch(size, generator)
        targets[torch.rand(size, generator=generator) < 0.3] = IGNORE
        targets[0, -1] = 0
        return tokens, targets

    def loss(self, outputs, targets):
        self._losses += 1
        if str(self._losses) == os.environ.get("STOP") and not torch.distributed.get_rank():
            os.kill(os.getpid(), signal.SIGTERM)
        return nn.functional.cross_entropy(
            outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="sum"
        )

    def model(self, **options):
        model = super().model(**options).double()
        model.register_parameter("unused", nn.Parameter(torch.ones(3, dtype=torch.float64)))
        return model


if "RECALL64" in os.environ:  # in a process of its own, by --import
    TASKS["recall64"] = Recall64
