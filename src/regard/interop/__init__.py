"""Import and export of models: Hugging Face (GPT-2, BERT, Marian), GGUF and CTranslate2.

Names are imported when they are first used, so that torch is imported only where it is needed.
"""

from typing import TYPE_CHECKING

from regard.registry import lazy_exports

if TYPE_CHECKING:
    from regard.interop.ctranslate2 import export_ctranslate2
    from regard.interop.exporters import EXPORTERS, ExportReport
    from regard.interop.gguf import import_gguf_file
    from regard.interop.gguf_export import export_gguf
    from regard.interop.huggingface import ImportReport, SkippedTensor, export_huggingface, import_huggingface

__all__ = [
    "EXPORTERS",
    "ExportReport",
    "ImportReport",
    "SkippedTensor",
    "export_ctranslate2",
    "export_gguf",
    "export_huggingface",
    "import_gguf_file",
    "import_huggingface",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "EXPORTERS": "regard.interop.exporters",
        "ExportReport": "regard.interop.exporters",
        "ImportReport": "regard.interop.huggingface",
        "SkippedTensor": "regard.interop.huggingface",
        "export_ctranslate2": "regard.interop.ctranslate2",
        "export_gguf": "regard.interop.gguf_export",
        "export_huggingface": "regard.interop.huggingface",
        "import_gguf_file": "regard.interop.gguf",
        "import_huggingface": "regard.interop.huggingface",
    },
)
