"""What operations make, watched while a piece of code runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Watched(TorchDispatchMode):
    """Shows each operation, with the tensors that it made, to ``saw``."""

    def saw(self, operation: Any, made: Sequence[Tensor]) -> None:
        raise NotImplementedError

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.saw(func, [x for x in tree_leaves(out) if isinstance(x, Tensor)])
        return out


class LargestTensor(Watched):
    """Records the number of elements of the largest tensor that any operation makes."""

    elements = 0

    def saw(self, operation: Any, made: Sequence[Tensor]) -> None:
        for x in made:  # a view costs nothing, so the storage is what counts
            self.elements = max(self.elements, x.untyped_storage().nbytes() // x.element_size())
