"""Measuring an encoder that predicts tokens on new text, just as its training measures it on validation text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.config import Config
from regard.data.lines import InvalidLines
from regard.data.preparation import PreparedData
from regard.data.prepare_documents import prepare_document_split
from regard.data.tokenizer import Tokenizer
from regard.errors import DataError
from regard.models.network import Network
from regard.training.kinds import KINDS

MEASURED = ("masked", "bidirectional")  # tasks whose networks predict tokens of a text without continuing it


@dataclass(frozen=True)
class TextScores:
    """How well tokens are predicted, and how many the text has."""

    scores: dict[str, float]
    tokens: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"scores": self.scores, "tokens": self.tokens}


def measure_text(
    network: Network,
    config: Config,
    tokenizer: Tokenizer,
    files: Sequence[str],
    faults: InvalidLines,
    report: Callable[[int], None],
) -> TextScores:
    """The scores of validation: of hidden tokens, always the same ones, or of both directions."""
    config = config.model_copy(update={"validation": config.validation.model_copy(update={"samples": 0})})
    spaced = config.model.task == "masked" and tokenizer.marks_word_starts
    with TemporaryDirectory(prefix="regard-") as folder:
        part = prepare_document_split(Path(folder) / "text", files, tokenizer, faults, report, single_spaces=spaced)
        if len(part.store) == 0:
            raise DataError(f"{', '.join(files)}: has no text to evaluate a model on; give some.")
        task = KINDS[config.model.task].bind(config, PreparedData(tokenizer, part, part, None), network.eval())
        return TextScores(task.validate(lambda: None).scores, len(part.store.columns[0].ids))
