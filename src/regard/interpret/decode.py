"""Decode a text for a trace with the real search or sampling, or tokenize a target that is forced.

The result holds token ids, and for a beam search its tree: every hypothesis prefix that was considered, its scores and
what happened to it. The trace then runs the network over the same ids with its taps open.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from pydantic import JsonValue
from torch import Tensor

from regard.config import ClassHeadConfig, Config, EncoderConfig, TagHeadConfig
from regard.config.errors import did_you_mean
from regard.data.masking import encode_fillers, encode_masked
from regard.data.syntax import END_POSITION, Parse, TokenFeatures, token_features
from regard.data.tokenizer import Tokenizer
from regard.decoding.beam_search import Continuations
from regard.decoding.engines import SearchRequest
from regard.decoding.engines.pytorch import TorchEngine
from regard.decoding.generator import prompt_ids
from regard.decoding.options import GenerationOptions, SamplingOptions, SearchOptions, TranslationOptions
from regard.decoding.results import Hypothesis
from regard.decoding.sampling import Sampler
from regard.errors import ConfigError, InputError
from regard.models.network import Network
from regard.training.task import abilities

NodeState = Literal["root", "kept", "pruned", "finished", "open", "cut"]
"""What happened to a prefix:
kept        it was among the best of its step and was extended
pruned      other prefixes were better
finished    it ended with the end token
open        it was among the best when the search stopped early
cut         the maximum length was reached before any hypothesis finished, and it was returned unfinished
"""
MAX_TRACE_TOKENS = 512  # on each side
MAX_SPECIAL_TOKENS = 3  # added to a text: its start, its end, and the next token
DEFAULT_LENGTH = 20  # tokens that a language model generates if no length is set
MAX_TREE_BEAM = 32
Options = TypeVar("Options")


@dataclass
class SearchNode:
    """One prefix: the path from the root to this node. Logarithms are natural."""

    number: int
    parent: int | None
    step: int  # at which its last token was generated; -1 for the root
    token_id: int | None
    token_log_probability: float  # of its last token
    log_probability: float  # of the path
    score: float  # log_probability after the length penalty, as if the hypothesis ended here
    rank: int  # among the continuations of its step
    state: NodeState = "pruned"
    on_best_path: bool = False


@dataclass
class SearchTree:
    """Observer of the beam search of one sentence."""

    search: SearchOptions
    nodes: list[SearchNode] = field(default_factory=list)
    _beams: list[SearchNode | None] = field(default_factory=list)
    _continuations: list[SearchNode | None] = field(default_factory=list)
    _finished: list[tuple[float, SearchNode]] = field(default_factory=list)

    def __post_init__(self) -> None:
        root = SearchNode(0, None, -1, None, 0.0, 0.0, 0.0, 0, "root")
        self.nodes, self._beams = [root], [root]

    def on_step(self, sentences: list[int], best: Continuations, kept: Tensor) -> None:
        """Add the continuations of one step."""
        rows = zip(
            best.scores[0].tolist(),
            best.origin[0].tolist(),
            best.token[0].tolist(),
            best.token_score[0].tolist(),
            strict=True,
        )
        self._continuations = [self._add(rank, *row) for rank, row in enumerate(rows)]
        self._beams = [self._continuations[index] for index in kept[0].tolist()]
        for node in self._beams:
            if node is not None:
                node.state = "kept"

    def on_finished(self, sentence: int, place: int, hypothesis: Hypothesis) -> None:
        """Mark a continuation that ended with the end token."""
        self._finish(self._continuations[place], hypothesis, "finished")

    def on_cut(self, sentence: int, beam: int, hypothesis: Hypothesis) -> None:
        """Mark a beam that was returned unfinished at the maximum length."""
        self._finish(self._beams[beam], hypothesis, "cut")

    def close(self) -> "SearchTree":
        """Mark the remaining beams and the path to the best hypothesis, after the search."""
        for beam in self._beams:
            if beam is not None and beam.state == "kept":
                beam.state = "open"
        if self._finished:
            node: SearchNode | None = max(self._finished, key=lambda pair: pair[0])[1]  # the first of equal scores
            while node is not None:
                node.on_best_path = True
                node = None if node.parent is None else self.nodes[node.parent]
        return self

    def path(self, node: SearchNode) -> list[int]:
        """Return the token ids from the root to a node."""
        ids: list[int] = []
        while node.parent is not None and node.token_id is not None:
            ids.append(node.token_id)
            node = self.nodes[node.parent]
        return ids[::-1]

    def as_dict(self, tokenizer: Tokenizer) -> dict[str, JsonValue]:
        """Return the search options and all nodes, for JSON."""
        tokens = tokenizer.ids_to_tokens([node.token_id for node in self.nodes if node.token_id is not None])
        return {
            "beam": self.search.beam,
            "length_penalty": self.search.length_penalty,
            "nodes": [
                {
                    "number": node.number,
                    "parent": node.parent,
                    "step": node.step,
                    "token_id": node.token_id,
                    "token": token,
                    "token_log_probability": node.token_log_probability,
                    "log_probability": node.log_probability,
                    "score": node.score,
                    "rank": node.rank,
                    "state": node.state,
                    "on_best_path": node.on_best_path,
                }
                for node, token in zip(self.nodes, ["", *tokens], strict=True)
            ],
        }

    def _add(
        self, rank: int, log_probability: float, origin: int, token: int, token_log_probability: float
    ) -> SearchNode | None:
        parent = self._beams[origin]
        if parent is None or not math.isfinite(log_probability):
            return None
        step = parent.step + 1
        score = self.search.score(log_probability, step + 1)
        node = SearchNode(
            len(self.nodes), parent.number, step, token, token_log_probability, log_probability, score, rank
        )
        self.nodes.append(node)
        return node

    def _finish(self, node: SearchNode | None, hypothesis: Hypothesis, state: NodeState) -> None:
        if node is not None:
            node.state, node.score = state, hypothesis.score  # includes the coverage penalty
            self._finished.append((hypothesis.score, node))


def greedy_tree(hypothesis: Hypothesis, end: int, search: SearchOptions) -> SearchTree:
    """Return the tree of a greedy search, which is a single path."""
    tree = SearchTree(search)
    ids = [*hypothesis.ids, end] if hypothesis.ended else hypothesis.ids
    total = 0.0
    for step, (token, log_probability) in enumerate(zip(ids, hypothesis.token_scores or [], strict=True)):
        total += log_probability
        score = search.score(total, step + 1)
        tree.nodes.append(
            SearchNode(step + 1, step, step, token, log_probability, total, score, 0, "kept", on_best_path=True)
        )
    tree.nodes[0].on_best_path = True
    tree.nodes[-1].state = "finished" if hypothesis.ended else "cut"
    return tree


@dataclass(frozen=True)
class TracedModel:
    """A network with its config, tokenizers and display name."""

    network: Network
    config: Config
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer  # often the same
    name: str = ""
    special_tokens: bool = False  # whether names of special tokens in a prompt are these tokens, as in a rendered chat


@dataclass(frozen=True)
class DecodedText:
    """Token ids of one text: what the encoder reads, what the decoder reads, and the token after each of the latter."""

    source_ids: list[int] | None
    input_ids: list[int] | None  # of the decoder: the target shifted right
    target_ids: list[int]
    forced: int  # number of leading target_ids from a prompt or forced target, not chosen by the model
    finished: bool = True
    hypothesis: Hypothesis | None = None
    tree: SearchTree | None = None
    features: TokenFeatures = field(default_factory=dict)  # from the parse, per source token including the end token
    expected_ids: list[int] | None = None  # labels or tokens that the user expects of an encoder's head


def decode_text(
    model: TracedModel,
    text: str,
    options: TranslationOptions | GenerationOptions | None,
    target: str | None,
    parse: Parse | None = None,
) -> DecodedText:
    """Decode a text, or force a target; `parse` is required by models with syntax positions."""
    config = model.config.model
    if config.translates:
        return _translate(model, text, _check_options(options, TranslationOptions), target, parse)
    if config.generates:
        return _generate(model, text, _check_options(options, GenerationOptions), target)
    source_ids = _encoder_ids(model, text)
    expected_ids = None if target is None else _expected_ids(model, text, source_ids, target)
    return DecodedText(source_ids, None, [], 0, expected_ids=expected_ids)


def _translate(
    model: TracedModel, text: str, options: TranslationOptions | None, target: str | None, parse: Parse | None
) -> DecodedText:
    special = model.config.tokens
    ((ids, offsets),) = model.source_tokenizer.encode_with_offsets([text.strip()])
    features = token_features(parse, offsets) if parse is not None else {}
    features_with_end = {name: [*features[name], end] for name, end in zip(features, END_POSITION, strict=False)}
    options = options or TranslationOptions()
    source_ids = [*_check_length(model, ids, "text"), special.end]
    if target is not None:
        target_ids = _check_length(model, model.target_tokenizer.encode(target.strip()), "target")
        return DecodedText(
            source_ids,
            [special.start, *target_ids],
            [*target_ids, special.end],
            len(target_ids) + 1,
            features=features_with_end,
        )
    search = options.search
    if search.beam > MAX_TREE_BEAM:
        raise InputError(
            f"A beam of {search.beam} is too large for a search tree; use a beam of {MAX_TREE_BEAM} or less."
        )
    suppressed = (*search.constraints.suppressed_words, *options.suppress)
    search = replace(search, constraints=replace(search.constraints, suppressed_words=suppressed))
    tree = SearchTree(search)
    request = SearchRequest(
        [ids],
        search,
        [model.target_tokenizer.encode(options.prefix)] if options.prefix else None,
        token_texts=model.target_tokenizer.token_strings() if suppressed else (),
        features=[features] if features else (),
    )
    hypothesis = TorchEngine([model.network], model.config, observer=tree).search(request)[0][0]
    tree = tree.close() if len(tree.nodes) > 1 else greedy_tree(hypothesis, special.end, search)
    target_ids = [*hypothesis.ids, special.end] if hypothesis.ended else hypothesis.ids
    input_ids = [special.start, *target_ids[:-1]]
    return DecodedText(source_ids, input_ids, target_ids, 0, hypothesis.ended, hypothesis, tree, features_with_end)


def _generate(model: TracedModel, text: str, options: GenerationOptions | None, target: str | None) -> DecodedText:
    config = model.config
    if model.special_tokens:
        prompt = model.target_tokenizer.encode_with_special_tokens(text)[0]
    else:
        prompt = prompt_ids(text, config, model.target_tokenizer)
    if target is not None:
        forced = model.target_tokenizer.encode(target)
        ids = _check_length(model, [*prompt, *forced, config.tokens.end], "text")
        return DecodedText(None, ids[:-1], ids[1:], len(ids) - 1)
    sampling = options.sampling if options is not None else SamplingOptions(temperature=0)
    remaining = _max_tokens(model) - len(prompt) + 1
    if remaining < 1:
        _check_length(model, [*prompt, 0], "text")
    max_tokens = min(sampling.constraints.max_tokens or DEFAULT_LENGTH, remaining)
    min_tokens = min(sampling.constraints.min_tokens, max_tokens)
    constraints = replace(sampling.constraints, min_tokens=min_tokens, max_tokens=max_tokens)
    sampler = Sampler(
        [model.network],
        [prompt],
        [0],
        config.tokens,
        replace(sampling, constraints=constraints),
        config.context_window,
        model.target_tokenizer.token_strings() if constraints.suppressed_words else (),
    )
    while sampler.active:
        sampler.step()
    generated = sampler.generated(0)
    ids = [*prompt, *generated]
    return DecodedText(None, ids[:-1], ids[1:], len(prompt) - 1, generated[-1] in config.tokens.ends)


def training_text(model: TracedModel, text: str, continuation: str) -> DecodedText:
    """Return a text as a language model is trained on it: it reads `[SOS] …` and predicts `… [EOS]`."""
    tokenizer, special = model.target_tokenizer, model.config.tokens
    ids = [*tokenizer.encode(text), *(tokenizer.encode(continuation) if continuation else [])]
    _check_length(model, ids, "text")
    return DecodedText(None, [special.start, *ids], [*ids, special.end], len(ids) + 1)


def _encoder_ids(model: TracedModel, text: str) -> list[int]:
    """Ids of a text between its start and end tokens; masked language models read [MASK] as the mask token."""
    special = model.config.tokens
    if special.mask is not None and "fill" in abilities(model.config):
        ids = encode_masked(model.source_tokenizer, text, special.mask)
    else:
        ids = model.source_tokenizer.encode(text)
    return _check_length(model, [special.start, *_check_length(model, ids, "text"), special.end], "text")


def _expected_ids(model: TracedModel, text: str, source_ids: Sequence[int], target: str) -> list[int]:
    """Ids of the label, of a tag for each token, or of a token for each [MASK], that `target` names."""
    config = model.config.model
    head = config.head if isinstance(config, EncoderConfig) else None
    if isinstance(head, ClassHeadConfig):
        return [_label_id(target.strip(), head.labels)]
    if isinstance(head, TagHeadConfig):
        tags = [_label_id(tag, head.labels) for tag in target.split()]
        if len(tags) != len(source_ids) - 2:
            raise InputError(
                f"The target has {len(tags)} tags for the {len(source_ids) - 2} tokens of the text; "
                "give one tag for each token."
            )
        return tags
    if "fill" not in abilities(model.config):
        raise InputError(f"{model.name}: models of the kind {config.family} generate no text; leave the target out.")
    mask = model.config.tokens.mask
    masks = 0 if mask is None else list(source_ids).count(mask)
    if mask is None or not masks:
        raise InputError("The text has no [MASK] that the target could fill; leave the target out.")
    tokens = encode_fillers(model.target_tokenizer, text, target, mask)
    if len(tokens) != masks:
        raise InputError(
            f"The target has {len(tokens)} tokens for the {masks} [MASK] of the text; give one token for each."
        )
    return tokens


def _label_id(name: str, labels: Sequence[str]) -> int:
    if name not in labels:
        raise InputError(f"{name!r} is not a label{did_you_mean(name, labels)}; the labels are {', '.join(labels)}.")
    return labels.index(name)


def _check_length(model: TracedModel, ids: list[int], name: str) -> list[int]:
    if not ids:
        raise InputError(f"The {name} is empty; give at least one word.")
    limit = _max_tokens(model) - 1
    if len(ids) > limit:
        raise InputError(
            f"The {name} has {len(ids)} tokens, and a trace of this model can have {limit}; "
            "shorten it, or trace its sentences separately."
        )
    return ids


def traceable_beginning(model: TracedModel, text: str, max_characters: int) -> str:
    """Return the beginning of a text that fits into a trace and has at most `max_characters`; it ends after a word."""
    text = text.strip()
    end = min(len(text), max_characters)
    ((_, offsets),) = model.source_tokenizer.encode_with_offsets([text[:end]])
    room = _max_tokens(model) - MAX_SPECIAL_TOKENS
    if len(offsets) > room:
        end = offsets[room][0]
    if end < len(text) and not text[end].isspace():
        end = max(text.rfind(" ", 0, end), 0) or end  # a word that alone is too long is cut
    return text[:end].rstrip()


def _max_tokens(model: TracedModel) -> int:
    return min(MAX_TRACE_TOKENS, model.config.context_window or MAX_TRACE_TOKENS)


def _check_options(options: object, expected: type[Options]) -> Options | None:
    if options is not None and not isinstance(options, expected):
        raise ConfigError(
            f"{type(options).__name__} does not apply to this kind of model; pass {expected.__name__} or None."
        )
    return options
