"""A plugin for nbval: each kernel is a fork of one process that has imported what takes long.

A kernel takes some six seconds of processor time until it has imported what chapters use, and
every chapter has a kernel of its own. Under this plugin one process imports them for all chapters.
A chapter still has to import what it uses, because a fork starts with no names of its own.

Only on Linux: forks of a process that uses Apple's libraries may crash.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

IMPORTED = [
    "ipykernel.kernelapp",
    "ipywidgets",
    "lightning_fabric",
    "matplotlib.pyplot",
    "plotly.graph_objects",
    "sympy",
    "torch._dynamo",
    "tools.warm_kernels",
]
BACKEND = "module://matplotlib_inline.backend_inline"
"""What ipykernel writes into MPLBACKEND. Matplotlib reads it when it is imported."""

FORKS = multiprocessing.get_context("forkserver") if sys.platform == "linux" else None


def pytest_configure() -> None:
    """Let kernels be forked from here on."""
    from jupyter_client.provisioning import local_provisioner

    if FORKS is not None:
        os.environ["MPLBACKEND"] = BACKEND
        FORKS.set_forkserver_preload(["__main__", *IMPORTED])
        launcher: Any = local_provisioner
        launcher.launch_kernel = Kernel


class Kernel:
    """A forked kernel, with the part of ``subprocess.Popen`` that Jupyter uses.

    Args:
        command: The command of a kernel: a Python, its options and those of ipykernel.
        cwd: Folder of the notebook.
        env: Environment of the kernel.
        **others: Further arguments of ``Popen``, which say nothing of such a kernel.
    """

    stdin = stdout = stderr = None

    def __init__(self, command: list[str], cwd: str, env: Mapping[str, str], **others: Any) -> None:
        assert FORKS is not None
        options = command[command.index("ipykernel_launcher") + 1 :]
        ready, said = FORKS.Pipe(duplex=False)
        self.process = FORKS.Process(
            target=serve, args=(options, Path(cwd), dict(env), said), daemon=True
        )
        self.process.start()
        ready.recv()  # a signal to its group reaches no other process
        self.pid = self.process.pid

    def poll(self) -> int | None:
        """Return the exit code, if the kernel has ended."""
        return self.process.exitcode

    def wait(self) -> int | None:
        """Wait until the kernel has ended; return the exit code."""
        self.process.join()
        return self.process.exitcode

    def kill(self) -> None:
        """End the kernel at once."""
        self.process.kill()

    def terminate(self) -> None:
        """Ask the kernel to end."""
        self.process.terminate()


def serve(options: list[str], folder: Path, env: Mapping[str, str], said: Connection) -> None:
    """Be a kernel."""
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()
    said.send(True)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))
    IPKernelApp.launch_instance(argv=options)
