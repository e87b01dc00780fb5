"""Fine-tuning: scores on the validation data of the base model, before and after, which show what it forgets."""

from pathlib import Path

from regard.config import Config
from regard.data.preparation import PreparedData, ReportProgress
from regard.data.store import open_store
from regard.errors import RegardError
from regard.models.folder_files import resolve_model_folder
from regard.models.network import Network
from regard.training.run_folder import RunFolder
from regard.training.setup import config_of, prepared_folder, with_run_files
from regard.training.task import Check, NetworkTask, task_of


class BaseValidation:
    """The validation data of the run that fine-tuning starts from."""

    def __init__(self, task: NetworkTask, config: Config, prepared: PreparedData, run: RunFolder) -> None:
        self._task = task
        self._config = config
        self._prepared = prepared
        self.run = run

    def scores(self, network: Network, check: Check) -> dict[str, float]:
        """Scores of a network with its current weights."""
        was_training = network.training
        network.eval()
        scores = self._task.bind(self._config, self._prepared, network).validate(check).scores
        network.train(was_training)
        return dict(scores)


def find_base_validation(task: NetworkTask, config: Config, report: ReportProgress) -> BaseValidation | None:
    """The validation data of the base model, if it is in a run folder of the same task whose data are still there."""
    if config.training.start_from is None:
        return None
    folder = Path(config.training.start_from)
    try:
        runs = (RunFolder(path) for path in (folder, resolve_model_folder(folder).parent))
        run = next((run for run in runs if run.exists), None)
        if run is None:
            return None
        base, key = config_of(run), str(run.read_info()["key"])
        prepared_at = prepared_folder(run, base, key)
        stores = [open_store(prepared_at / name) for name in ("train", "valid")]
        if task_of(base).name != task.name or any(
            store is None or store.metadata.get("key") != key for store in stores
        ):
            return None
        prepared = task.prepare(prepared_at, key, with_run_files(run, base, read=False), report)
    except (RegardError, OSError, KeyError):  # the base run is only read for information
        return None
    return BaseValidation(task, config, prepared, run)
