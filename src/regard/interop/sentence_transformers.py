"""The files that sentence-transformers adds to a BERT folder: how token vectors become a text vector."""

from pathlib import Path
from typing import Any, Literal

from regard.errors import ModelError
from regard.models.folder_files import parse_json, read_json

POOLING_FILE, MODULES_FILE = "1_Pooling/config.json", "modules.json"
POOLING_MODES: dict[str, Literal["mean", "first"]] = {"mean": "mean", "cls": "first"}
OLD_POOLING_FLAGS = {  # the setting pooling_mode replaced them
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def read_pooling(folder: Path) -> tuple[Literal["mean", "first"] | None, list[str]]:
    """Return the pooling of a folder, None if it is not of sentence-transformers; and notes on further modules."""
    path = folder / POOLING_FILE
    if not path.exists():
        return None, []
    config = read_json(path)
    mode = config.get("pooling_mode", [mode for flag, mode in OLD_POOLING_FLAGS.items() if config.get(flag) is True])
    modes = [str(name) for name in mode] if isinstance(mode, list) else [str(mode)]
    pooling = " and ".join(modes) or "mean"
    if pooling not in POOLING_MODES:
        raise ModelError(
            f"{path}: uses {pooling} pooling, and regard supports mean and cls; choose a model with one of these."
        )
    return POOLING_MODES[pooling], _notes(folder / MODULES_FILE)


def pooling_files(pooling: str, width: int) -> dict[str, object]:
    """Return the JSON files for a pooling; none for BERT's own pooling, which is part of its weights."""
    mode = next((mode for mode, name in POOLING_MODES.items() if name == pooling), None)
    if mode is None:
        return {}
    modules = {"": "Transformer", POOLING_FILE.partition("/")[0]: "Pooling"}
    return {
        POOLING_FILE: {"pooling_mode": mode, "embedding_dimension": width},
        MODULES_FILE: [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(modules.items())
        ],
    }


def _notes(path: Path) -> list[str]:
    """Return notes on the modules after the pooling, which regard does not have."""
    modules = parse_json(path) if path.exists() else []
    kinds = [_kind(module) for module in modules] if isinstance(modules, list) else []
    notes = []
    for kind in kinds:
        if kind == "Normalize":
            notes.append("sentence-transformers scales these vectors to length 1; regard does it with normalize=True.")
        elif kind not in ("Transformer", "Pooling"):
            notes.append(f"sentence-transformers applies a {kind} module to these vectors; regard does not.")
    return notes


def _kind(module: Any) -> str:
    return str(module.get("type", "")).rpartition(".")[2] if isinstance(module, dict) else ""
