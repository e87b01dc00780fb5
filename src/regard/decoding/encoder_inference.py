"""Text encoders: encode texts in batches of similar length; embed, classify, tag, and predict masked tokens.

Texts are tokenized as in training. Each `[MASK]` is one token, and is predicted independently of the other masks:

    filled = regard.load("runs/encoder").fill_detailed(["The man [MASK] a small dinosaur."], top_k=5)[0]
    [(candidate.text, candidate.probability) for candidate in filled.masks[0]]

B texts of a batch · N texts, words of a sentence, or masks · S tokens · C model width · L labels · V vocabulary
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import ClassHeadConfig, Config, EncoderConfig, EncoderOnlyConfig, SpecialTokensConfig, TagHeadConfig
from regard.data.batching import BatchSampler
from regard.data.encoder_batches import (
    NUM_SPECIAL_TOKENS,
    EncoderInput,
    InputTemplate,
    TextOrPair,
    make_encoder_batch,
    words_with_spaces,
)
from regard.data.masking import encode_masked
from regard.data.store import chunked
from regard.data.tokenizer import MASK_TOKEN, Tokenizer
from regard.decoding.results import Classification, Embeddings, FillCandidate, FilledText, TaggedWord
from regard.errors import ConfigError, InputError
from regard.models.network import EncoderNetwork, Memory, Network
from regard.nn import DensePooling, FirstTokenPooling, MeanPooling, ReLUPooling
from regard.registry import Pooling

ENCODER_BATCH_TOKENS = 4096
FILL_BATCH = 64  # texts


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
    if pooling == "first-dense" and type(own) is not DensePooling:
        raise ConfigError("pooling = first-dense: this model was trained without a dense layer; use mean or first.")
    if pooling == "first-relu" and not isinstance(own, ReLUPooling):
        raise ConfigError("pooling = first-relu: this model was trained without a ReLU layer; use mean or first.")
    return {"mean": MeanPooling(), "first": FirstTokenPooling()}.get(pooling or "", own)


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


@dataclass(frozen=True)
class MaskFiller:
    """Masked language models with their tokenizer; the probabilities of several networks are averaged."""

    networks: Sequence[Network]
    tokenizer: Tokenizer
    tokens: SpecialTokensConfig
    max_length: int | None = None
    """Maximum number of tokens, start and end token included; None: no limit."""

    @property
    def mask_id(self) -> int:
        """The id of the mask token."""
        assert self.tokens.mask is not None  # checked by `Model.mask_filler`
        return self.tokens.mask

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text with masks, without start and end token."""
        return encode_masked(self.tokenizer, text, self.mask_id)

    def fill(self, texts: Sequence[str], top_k: int = 5) -> list[FilledText]:
        """Return the `top_k` most probable tokens for each mask of each text."""
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it should be 1 or more.")
        for number, text in enumerate(texts, start=1):
            if (problem := self.problem_with(text)) is not None:
                raise InputError(f"text {number}: {problem}.")
        rows = [self.encode(text) for text in texts]
        predictions = predict_masks(self.networks, rows, self.tokens, top_k)
        return [self._filled(*row) for row in zip(texts, rows, predictions, strict=True)]

    def problem_with(self, text: str) -> str | None:
        """Return why a text cannot be filled, and what to do; None if it can."""
        ids = self.encode(text)
        if self.mask_id not in ids:
            return f"has no {MASK_TOKEN}; write {MASK_TOKEN} where a word is missing"
        size = len(ids) + NUM_SPECIAL_TOKENS
        if self.max_length is not None and size > self.max_length:
            return (
                f"has {size:,} tokens with start and end token, but this network has {self.max_length:,} learned "
                "positions; shorten it"
            )
        return None

    def _filled(self, source: str, ids: list[int], predictions: list[list[tuple[int, float]]]) -> FilledText:
        best = iter([ranked[0][0] for ranked in predictions])
        filled_ids = [next(best) if token == self.mask_id else token for token in ids]
        return FilledText(source, self.tokenizer.decode(filled_ids), [self._candidates(row) for row in predictions])

    def _candidates(self, ranked: list[tuple[int, float]]) -> list[FillCandidate]:
        tokens = self.tokenizer.ids_to_tokens([token_id for token_id, _ in ranked])
        return [
            FillCandidate(token, self.tokenizer.decode([token_id]).strip(), probability)
            for token, (token_id, probability) in zip(tokens, ranked, strict=True)
        ]


@torch.no_grad()
def predict_masks(
    networks: Sequence[Network], rows: Sequence[Sequence[int]], tokens: SpecialTokensConfig, top_k: int
) -> list[list[list[tuple[int, float]]]]:
    """Return, for each mask of each row of ids, the `top_k` most probable tokens and their probabilities."""
    assert tokens.mask is not None
    results: list[list[list[tuple[int, float]]]] = [[] for _ in rows]
    for indices in chunked(sorted(range(len(rows)), key=lambda n: len(rows[n])), FILL_BATCH):
        ids, mask = _pad([rows[n] for n in indices], tokens, next(networks[0].parameters()).device)
        positions = torch.eq(ids, tokens.mask).nonzero()  # (N, 2) row by row
        probabilities = _mask_probabilities(networks, ids, mask, positions, tokens)
        top = probabilities.topk(min(top_k, probabilities.size(1)))
        batch_rows = zip(positions[:, 0].tolist(), top.indices.tolist(), top.values.tolist(), strict=True)
        for row, token_ids, values in batch_rows:
            ranked = [(token, value) for token, value in zip(token_ids, values, strict=True) if value > 0]
            results[indices[row]].append(ranked)
    return results


def _mask_probabilities(
    networks: Sequence[Network], ids: Tensor, mask: Tensor, positions: Tensor, tokens: SpecialTokensConfig
) -> Tensor:
    """Return the mean probabilities over the networks (N, V); special tokens have none."""
    special = sorted(tokens.ids)
    probabilities = []
    for network in networks:
        states = network.encode(ids, mask).states[positions[:, 0], positions[:, 1]]  # (N, C)
        logits = network.logits(states).float()
        logits[:, special] = -torch.inf
        probabilities.append(logits.softmax(-1))
    return torch.stack(probabilities).mean(0)


def _pad(rows: Sequence[Sequence[int]], tokens: SpecialTokensConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return rows between start and end token as a batch (B, S), and its token mask."""
    width = max(map(len, rows)) + NUM_SPECIAL_TOKENS
    wrapped = [[tokens.start, *row, tokens.end] for row in rows]
    ids = torch.tensor([[*row, *[tokens.pad] * (width - len(row))] for row in wrapped], device=device)
    lengths = torch.tensor([[len(row)] for row in wrapped], device=device)
    return ids, torch.arange(width, device=device) < lengths
