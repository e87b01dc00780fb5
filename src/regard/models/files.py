"""Reading the files of a model folder, ours or another's: whatever is wrong is one sentence that names the file."""

import json
from pathlib import Path
from typing import Any

from regard.errors import ModelError


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
        raise missing(path) from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not valid JSON ({error}); copy the folder again.") from None


def missing(path: Path) -> ModelError:
    """What to say of a file that is not there."""
    return ModelError(f"{path}: is missing, so {path.parent} is not a complete model folder.")
