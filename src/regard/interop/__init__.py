"""To and from other people's formats: Hugging Face folders."""

from regard.interop.huggingface import Imported, LeftOut, import_folder

__all__ = ["Imported", "LeftOut", "import_folder"]
