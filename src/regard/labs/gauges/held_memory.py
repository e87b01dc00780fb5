"""How much memory tensors hold at most while something is computed, to the byte and the same on every machine."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class HeldMemory(TorchDispatchMode):
    """Counts the storage of every tensor that is made while it lasts, backward passes included.

    What was there before is not counted, nor what a kernel uses inside and gives back before it ends.

    >>> with HeldMemory() as memory:
    ...     x = torch.zeros(1000)  # 4,000 bytes
    ...     y = x.view(10, 100) + 1  # as many again; the view has none of its own
    ...     del x
    ...     z = torch.zeros(10)
    >>> memory.now, memory.peak
    (4040, 8000)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.peak = 0
        self._known = weakref.WeakSet[torch.UntypedStorage]()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = [x.untyped_storage() for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        result = func(*args, **(kwargs or {}))
        for made in (x for x in tree_leaves(result) if isinstance(x, Tensor)):
            storage = made.untyped_storage()
            if storage not in self._known and not any(storage is one for one in given):
                self._count(storage)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()
        self._known.add(storage)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._freed, size)

    def _freed(self, size: int) -> None:
        self.now -= size
