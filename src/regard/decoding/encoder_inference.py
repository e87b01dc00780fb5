"""Text encoders: tokenize texts as in training, encode them in batches of similar length; embed, classify and tag them.

B texts of a batch · N texts, or words of a sentence · S tokens · C model width · L labels
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.choices import Pooling
from regard.config import ClassHeadConfig, Config, EncoderConfig, EncoderOnlyConfig, TagHeadConfig
from regard.data.batching import BatchSampler
from regard.data.encoder_batches import EncoderInput, InputTemplate, make_encoder_batch, words_with_spaces
from regard.data.tokenizer import Tokenizer
from regard.decoding.results import Classification, Embeddings, TaggedWord
from regard.errors import ConfigError
from regard.models.network import EncoderNetwork, Memory, Network
from regard.nn import DensePooling, FirstTokenPooling, MeanPooling

TextOrPair = str | tuple[str, str]
"""A text, or a pair of texts."""
ENCODER_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class TextEncoder:
    """An encoder network with its tokenizer."""

    network: EncoderNetwork
    config: Config
    tokenizer: Tokenizer
    max_tokens: int | None = None
    """Truncate texts to this many tokens, if it is fewer than the network's maximum length."""

    @classmethod
    def for_network(cls, network: Network, config: Config, tokenizer: Tokenizer, name: str) -> "TextEncoder":
        """Create the text encoder of a network; raise ConfigError for the model `name` if it is not an encoder."""
        if not isinstance(network, EncoderNetwork):
            raise ConfigError(
                f"{name}: is a model of type {config.model.family}, which does not encode texts as vectors or labels; "
                "use an encoder, as trained with regard train masked, elmo, classify or tag."
            )
        return cls(network, config, tokenizer)

    @property
    def template(self) -> InputTemplate:
        """The special tokens around texts, and the maximum number of tokens."""
        limits = [limit for limit in (self.config.model.max_length, self.max_tokens) if limit is not None]
        return InputTemplate.for_model(self.config.tokens, min(limits, default=None))

    def tokenize(self, texts: Sequence[TextOrPair]) -> list[EncoderInput]:
        """Return the network's input for each text; texts that are too long are truncated."""
        pairs = [(text, None) if isinstance(text, str) else text for text in texts]
        firsts = self.tokenizer.encode_batch([first for first, _ in pairs])
        seconds = iter(self.tokenizer.encode_batch([second for _, second in pairs if second is not None]))
        return [
            self.template.wrap(first, None if second is None else next(seconds))
            for first, (_, second) in zip(firsts, pairs, strict=True)
        ]

    def tokenize_words(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[tuple[list[int], list[int]]]]:
        """Yield the inputs of each sentence: token ids, and the positions where words begin.

        A sentence that is too long has several inputs.
        """
        words_ids = iter(
            self.tokenizer.encode_batch([text for words in sentences for text in words_with_spaces(words)])
        )
        for words in sentences:
            yield list(self.template.wrap_words([next(words_ids) for _ in words], self.config.tokens.unknown))

    @torch.no_grad()
    def encode(self, inputs: Sequence[EncoderInput]) -> Iterator[tuple[NDArray[np.int64], Memory]]:
        """Yield, batch by batch, the indices of the inputs in the batch and their encoded states."""
        if not inputs:
            return
        lengths = np.array([[len(row.ids) for row in inputs]])
        device = next(self.network.parameters()).device
        segments = self.config.model.segments if isinstance(self.config.model, EncoderOnlyConfig) else 0
        for indices in BatchSampler(lengths, ENCODER_BATCH_TOKENS).epoch(0):
            rows = [np.array(inputs[n].ids, np.int64) for n in indices]
            batch = make_encoder_batch(rows, [inputs[n].second_length for n in indices], self.config.tokens.pad)
            features = {"segment_ids": torch.from_numpy(batch.segment_ids).to(device)} if segments > 1 else None
            ids, mask = (torch.from_numpy(array).to(device) for array in (batch.ids, batch.mask))
            yield indices, self.network.encode(ids, mask, features)


def embed(
    encoder: TextEncoder, texts: Sequence[TextOrPair], pooling: Pooling | None = None, *, normalize: bool = False
) -> Embeddings:
    """Return one vector per text.

    Args:
        encoder: A text encoder.
        texts: Texts, or pairs of texts.
        pooling: How token vectors become a text vector; None: as the model was trained.
        normalize: Scale vectors to length 1.
    """
    inputs = encoder.tokenize(texts)
    vectors = embed_inputs(encoder, inputs, pooling, normalize=normalize)
    return Embeddings(vectors, sum(row.truncated for row in inputs))


@torch.no_grad()
def embed_inputs(
    encoder: TextEncoder, inputs: Sequence[EncoderInput], pooling: Pooling | None = None, *, normalize: bool = False
) -> NDArray[np.float32]:
    """Return one vector per tokenized text (N, C); see `embed`."""
    pool = _pooling_module(encoder, pooling)
    vectors = np.zeros((len(inputs), encoder.config.model.width), np.float32)
    for indices, memory in encoder.encode(inputs):
        vectors[indices] = pool(memory.states, memory.mask).float().cpu().numpy()
    if normalize:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors


def _pooling_module(encoder: TextEncoder, pooling: Pooling | None) -> torch.nn.Module:
    own = encoder.network.pooling
    if pooling == "first-dense" and not isinstance(own, DensePooling):
        raise ConfigError("pooling = first-dense: this model was trained without a dense layer; use mean or first.")
    return {"mean": MeanPooling(), "first": FirstTokenPooling(), "first-dense": own, None: own}[pooling]


def labels_of_head(
    encoder: TextEncoder, head: type[ClassHeadConfig] | type[TagHeadConfig], name: str
) -> tuple[str, ...]:
    """Return the labels of a network with such a head; raise ConfigError for the model `name` if it has none."""
    model = encoder.config.model
    model_head = model.head if isinstance(model, EncoderConfig) else None
    if isinstance(model_head, head):
        return model_head.labels
    what, command = ("texts", "classify") if head is ClassHeadConfig else ("words", "tag")
    if model_head is not None and model_head.kind != "none":
        reason = f"its head is for {model_head.kind}"
    else:
        reason = "it has no head"
    raise ConfigError(f"{name}: cannot label {what}, because {reason}; train a model with regard train {command}.")


def classify(encoder: TextEncoder, texts: Sequence[TextOrPair], name: str = "the model") -> list[Classification]:
    """Return the label of each text; `name` is what the model is called in errors."""
    labels = labels_of_head(encoder, ClassHeadConfig, name)
    probabilities, truncated = label_probabilities(encoder, texts)
    return [
        Classification(labels[int(row.argmax())], dict(zip(labels, row.tolist(), strict=True)), is_truncated)
        for row, is_truncated in zip(probabilities, truncated, strict=True)
    ]


@torch.no_grad()
def label_probabilities(encoder: TextEncoder, texts: Sequence[TextOrPair]) -> tuple[NDArray[np.float64], list[bool]]:
    """Return the probability of each label for each text (N, L), and which texts were truncated."""
    inputs = encoder.tokenize(texts)
    labels = labels_of_head(encoder, ClassHeadConfig, "the model")
    probabilities = np.zeros((len(inputs), len(labels)))
    for indices, memory in encoder.encode(inputs):
        logits = encoder.network.logits(encoder.network.pool(memory))
        probabilities[indices] = logits.double().softmax(-1).cpu().numpy()
    return probabilities, [row.truncated for row in inputs]


def tag(encoder: TextEncoder, sentences: Sequence[Sequence[str]], name: str = "the model") -> list[list[TaggedWord]]:
    """Return the words of each sentence with their tags; `name` is what the model is called in errors."""
    labels = labels_of_head(encoder, TagHeadConfig, name)
    return [
        [TaggedWord(word, labels[int(row.argmax())], float(row.max())) for word, row in zip(words, rows, strict=True)]
        for words, rows in zip(sentences, tag_probabilities(encoder, sentences), strict=True)
    ]


@torch.no_grad()
def tag_probabilities(encoder: TextEncoder, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
    """Return the probability of each tag for each word (N, L), sentence by sentence.

    A sentence longer than the network's maximum length is tagged in several independent parts.
    """
    sentence_inputs = list(encoder.tokenize_words(sentences))
    inputs = [row for rows in sentence_inputs for row in rows]
    probabilities: dict[int, NDArray[np.float64]] = {}
    for indices, memory in encoder.encode([EncoderInput(ids) for ids, _ in inputs]):
        for row, n in enumerate(indices):
            word_states = memory.states[row, inputs[n][1]]  # (N, C): the first token of each word
            probabilities[int(n)] = encoder.network.logits(word_states).double().softmax(-1).cpu().numpy()
    parts = iter(probabilities[n] for n in range(len(inputs)))
    empty = np.zeros((0, len(labels_of_head(encoder, TagHeadConfig, "the model"))))
    return [np.concatenate([empty, *(next(parts) for _ in rows)]) for rows in sentence_inputs]


class Word(NamedTuple):
    """A word or punctuation mark with its range of characters."""

    text: str
    start: int
    end: int


def split_words(sentence: str, *, split_punctuation: bool = False) -> list[Word]:
    """Split a sentence at spaces; with `split_punctuation`, punctuation around words becomes words of its own.

    >>> [word.text for word in split_words("(Ada's) friend, 5 €.", split_punctuation=True)]
    ['(', "Ada's", ')', 'friend', ',', '5', '€', '.']
    >>> split_words("in London.")
    [Word(text='in', start=0, end=2), Word(text='London.', start=3, end=10)]
    """
    words = (Word(match[0], *match.span()) for match in re.finditer(r"\S+", sentence))
    return [part for word in words for part in _split_punctuation(word)] if split_punctuation else list(words)


def _split_punctuation(word: Word) -> Iterator[Word]:
    """Yield the punctuation before a word, the word, and the punctuation after it."""
    text = word.text
    first = next((n for n, character in enumerate(text) if not _is_punctuation(character)), len(text))
    last = max((n + 1 for n, character in enumerate(text) if not _is_punctuation(character)), default=first)
    for start, end in [*_single_characters(0, first), (first, last), *_single_characters(last, len(text))]:
        if end > start:
            yield Word(text[start:end], word.start + start, word.start + end)


def _single_characters(start: int, end: int) -> list[tuple[int, int]]:
    return [(n, n + 1) for n in range(start, end)]


def _is_punctuation(character: str) -> bool:
    """Return whether a character is punctuation or a symbol; combining marks are neither."""
    return unicodedata.category(character)[0] in "PS"
