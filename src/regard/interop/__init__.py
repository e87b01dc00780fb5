"""To and from other people's formats: Hugging Face's folders, and CTranslate2's.

Names are imported when they are first used, so that what needs no torch does not wait for it.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazily

if TYPE_CHECKING:
    from regard.interop.ctranslate2 import export_ctranslate2
    from regard.interop.hf_export import ExportReport, export_huggingface
    from regard.interop.hf_import import ImportReport, SkippedTensor, import_huggingface

__all__ = [
    "ExportReport",
    "ImportReport",
    "SkippedTensor",
    "export_ctranslate2",
    "export_huggingface",
    "import_huggingface",
]

_HOMES = {
    "ExportReport": "hf_export",
    "ImportReport": "hf_import",
    "SkippedTensor": "hf_import",
    "import_huggingface": "hf_import",
    "export_ctranslate2": "ctranslate2",
    "export_huggingface": "hf_export",
}

__getattr__, __dir__ = lazily(__name__, {name: f"regard.interop.{home}" for name, home in _HOMES.items()})
