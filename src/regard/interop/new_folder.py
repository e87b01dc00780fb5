"""A folder for someone else's program, written whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from regard.errors import ModelError, UnwritableModelError
from regard.files import atomic_folder, write_error_message


@contextmanager
def new_export_folder(folder: Path) -> Iterator[Path]:
    """A hidden folder to write in, which takes its name when the context ends without an error."""
    if folder.exists():
        raise ModelError(f"{folder}: already exists; choose another name or remove it first.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder) as temporary:
            yield temporary
    except (OSError, SafetensorError) as error:
        raise UnwritableModelError(write_error_message(folder, error)) from None
