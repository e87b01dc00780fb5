"""Whether a language model keeps its predictions in int8: measured per model, on a few short texts. Torch-free.

CTranslate2 rounds weights and activations to 8 bits. Most networks hardly change, but activations with a few large
values lose the small ones, as in SmolLM2-135M, which then names another capital of Italy. So the probabilities of the
next token are compared with those in float32, at every position of prompts and of their greedy continuations.

V vocabulary · T tokens
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from regard.config import Config
from regard.data.tokenizer_file import MAX_TOKENIZER_BYTES
from regard.models.folder_files import TOKENIZER_FILE, parse_json

PROMPTS = (
    "The capital of Italy is",
    "Once upon a time there was",
    "1, 2, 3, 4, 5,",
    "La casa è vicino al",
    "def add(a, b):",
    "I think that you",
)
NEW_TOKENS = 12
MAX_DIVERGENCE = 0.03  # nats per token: perplexity rises by about 3%


@dataclass(frozen=True)
class Int8Quality:
    """How the predictions of a model in int8 differ from those in float32."""

    divergence: float
    """Mean Kullback-Leibler divergence of the next token's probabilities, in nats."""
    agreement: float
    """Fraction of positions with the same most probable token."""

    @property
    def is_accurate(self) -> bool:
        """Whether int8 is good enough to be used by default."""
        return self.divergence <= MAX_DIVERGENCE

    def __str__(self) -> str:
        return (
            f"in int8 the next token's probabilities diverge by {self.divergence:.3f} nats (limit {MAX_DIVERGENCE}) "
            f"and the most probable token is the same in {self.agreement:.0%}"
        )


def measure_int8_quality(int8: Path, float32: Path, config: Config) -> Int8Quality:
    """Compare two conversions of a language model, on the CPU."""
    import ctranslate2
    import numpy as np

    exact, rounded = (
        ctranslate2.Generator(str(folder), compute_type=kind, intra_threads=1)
        for folder, kind in ((float32, "float32"), (int8, "int8"))
    )
    names = parse_json(float32 / "vocabulary.json", MAX_TOKENIZER_BYTES)
    divergences, agreements = [], []
    for text in _texts(exact, float32, config, names):
        expected, actual = (_log_probabilities(generator, text) for generator in (exact, rounded))
        divergences.append((np.exp(expected) * (expected - actual)).sum(-1))
        agreements.append(expected.argmax(-1) == actual.argmax(-1))
    return Int8Quality(float(np.concatenate(divergences).mean()), float(np.concatenate(agreements).mean()))


def _texts(generator: Any, folder: Path, config: Config, names: list[str]) -> Iterator[list[str]]:
    """Yield the tokens of prompts with their greedy continuations."""
    import numpy as np

    tokens, longest = config.tokens, config.model.max_length or 2**24
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE)) if (folder / TOKENIZER_FILE).exists() else None
    for number, prompt in enumerate(PROMPTS):
        if tokenizer is not None:
            ids = tokenizer.encode(prompt, add_special_tokens=False).ids
        else:
            ids = np.random.default_rng(number).integers(len(names), size=NEW_TOKENS).tolist()
        start = [tokens.start] if tokens.start != tokens.end else []
        row = [names[token] for token in [*start, *ids][: max(1, longest - NEW_TOKENS)]]
        (result,) = generator.generate_batch(
            [row], max_length=min(NEW_TOKENS, longest - len(row)), sampling_topk=1, include_prompt_in_result=False
        )
        yield [*row, *result.sequences[0]]


def _log_probabilities(generator: Any, text: list[str]) -> Any:
    """Return log-probabilities (T, V)."""
    import numpy as np

    return np.array(generator.forward_batch([text], return_log_probs=True))[0].astype(np.float64)
