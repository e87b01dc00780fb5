"""Export formats by name: the registry, the report of an export, and the folder that an export writes. Torch-free.

Third-party formats are functions of the entry-point group `regard.exporters`; `regard export --to NAME` calls them.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from safetensors import SafetensorError

from regard.errors import ModelError, UnwritableModelError
from regard.files import atomic_folder, write_error_message
from regard.registry import Registry

EXAMPLE_TEXT = "I love you very much"


@dataclass(frozen=True)
class ExportReport:
    """The result of an export."""

    folder: Path
    program: str
    """The program that reads the folder, such as "transformers"."""
    kind: str
    """The class or number format of the exported model, such as "MarianMTModel"."""
    notes: tuple[str, ...] = ()
    """Differences from the original, and what was missing."""
    example: tuple[str, ...] = ()
    """Lines of Python that run the exported model without regard."""


class Exporter(Protocol):
    """Writes a model in another format."""

    def __call__(self, folder: Path, out: Path, quantization: str | None = None) -> ExportReport:
        """Convert the model in `folder` and write it to the new folder `out`.

        Raises ModelError if the format cannot hold the model, and ConfigError for an unknown quantization.
        """
        ...


EXPORTERS: Registry[Exporter] = Registry(
    "exporters",
    {
        "ctranslate2": "regard.interop.ctranslate2:ctranslate2_exporter",
        "huggingface": "regard.interop.huggingface:huggingface_exporter",
    },
)


@contextmanager
def new_export_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to write in, which is renamed to `folder` if the body succeeds."""
    if folder.exists():
        raise ModelError(f"{folder}: already exists; choose another name or remove it first.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder) as temporary:
            yield temporary
    except (OSError, SafetensorError) as error:
        raise UnwritableModelError(write_error_message(folder, error)) from None


def quoted(text: str | Path) -> str:
    """Return a Python string literal for an example."""
    return json.dumps(str(text), ensure_ascii=False)


def load_tokenizer_line(name: str, path: Path) -> str:
    """Return the line of an example that loads a tokenizer."""
    return f"{name} = tokenizers.Tokenizer.from_file({quoted(path)})"
