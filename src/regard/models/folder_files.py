"""What stands in a model folder, and the settings it holds; read without torch."""

import json
from pathlib import Path
from typing import Any

from regard.config import Config, validate_sources
from regard.config.errors import ConfigSource
from regard.errors import ConfigError, ModelError

FORMAT_VERSION = 1
CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
TOKENIZER_FILE, TARGET_TOKENIZER_FILE = (
    "tokenizer.json",
    "target_tokenizer.json",
)  # the latter where the target has its own
BEST_FOLDER = "best"  # the model folder in a run folder


def resolve_model_folder(path: str | Path) -> Path:
    """The model folder that is meant: the one given, or the best of the run folder given."""
    folder = Path(path)
    if not folder.is_dir():
        raise ModelError(f"{folder}: is not a folder; give the path of a model folder, or of a run.")
    if not (folder / CONFIG_FILE).exists() and (folder / BEST_FOLDER / CONFIG_FILE).is_file():
        return folder / BEST_FOLDER
    return folder


def read_config(folder: Path) -> Config:
    """The settings in a model folder."""
    path = folder / CONFIG_FILE
    about = read_json(path)
    version = about.pop("format", None)
    if version is None:
        raise ModelError(f"{path}: says no format, so it is not regard's; for a Hugging Face folder use regard import.")
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{path}: has format {version!r}, but this regard reads format {FORMAT_VERSION}; update regard."
        )
    about.pop("regard", None)
    try:
        return validate_sources([ConfigSource(str(path), about)])
    except ConfigError as error:
        raise ModelError(str(error)) from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    content = parse_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path}: should hold a JSON object; copy the folder again.")
    return content


def parse_json(path: Path) -> Any:
    """Whatever a JSON file holds."""
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not valid JSON ({error}); copy the folder again.") from None


def missing_file(path: Path) -> ModelError:
    """What to say of a file that is not there."""
    return ModelError(f"{path}: is missing, so {path.parent} is not a complete model folder.")
