"""A folder for someone else's program, written whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from regard.data.draft import new_draft, publish
from regard.errors import ModelError, UnwritableModelError


@contextmanager
def new_export_folder(folder: Path) -> Iterator[Path]:
    """A hidden folder to write in, which takes its name when the context ends without an error."""
    if folder.exists():
        raise ModelError(f"{folder}: already exists; choose another name or remove it first.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_draft(folder) as draft:
            yield draft
            publish(draft, folder)
    except (OSError, SafetensorError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UnwritableModelError(
            f"{folder}: cannot be written ({reason}); free some space or choose another place."
        ) from None
