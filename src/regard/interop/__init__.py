"""To and from other people's formats: Hugging Face's folders, and CTranslate2's.

Names are imported when they are first used, so that what needs no torch does not wait for it.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazily

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

__getattr__, __dir__ = lazily(__name__, {name: f"regard.interop.{home}" for name, home in _HOMES.items()})
