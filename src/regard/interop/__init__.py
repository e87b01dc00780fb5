"""To and from other people's formats: Hugging Face's folders, and CTranslate2's.

Names are imported when they are first used, so that what needs no torch does not wait for it.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazily

if TYPE_CHECKING:
    from regard.interop.huggingface import Imported, LeftOut, import_folder

__all__ = ["Imported", "LeftOut", "import_folder"]

__getattr__, __dir__ = lazily(__name__, dict.fromkeys(__all__, "regard.interop.huggingface"))
