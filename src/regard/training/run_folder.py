"""The run folder: everything a run knows, in files that a person can read and a kill cannot spoil.

config.toml      every setting, and where it came from
run.json         the command, the machine, the data, what was picked, the results
metrics.jsonl    a line every few steps, a line at every validation
samples.jsonl    what the network made of a few sentences at each validation
outputs.json     its best, worst and some random outputs at the end
checkpoints/     the state of training, to go on from
weights/         the weights of the last validations, where they are to be averaged
best/, last/     model folders
data/            tokenizer and tokens
report.html      all of it on one page
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.config import Config
from regard.errors import RunError, RunFolderError
from regard.files import write_text
from regard.models import save
from regard.models.folder import model_card
from regard.models.folder_files import CARD_FILE, WEIGHTS_FILE
from regard.models.network import Network
from regard.models.weights import named_tensors
from regard.training.checkpoint import CHECKPOINT_NAME, write_tensors
from regard.training.unwritable import unwritable

APPENDED_FILES = ("metrics.jsonl", "samples.jsonl")


class RunFolder:
    """A run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config_path = folder / "config.toml"
        self.info_path = folder / "run.json"
        self.checkpoints = folder / "checkpoints"
        self.data = folder / "data"

    @property
    def exists(self) -> bool:
        """Whether there is training here to go on with; settings alone, of a run that never began, can be replaced."""
        return (self.folder / APPENDED_FILES[0]).exists() or self.has_checkpoint

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint."""
        return any(self.checkpoints.glob("step-*"))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training in the same folder, while it lasts."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = open(self.folder / ".lock", "w")  # noqa: SIM115  # closed below; a kill closes it too
        except OSError as error:
            raise RunFolderError(
                f"{self.folder}: cannot be written ({error.strerror}); choose another --out."
            ) from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"{self.folder}: another process is training here; wait for it, or stop it.") from None
            yield

    def write(self, name: str, content: str) -> None:
        """Write a small file whole or not at all."""
        path = self.folder / name
        try:
            write_text(path, content)
        except OSError as error:
            raise unwritable(path, error) from None

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file for people and programs."""
        self.write(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def read_info(self) -> dict[str, Any]:
        """What run.json says."""
        remedy = "put it back from a copy, or start a new run with another --out."
        try:
            about = json.loads(self.info_path.read_text("utf-8"))
        except OSError as error:
            raise RunFolderError(f"{self.info_path}: cannot be read ({error.strerror}); {remedy}") from None
        except (ValueError, RecursionError) as error:
            raise RunFolderError(f"{self.info_path}: is damaged ({error}); {remedy}") from None
        if not isinstance(about, dict) or not isinstance(about.get("key"), str):
            raise RunFolderError(f"{self.info_path}: is not what regard wrote there; {remedy}")
        return about

    def update_info(self, **values: Any) -> None:
        """Add to run.json."""
        self.write_json(self.info_path.name, self.read_info() | values)

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Add a line to a file that grows."""
        path = self.folder / name
        with _writing(path), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def file_sizes(self) -> dict[str, int]:
        """How large the growing files are, all of it on disk."""
        sizes = {}
        for name in APPENDED_FILES:
            path = self.folder / name
            if path.exists():
                with _writing(path), open(path, "rb+") as file:
                    os.fsync(file.fileno())
                    sizes[name] = file.seek(0, os.SEEK_END)
        return sizes

    def truncate(self, sizes: Mapping[str, int]) -> None:
        """Take back what was added to the growing files after they had these sizes."""
        for name in APPENDED_FILES:
            path = self.folder / name
            if path.exists() and path.stat().st_size > sizes.get(name, 0):
                with _writing(path):
                    os.truncate(path, sizes.get(name, 0))

    def save_model(self, name: str, network: Network, config: Config, origin: str) -> None:
        """Write a model folder, `best` or `last`; where there is one, its weights are replaced in one move."""
        folder = self.folder / name
        tokenizer = (self.folder / "tokenizer.json").read_bytes()
        if not folder.exists():
            save(folder, network, config, origin=origin, extra_files={"tokenizer.json": tokenizer})
            return
        write_tensors(folder / WEIGHTS_FILE, named_tensors(network), {"format": "pt"})
        self.write(f"{name}/{CARD_FILE}", model_card(name, network, config, origin))

    def weights_path(self, step: int) -> Path:
        """Where the weights of a step are kept."""
        return self.folder / "weights" / f"step-{step:09d}.safetensors"

    def saved_weights(self) -> dict[int, Path]:
        """Where weights are kept, by their step, the earliest first."""
        named = [
            (CHECKPOINT_NAME.fullmatch(path.name), path) for path in sorted((self.folder / "weights").glob("step-*"))
        ]
        return {int(match[1]): path for match, path in named if match}

    def save_weights(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Keep the weights of a step."""
        write_tensors(self.weights_path(step), tensors, {"format": "pt"})

    def remove_partial_files(self) -> None:
        """Remove the leftovers of processes that were killed while they wrote."""
        for draft in self.folder.glob(".*"):
            if draft.name == ".lock":
                continue
            with _writing(draft):
                shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
        for folder in (self.checkpoints, self.folder / "weights"):
            for draft in folder.glob(".step-*"):
                with _writing(draft):
                    shutil.rmtree(draft) if draft.is_dir() else draft.unlink()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """While it lasts, what keeps a file from being changed becomes a sentence."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error, ", then go on with --resume") from None
