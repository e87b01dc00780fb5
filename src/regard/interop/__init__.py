"""To and from other people's formats: Hugging Face's folders, and CTranslate2's.

Names are imported when they are first used, so that what needs no torch does not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.interop.huggingface import Imported, LeftOut, import_folder

__all__ = ["Imported", "LeftOut", "import_folder"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("regard.interop.huggingface"), name)
    raise AttributeError(f"module 'regard.interop' has no attribute {name!r}")
