"""Download of model folders from the Hugging Face hub, by `huggingface_hub` where it is installed.

    regard import HuggingFaceTB/SmolLM2-135M-Instruct

Only what an import reads is downloaded, into the cache of `huggingface_hub`. A local folder of that name wins. Nothing
else in regard opens a connection to the hub.
"""

import os
import re
from pathlib import Path

from regard.errors import ModelError

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
IMPORTED_FILES = (
    *("*.json", "model*.safetensors", "*.model", "*.spm", "merges.txt", "vocab.txt", "chat_template.jinja"),
    *("1_Pooling/config.json",),
)
IGNORED_FILES = ("onnx/*", "openvino/*", "original/*", "*/*.safetensors")


def is_hub_name(source: Path) -> bool:
    """Return whether a path is `organization/name` and nothing with that name exists locally.

    >>> is_hub_name(Path("openai-community/gpt2")), is_hub_name(Path("models/x.gguf")), is_hub_name(Path("./a/b"))
    (True, False, True)
    """
    is_file_name = source.suffix in (".gguf", ".safetensors", ".json")
    return not source.exists() and not is_file_name and HUB_NAME.fullmatch(source.as_posix()) is not None


def download_model(name: str) -> Path:
    """Download a model of the hub, unless it is in the cache, and return its folder.

    Raises:
        ModelError: `huggingface_hub` is not installed, the hub cannot be reached, or it has no such model.
    """
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        raise ModelError(
            f"{name}: is not a local folder. To download it from the Hugging Face hub, install its client with "
            "`pip install 'regard[hub]'`; or pass the path of a folder."
        ) from None
    endpoint = os.environ.get("HF_ENDPOINT") or None
    address = endpoint or "https://huggingface.co"
    try:
        folder = huggingface_hub.snapshot_download(
            name,
            endpoint=endpoint,
            allow_patterns=list(IMPORTED_FILES),
            ignore_patterns=list(IGNORED_FILES),
        )
    except errors.GatedRepoError:
        raise ModelError(
            f"{name}: needs permission on {address}; accept its license there and log in with `hf auth login`."
        ) from None
    except errors.RepositoryNotFoundError:
        raise ModelError(f"{name}: is neither a local folder nor a model on {address}; check the name.") from None
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, errors.RevisionResolutionError, OSError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ModelError(
            f"{name}: is not a local folder, and cannot be downloaded from {address} ({reason}); check the network, or "
            "pass the path of a folder."
        ) from None
    return Path(folder)
