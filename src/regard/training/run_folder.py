"""The run folder: all files of a run, readable text where possible, each written atomically.

config.toml      all settings, with their origins
run.json         command, environment, data, automatic settings, status and results
metrics.jsonl    a line every few steps and at every validation; metrics.jsonl.damaged if it was damaged
samples.jsonl    outputs for a few validation examples at each validation
outputs.json     the best, worst and random outputs at the end
checkpoints/     the state of training
weights/         the weights of the last validations, for averaging
best/, last/     model folders
data/            tokenizer and tokens
report.html      the run on one page
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.config import Config
from regard.data.tokenizer_file import MAX_TOKENIZER_BYTES
from regard.errors import RunError, RunFolderError
from regard.files import lock_file, read_regular_file, write_error_message, write_text
from regard.models import save
from regard.models.folder import MAX_SHARD_BYTES, model_card, named_tensors
from regard.models.folder_files import CARD_FILE, TOKENIZER_FILE, WEIGHTS_FILE, read_file
from regard.models.network import Network
from regard.training.appended_files import APPENDED_FILES, AppendedFiles, write_errors
from regard.training.checkpoint import CHECKPOINT_NAME, write_tensors

MAX_INFO_BYTES = 64 * 2**20  # of run.json


class RunFolder:
    """Writes and reads the files of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config_path = folder / "config.toml"
        self.info_path = folder / "run.json"
        self.checkpoints = folder / "checkpoints"
        self.data = folder / "data"
        self.appended = AppendedFiles(folder)
        self._created: list[Path] = []  # by `lock`, the innermost first

    @property
    def exists(self) -> bool:
        """Whether there is a run to resume; the settings of a run that never started can be replaced."""
        return (self.folder / APPENDED_FILES[0]).exists() or self.has_checkpoint

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint."""
        return any(self.checkpoints.glob("step-*"))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training in the same folder."""
        self._created = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = open(self.folder / ".lock", "a")  # noqa: SIM115  # closed below, or by a kill
        except OSError as error:
            raise RunFolderError(
                f"{self.folder}: cannot be written ({error.strerror}); choose another --out."
            ) from None
        with lock:
            try:
                lock_file(lock)
            except OSError:
                raise RunError(f"{self.folder}: another process is training here; wait for it, or stop it.") from None
            yield

    @contextmanager
    def removed_if_start_fails(self) -> Iterator[None]:
        """Remove the folder if `lock` has created it and an error occurs before the run has started."""
        try:
            yield
        except BaseException:
            if self.folder in self._created:
                shutil.rmtree(self.folder, ignore_errors=True)
                with suppress(OSError):  # a parent that is in use by now
                    for folder in self._created[1:]:
                        folder.rmdir()
            raise

    def write(self, name: str, content: str) -> None:
        """Write a small text file atomically."""
        path = self.folder / name
        try:
            write_text(path, content)
        except OSError as error:
            raise RunFolderError(write_error_message(path, error, remedy="make it writable")) from None

    def write_json(self, name: str, content: Any) -> None:
        """Write an indented JSON file."""
        self.write(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def read_info(self) -> dict[str, Any]:
        """The content of run.json."""
        remedy = "restore it from a copy, or start a new run with another --out."
        try:
            info = json.loads(read_regular_file(self.info_path, MAX_INFO_BYTES).decode("utf-8"))
        except OSError as error:
            raise RunFolderError(f"{self.info_path}: cannot be read ({error.strerror}); {remedy}") from None
        except (ValueError, RecursionError) as error:
            raise RunFolderError(f"{self.info_path}: is damaged ({error}); {remedy}") from None
        if not isinstance(info, dict) or not isinstance(info.get("key"), str):
            raise RunFolderError(f"{self.info_path}: was not written by regard; {remedy}")
        return info

    def update_info(self, **values: Any) -> None:
        """Set fields of run.json."""
        self.write_json(self.info_path.name, self.read_info() | values)

    def save_model(self, name: str, network: Network, config: Config, origin: str) -> None:
        """Write the model folder `best` or `last`; in an existing one, weights and card are replaced atomically.

        If the weights are in several files, the whole folder is replaced.
        """
        folder, tensors = self.folder / name, named_tensors(network)
        in_several_files = sum(tensor.nbytes for tensor in tensors.values()) > MAX_SHARD_BYTES
        if not folder.exists() or in_several_files:
            extra_files = {TOKENIZER_FILE: read_file(self.folder / TOKENIZER_FILE, MAX_TOKENIZER_BYTES)}
            save(folder, network, config, origin=origin, extra_files=extra_files, replace=True)
            return
        write_tensors(folder / WEIGHTS_FILE, tensors, {"format": "pt"})
        self.write(f"{name}/{CARD_FILE}", model_card(name, network, config, origin))

    def weights_path(self, step: int) -> Path:
        """The file with the weights of a step."""
        return self.folder / "weights" / f"step-{step:09d}.safetensors"

    def saved_weights(self) -> dict[int, Path]:
        """The files with weights by their step, the earliest first."""
        paths = sorted((self.folder / "weights").glob("step-*"))
        return {int(match[1]): path for path in paths if (match := CHECKPOINT_NAME.fullmatch(path.name))}

    def save_weights(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Save the weights of a step for averaging."""
        write_tensors(self.weights_path(step), tensors, {"format": "pt"})

    def remove_partial_files(self) -> None:
        """Remove temporary files of processes that were killed while they wrote."""
        temporary = [path for path in self.folder.glob(".*") if path.name != ".lock"]
        for folder in (self.checkpoints, self.folder / "weights"):
            temporary += folder.glob(".step-*")
        for path in temporary:
            with write_errors(path):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
