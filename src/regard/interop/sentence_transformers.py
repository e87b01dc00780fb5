"""What sentence-transformers adds to a BERT folder: how one vector is made for a text."""

from pathlib import Path
from typing import Any, Literal

from regard.errors import ModelError
from regard.models.folder_files import parse_json, read_json

POOLING_FILE, MODULES_FILE = "1_Pooling/config.json", "modules.json"
POOLING_MODES: dict[str, Literal["mean", "first"]] = {"mean": "mean", "cls": "first"}
OLD_FLAGS = {  # today one setting, pooling_mode, says it all
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def read_pooling(folder: Path) -> tuple[Literal["mean", "first"] | None, list[str]]:
    """The pooling that the folder asks for, None where it is none of sentence-transformers'; and notes on the rest."""
    path = folder / POOLING_FILE
    if not path.exists():
        return None, []
    config = read_json(path)
    mode = config.get("pooling_mode", [mode for flag, mode in OLD_FLAGS.items() if config.get(flag) is True])
    modes = [str(one) for one in mode] if isinstance(mode, list) else [str(mode)]
    asked = " and ".join(modes) or "mean"
    if asked not in POOLING_MODES:
        raise ModelError(
            f"{path}: asks for {asked} pooling, and regard pools by mean or cls; choose a model that does."
        )
    return POOLING_MODES[asked], _notes(folder / MODULES_FILE)


def _notes(path: Path) -> list[str]:
    """What comes after the pooling, of which regard does nothing."""
    modules = parse_json(path) if path.exists() else []
    kinds = [_kind(module) for module in modules] if isinstance(modules, list) else []
    notes = []
    for kind in kinds:
        if kind == "Normalize":
            notes.append("sentence-transformers scales these vectors to length 1; regard leaves them as they are.")
        elif kind not in ("Transformer", "Pooling"):
            notes.append(f"sentence-transformers puts these vectors through a {kind} module; regard has none.")
    return notes


def _kind(module: Any) -> str:
    return str(module.get("type", "")).rpartition(".")[2] if isinstance(module, dict) else ""
