"""Logits processors: change the logits before a token is chosen.

A processor changes the logits (R, V) in place, given the tokens that each row has generated so far (R, n) and the index
of the sentence that each row belongs to (R,). Tokens that are ruled out get −∞, so that the others share their
probability.

Third-party processors are registered as factories, which receive a `DecodingContext`:

    @LOGITS_PROCESSORS.register("no-digits")
    def no_digits(context: DecodingContext) -> LogitsProcessor:
        return SuppressTokens(tuple(n for n, text in enumerate(context.token_texts) if text.strip().isdigit()))

    model.translate("I have 3 cats.", logits_processors=["no-digits"])

R rows · n generated tokens · V vocabulary
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from regard.config import SpecialTokensConfig
from regard.decoding.options import OutputConstraints
from regard.registry import Registry

WORD_CONTEXT = 24  # tokens at the end of the output that are searched for the beginning of a suppressed word


class LogitsProcessor(Protocol):
    """Changes logits in place."""

    def __call__(self, logits: Tensor, generated: Tensor, sentences: Tensor) -> None:
        """Change logits (R, V), given the generated tokens (R, n) and the sentence of each row (R,).

        Translations do not include the start token; continuations include the prompt for processors from outside the
        package and for repetition penalties, and only what follows it for the built-in constraints.
        """
        ...


@dataclass(frozen=True)
class DecodingContext:
    """What a processor can depend on."""

    tokens: SpecialTokensConfig
    constraints: OutputConstraints = field(default_factory=OutputConstraints)
    token_texts: Sequence[str] = ()
    """The text of each token by its id, leading space included."""


LogitsProcessorFactory = Callable[[DecodingContext], LogitsProcessor | None]
"""Returns the processor for a context; None if the context does not need it."""

LOGITS_PROCESSORS: Registry[LogitsProcessorFactory] = Registry(
    "logits_processors",
    {
        "special-tokens": f"{__name__}:special_tokens_processor",
        "min-length": f"{__name__}:min_length_processor",
        "suppress-sequences": f"{__name__}:suppress_sequences_processor",
        "suppress-words": f"{__name__}:suppress_words_processor",
    },
)
CONSTRAINTS = ("special-tokens", "min-length", "suppress-sequences", "suppress-words")  # in this order, always active


def constraint_processors(context: DecodingContext) -> list[LogitsProcessor]:
    """Return the processors for the constraints that are set."""
    processors = (LOGITS_PROCESSORS[name](context) for name in CONSTRAINTS)
    return [processor for processor in processors if processor is not None]


def custom_processors(context: DecodingContext) -> list[LogitsProcessor]:
    """Return the additional processors that the constraints list, by name or as objects."""
    processors = (
        LOGITS_PROCESSORS[processor](context) if isinstance(processor, str) else processor
        for processor in context.constraints.logits_processors
    )
    return [processor for processor in processors if processor is not None]


def apply_processors(
    processors: Sequence[LogitsProcessor], logits: Tensor, generated: Tensor, sentences: Tensor
) -> Tensor:
    """Apply processors in order and return the logits."""
    for processor in processors:
        processor(logits, generated, sentences)
    return logits


@dataclass(frozen=True)
class SuppressTokens:
    """Rule out single tokens."""

    ids: tuple[int, ...]

    def __call__(self, logits: Tensor, generated: Tensor, sentences: Tensor) -> None:
        logits[:, list(self.ids)] = -math.inf


@dataclass(frozen=True)
class MinLength:
    """Rule out the end tokens until `min_tokens` tokens are generated."""

    ends: tuple[int, ...]
    min_tokens: int

    def __call__(self, logits: Tensor, generated: Tensor, sentences: Tensor) -> None:
        if generated.size(1) < self.min_tokens:
            logits[:, list(self.ends)] = -math.inf


@dataclass(frozen=True)
class SuppressSequences:
    """Rule out the last token of each sequence wherever its other tokens have just been generated."""

    sequences: tuple[tuple[int, ...], ...]

    def __call__(self, logits: Tensor, generated: Tensor, sentences: Tensor) -> None:
        for *start, last in self.sequences:
            if len(start) > generated.size(1):
                continue
            tail = generated[:, generated.size(1) - len(start) :]
            logits[(tail == tail.new_tensor(start)).all(1), last] = -math.inf


@dataclass(frozen=True)
class NoRepeatNgram:
    """Rule out tokens that would repeat an n-gram of this size."""

    size: int

    def __call__(self, logits: Tensor, generated: Tensor, sentences: Tensor) -> None:
        if generated.size(1) < self.size:
            return
        ngrams = generated.unfold(1, self.size, 1)  # (R, n - size + 1, size)
        tail = generated[:, generated.size(1) - self.size + 1 :]
        repeated = (ngrams[:, :, :-1] == tail[:, None]).all(-1)  # n-grams that begin like the current tail
        rows, positions = repeated.nonzero(as_tuple=True)
        logits[rows, ngrams[rows, positions, -1]] = -math.inf


@dataclass(frozen=True)
class RepetitionPenalty:
    """Divide the positive logits of tokens that have occurred by the penalty, and multiply the negative ones."""

    penalty: float

    def __call__(self, logits: Tensor, generated: Tensor, sentences: Tensor) -> None:
        if generated.size(1) == 0:
            return
        seen = logits.gather(1, generated)
        logits.scatter_(1, generated, torch.where(seen > 0, seen / self.penalty, seen * self.penalty))


class ForcedPrefix:
    """Force the first tokens of each sentence; forced tokens have probability 1."""

    def __init__(self, prefixes: Sequence[Sequence[int]]) -> None:
        self.longest = max(map(len, prefixes), default=0)
        self._table = torch.tensor([[*prefix, *[-1] * (self.longest - len(prefix))] for prefix in prefixes])

    def __call__(self, logits: Tensor, generated: Tensor, sentences: Tensor) -> None:
        if generated.size(1) >= self.longest:
            return
        forced = self._table[:, generated.size(1)].to(logits.device)[sentences]
        rows = (forced >= 0).nonzero().squeeze(1)
        logits[rows] = -math.inf
        logits[rows, forced[rows]] = 0.0


class SuppressWords:
    """Rule out words or phrases, however they are split into tokens; `token_texts` is the text of each token.

    A word occurs in a text if there is a word boundary on both sides: the start or end of the text, or a character that
    is not alphanumeric. A token is ruled out if it would complete a word and end there, or continue with a boundary. A
    longer word is ruled out only if its first tokens are the whole suppressed word: had "caffè" been generated, only an
    ending that no word has ("caffèa") could avoid it. Tokens that contain more of the longer word are free.
    """

    def __init__(self, words: Sequence[str], token_texts: Sequence[str]) -> None:
        self._token_texts = token_texts
        self._tables = [_WordTable(word, token_texts) for word in words if word]

    def __call__(self, logits: Tensor, generated: Tensor, sentences: Tensor) -> None:
        for row, ids in enumerate(generated[:, -WORD_CONTEXT:].tolist()):
            text = "".join(self._token_texts[token] for token in ids)
            for table in self._tables:
                for tokens in table.suppressed_after(text, is_whole=generated.size(1) <= WORD_CONTEXT):
                    logits[row, tokens.to(logits.device)] = -math.inf


class _WordTable:
    """The tokens that complete one word, by how many of its characters the text already ends with."""

    def __init__(self, word: str, token_texts: Sequence[str]) -> None:
        self._word = word
        self._containing = _ids(n for n, text in enumerate(token_texts) if _contains_word(word, text))
        self._completing = []
        for size in range(len(word)):
            rest = word[size:]
            self._completing.append(
                _ids(
                    n for n, text in enumerate(token_texts) if text.startswith(rest) and _ends_at(word, text, len(rest))
                )
            )

    def suppressed_after(self, text: str, *, is_whole: bool) -> list[Tensor]:
        """Return the tokens that may not follow a text, or the end of a text if it is not whole."""
        suppressed = [self._containing]
        for size, tokens in enumerate(self._completing):
            start = len(text) - size
            if start >= 0 and text.endswith(self._word[:size]):
                at_beginning = start == 0 and is_whole
                if at_beginning or (start > 0 and _can_start_at(self._word, text, start)):
                    suppressed.append(tokens)
        return [tokens for tokens in suppressed if len(tokens)]


def _ids(numbers: Iterable[int]) -> Tensor:
    return torch.tensor(list(numbers), dtype=torch.long)


def _can_start_at(word: str, text: str, position: int) -> bool:
    """Return whether there is a word boundary before a position of a text other than 0."""
    return not (word[0].isalnum() and text[position - 1].isalnum())


def _ends_at(word: str, text: str, position: int) -> bool:
    """Return whether a word ends at a position of a token: at the end of the token, or at a boundary inside."""
    return not word[-1].isalnum() or position == len(text) or not text[position].isalnum()


def _contains_word(word: str, text: str) -> bool:
    """Return whether a token contains a whole word after its first character, whatever surrounds the token."""
    position = text.find(word, 1)
    while position > 0:
        if _can_start_at(word, text, position) and _ends_at(word, text, position + len(word)):
            return True
        position = text.find(word, position + 1)
    return False


def suppress_special_tokens(tokens: SpecialTokensConfig) -> SuppressTokens:
    """Rule out padding and start tokens, except where a network uses the same token as its end token."""
    return SuppressTokens(tuple({tokens.pad, tokens.start} - {*tokens.ends}))


def special_tokens_processor(context: DecodingContext) -> LogitsProcessor:
    """Create the processor that rules out padding and start tokens."""
    return suppress_special_tokens(context.tokens)


def min_length_processor(context: DecodingContext) -> LogitsProcessor | None:
    """Create the processor for `min_tokens`."""
    min_tokens = context.constraints.min_tokens
    return MinLength(context.tokens.ends, min_tokens) if min_tokens else None


def suppress_sequences_processor(context: DecodingContext) -> LogitsProcessor | None:
    """Create the processor for `suppressed_sequences`."""
    sequences = context.constraints.suppressed_sequences
    return SuppressSequences(sequences) if sequences else None


def suppress_words_processor(context: DecodingContext) -> LogitsProcessor | None:
    """Create the processor for `suppressed_words`."""
    words = context.constraints.suppressed_words
    return SuppressWords(words, context.token_texts) if words else None
