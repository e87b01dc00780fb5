"""Fine-tuning: old data mixed in, and scores on the validation data of the base model, which show forgetting."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.config import Config
from regard.data.corpus_scan import ReportProgress
from regard.data.preparation import PreparedData, PreparedSplit
from regard.data.store import TokenColumn, TokenStore, open_store
from regard.errors import RegardError
from regard.models.folder_files import resolve_model_folder
from regard.models.network import Network
from regard.training.run_folder import RunFolder
from regard.training.setup import config_of, mix_config, prepared_folder, with_run_files
from regard.training.task import Check, NetworkTask, task_of

MIX_FOLDER = "mix"
MIX_STREAM = 1  # of random numbers
SPAN_TOKENS = 256  # old documents are drawn in parts of this length


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


# --- old data ---------------------------------------------------------------------------------------------------------


def mix_in(
    run: RunFolder, task: NetworkTask, config: Config, prepared: PreparedData, report: ReportProgress
) -> PreparedData:
    """Add old examples to the training data, as many as `data.mix_fraction` says; the same for the same seed."""
    mix = with_run_files(run, mix_config(config, prepared.labels), read=False)
    old = task.prepare(run.data / MIX_FOLDER, str(run.read_info()["mix_key"]), mix, report).train
    random = np.random.default_rng([config.training.seed, MIX_STREAM])
    store, drawn = mixed_store(prepared.train.store, old.store, config.data.mix_fraction, random)
    documents = len(store.columns) == 1
    available, total = (len(data.columns[0].ids) if documents else len(data) for data in (old.store, store))
    note = (
        f"{drawn:,} of {available:,} {'tokens' if documents else 'examples'}, {drawn / total:.1%} of the training data"
    )
    metadata = {**old.store.metadata, "notes": [*old.store.metadata.get("notes", ()), note]}
    drawn_store = replace(old.store, counts={"read": available, "kept": drawn}, metadata=metadata)
    return replace(prepared, train=replace(prepared.train, store=store), mix=PreparedSplit(drawn_store))


def mixed_store(
    new: TokenStore, old: TokenStore, fraction: float, random: np.random.Generator
) -> tuple[TokenStore, int]:
    """All examples of one store and randomly drawn ones of another, which are `fraction` of the result.

    Stores of documents have one column: parts of old documents are drawn, and tokens are counted. Of too little old
    data, all are taken. Returns the store, and how many examples or tokens were drawn.
    """
    if len(new.columns) == 1:
        old = replace(old, columns=(_spans(old.columns[0]),))
        wanted = _wanted(len(new.columns[0].ids), fraction)
        order = random.permutation(len(old))
        lengths = old.columns[0].lengths[order]
        before = lengths.cumsum() - lengths  # tokens drawn before each part
        order, lengths = order[before < wanted], np.minimum(lengths, wanted - before)[before < wanted]
        column, drawn = old.columns[0], int(lengths.sum())
        starts = column.ends[order] - column.lengths[order]
        parts = [column.ids[start : start + length] for start, length in zip(starts, lengths, strict=True)]
        return replace(new, columns=(_appended(new.columns[0], np.concatenate([*parts, []]), lengths),)), drawn
    drawn = min(len(old), _wanted(len(new), fraction))
    examples = np.sort(random.choice(len(old), drawn, replace=False))
    columns = [
        _appended(column, *added.gather(examples)) for column, added in zip(new.columns, old.columns, strict=True)
    ]
    return replace(new, columns=tuple(columns)), drawn


def _wanted(new: int, fraction: float) -> int:
    return round(new * fraction / (1 - fraction))


def _spans(column: TokenColumn) -> TokenColumn:
    """The same ids with documents divided into parts of at most `SPAN_TOKENS`."""
    starts = column.ends - column.lengths
    ends = [
        np.append(np.arange(start + SPAN_TOKENS, end, SPAN_TOKENS), end)
        for start, end in zip(starts, column.ends, strict=True)
    ]
    return TokenColumn(column.ids, np.concatenate([*ends, []]).astype(np.int64))


def _appended(column: TokenColumn, ids: NDArray[np.number], lengths: NDArray[np.int64]) -> TokenColumn:
    last = column.ends[-1] if len(column.ends) else 0
    return TokenColumn(
        np.concatenate([column.ids, ids.astype(column.ids.dtype)]),
        np.concatenate([column.ends, last + lengths.cumsum()]),
    )
