"""To and from other people's formats: Hugging Face's folders, and CTranslate2's.

Names are imported when they are first used, so that what needs no torch does not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.interop.ctranslate2 import to_ctranslate2
    from regard.interop.huggingface import Imported, LeftOut, import_folder
    from regard.interop.huggingface_export import Exported, to_huggingface

__all__ = ["Exported", "Imported", "LeftOut", "import_folder", "to_ctranslate2", "to_huggingface"]

_HOMES = {
    "Exported": "huggingface_export",
    "Imported": "huggingface",
    "LeftOut": "huggingface",
    "import_folder": "huggingface",
    "to_ctranslate2": "ctranslate2",
    "to_huggingface": "huggingface_export",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"regard.interop.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'regard.interop' has no attribute {name!r}")
