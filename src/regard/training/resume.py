"""Going on with a run: which of its settings may be changed on the way, and which may not."""

from collections.abc import Sequence

from regard.config import Config, Source
from regard.config.complaint import origin
from regard.config.written import leaves
from regard.errors import ConfigError

HONOURED = (
    "training.steps",
    "training.epochs",
    "training.gradient_accumulation",
    "training.label_smoothing",
    "training.rdrop",
    "training.optimizer.beta1",
    "training.optimizer.beta2",
    "training.optimizer.epsilon",
    "training.optimizer.weight_decay",
    "training.schedule",
    "training.max_grad_norm",
    "training.precision",
    "training.average_checkpoints",
    "training.patience",
    "training.checkpoint_minutes",
    "training.log_every",
    "training.threads",
    "validation",
    "testing",
    "model.dropout",
    "model.attention_dropout",
    "model.activation_dropout",
    "tokenizer.dropout",
)


def changed(before: Config, after: Config, sources: Sequence[Source]) -> list[str]:
    """The settings that differ, as sentences; the first that may not differ is an error.

    What a run has learned so far, and its place in the data, must keep their meaning. Everything else may change.
    """
    old, new = (dict(leaves(config.model_dump(mode="json"))) for config in (before, after))
    notes = []
    for path in sorted({*old, *new}):
        if old.get(path) == new.get(path):
            continue
        name, was, now = ".".join(path), old.get(path), new.get(path)
        if not any(name == setting or name.startswith(f"{setting}.") for setting in HONOURED):
            found = origin([path], sources)
            where = f"{found}: " if found else ""
            raise ConfigError(
                f"{where}{name} cannot be changed from {was!r} to {now!r} in a run that is under way; "
                "leave it as it was, or start a new run with another --out."
            )
        notes.append(f"{name} is changed from {was!r} to {now!r} from here on.")
    return notes
