"""What stands in a model folder, and the settings it holds; read without torch."""

from pathlib import Path

from regard.config import Config, validate_sources
from regard.config.errors import ConfigSource
from regard.errors import ConfigError, ModelError
from regard.models.files import read_json

FORMAT = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
TOKENIZER, TARGET_TOKENIZER = "tokenizer.json", "target_tokenizer.json"  # the latter where the target has its own
BEST = "best"  # the model folder in a run folder


def model_folder(path: str | Path) -> Path:
    """The model folder that is meant: the one given, or the best of the run folder given."""
    folder = Path(path)
    if not folder.is_dir():
        raise ModelError(f"{folder}: is not a folder; give the path of a model folder, or of a run.")
    if not (folder / CONFIG).exists() and (folder / BEST / CONFIG).is_file():
        return folder / BEST
    return folder


def read_config(folder: Path) -> Config:
    """The settings in a model folder."""
    path = folder / CONFIG
    about = read_json(path)
    version = about.pop("format", None)
    if version is None:
        raise ModelError(f"{path}: says no format, so it is not regard's; for a Hugging Face folder use regard import.")
    if version != FORMAT:
        raise ModelError(f"{path}: has format {version!r}, but this regard reads format {FORMAT}; update regard.")
    about.pop("regard", None)
    try:
        return validate_sources([ConfigSource(str(path), about)])
    except ConfigError as error:
        raise ModelError(str(error)) from None
