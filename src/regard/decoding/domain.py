"""The domain of a translator: what its training data cover, and flags for sentences that are unlike them. Torch-free.

A sentence is flagged for one of two reasons:

- `unknown_pieces`: it has a token that occurs fewer than five times in the sources of the training data. Words that a
  tokenizer has not seen are split into such tokens.
- `low_confidence`: the confidence in its translation, exp(mean log-probability of its tokens), is lower than for 99% of
  the validation sentences.

At the end of training the limits are calibrated on validation sentences and written to `domain.json` in the model
folder. Without that file only unknown tokens and bytes, which stand for characters that are not in the vocabulary, are
flagged.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from regard.data.tokenizer import Tokenizer
from regard.errors import ModelError
from regard.models.folder_files import read_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DOMAIN_FILE = "domain.json"
CALIBRATION_SENTENCES = 1000  # validation sentences that are translated
MIN_CALIBRATION_SENTENCES = 50  # with fewer, no limit of the confidence is set
FLAGGED_FRACTION = 0.01  # of the validation sentences, for each reason
MIN_TOKEN_COUNT = 5  # a token that is rarer in training counts as unknown
MAX_DESCRIPTION = 1000  # characters

DomainFlag = Literal["unknown_pieces", "low_confidence"]


class Domain(BaseModel):
    """Limits of what is like the training data."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    description: Annotated[str, Field(max_length=MAX_DESCRIPTION)] = ""
    """What the training data cover, in words."""
    min_confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    """Translations with less confidence are flagged; None: none is."""
    rare_tokens: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)] = ()
    """Ids of the source tokens that are never or hardly ever seen in training."""
    calibrated_on: int = 0
    """Number of validation sentences from which the limits follow."""

    def to_json(self) -> str:
        """Return the content of `domain.json`."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False) + "\n"


def calibrate(
    confidences: Sequence[float],
    token_counts: "NDArray[np.int64]",
    sentences: Sequence[Collection[int]],
    description: str = "",
) -> Domain:
    """Return a domain whose limits few validation sentences exceed.

    Args:
        confidences: Confidences in the translations of validation sentences.
        token_counts: How often each token occurs in the sources of the training data.
        sentences: The tokens of the validation sentences.
        description: What the training data cover.

    >>> import numpy as np
    >>> counts = np.array([0, 2, 90, 90])
    >>> domain = calibrate(np.linspace(0.5, 1, 101).tolist(), counts, [[2, 3], [3]])
    >>> domain.min_confidence, domain.rare_tokens
    (0.505, (0, 1))
    """
    import numpy as np  # only here: its import takes a tenth of the start of `regard translate`

    min_confidence = None
    if len(confidences) >= MIN_CALIBRATION_SENTENCES:
        min_confidence = floor(1e4 * np.quantile(confidences, FLAGGED_FRACTION)) / 1e4
    rare: set[int] = set()
    for min_count in range(MIN_TOKEN_COUNT, 0, -1):
        rare = set(np.flatnonzero(token_counts < min_count).tolist())
        if sum(not rare.isdisjoint(ids) for ids in sentences) <= FLAGGED_FRACTION * len(sentences):
            break
    return Domain(
        description=description[:MAX_DESCRIPTION],
        min_confidence=min_confidence,
        rare_tokens=tuple(sorted(rare)),
        calibrated_on=len(confidences),
    )


def read_domain(folder: Path) -> Domain | None:
    """Return the domain of a model folder; None if it has none."""
    path = folder / DOMAIN_FILE
    if not path.exists():
        return None
    try:
        return Domain.model_validate_json(read_file(path))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise ModelError(
            f"{path}: is damaged ({f'{where}: ' if where else ''}{problem['msg']}); copy the folder again, or "
            "remove the file, so that fewer sentences are flagged."
        ) from None


@dataclass(frozen=True)
class DomainCheck:
    """Flags sentences that are outside of a domain."""

    tokenizer: Tokenizer
    unknown: frozenset[int]
    min_confidence: float | None = None

    @classmethod
    def of(cls, domain: Domain | None, tokenizer: Tokenizer, unknown_token: int) -> "DomainCheck":
        """Return the check of a model with this tokenizer of the source."""
        if domain is None:
            byte_tokens = (tokenizer.token_id(f"<0x{byte:02X}>") for byte in range(256))
            return cls(tokenizer, frozenset([unknown_token, *(token for token in byte_tokens if token is not None)]))
        return cls(tokenizer, frozenset([unknown_token, *domain.rare_tokens]), domain.min_confidence)

    def flags(self, ids: Sequence[int], confidence: float | None) -> tuple[DomainFlag, ...]:
        """Return why a sentence with these tokens, translated with this confidence, is flagged."""
        flags: list[DomainFlag] = []
        if not self.unknown.isdisjoint(ids):
            flags.append("unknown_pieces")
        if self.min_confidence is not None and confidence is not None and confidence < self.min_confidence:
            flags.append("low_confidence")
        return tuple(flags)

    def unknown_words(self, text: str) -> tuple[str, ...]:
        """Return the words of a text that have unknown tokens, without punctuation around them."""
        ((ids, offsets),) = self.tokenizer.encode_with_offsets([text])
        spans = [span for token, span in zip(ids, offsets, strict=True) if token in self.unknown]
        words = [
            word[0].strip(".,;:!?¿¡\"'()[]«»“”‘’…") or word[0]
            for word in re.finditer(r"\S+", text)
            if any(start < word.end() and max(end, start + 1) > word.start() for start, end in spans)
        ]
        return tuple(dict.fromkeys(words))
