"""Train in float64 with some number of processes: python two_processes.py DEVICES FOLDER [STOP]."""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from lab.tasks.recall import Recall
from lab.tasks.task import IGNORE
from lab.train import Interrupted, Settings, fit, make_fabric


class Recall64(Recall):
    """Recall whose loss keeps float64, with targets missing in some rows."""

    def batch(self, size, generator):
        tokens, targets = super().batch(size, generator)
        targets[torch.rand(size, generator=generator) < 0.3] = IGNORE
        targets[0, -1] = 0
        return tokens, targets

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(
            outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="sum"
        )


def train(devices, folder, stop=None):
    """Train for 12 steps; the first process, and it alone, is asked to stop at a logged one."""
    torch.set_num_threads(1)
    fabric = make_fabric("cpu", devices)
    fabric.launch()
    torch.manual_seed(0)
    task = Recall64(pairs=3)
    model = task.model(encoder="circulant", attention="relu", rotate="after").double()
    model.register_parameter("unused", nn.Parameter(torch.ones(3, dtype=torch.float64)))

    def kill(history):
        if history.steps[-1] == stop:
            os.kill(os.getpid(), signal.SIGTERM)

    settings = {"rate": 1e-2, "weight_decay": 0.1, "penalty": 0.1, "clip": 0.5}
    return fit(
        model,
        task,
        Settings(12, 6, log_every=2, evaluate_every=5, checkpoint_every=100, **settings),
        fabric=fabric,
        folder=folder,
        on_log=kill,
    )


if __name__ == "__main__":
    try:
        train(int(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
    except Interrupted:
        sys.exit(130)
