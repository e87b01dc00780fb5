"""Decode a text for a trace with the real search or sampling, or tokenize a target that is forced.

The result holds token ids only. The trace then runs the network over the same ids with its taps open.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from regard.config import ClassHeadConfig, Config, EncoderConfig, TagHeadConfig
from regard.config.errors import did_you_mean
from regard.data.masking import encode_fillers, encode_masked
from regard.data.syntax import END_POSITION, Parse, TokenFeatures, token_features
from regard.data.tokenizer import Tokenizer
from regard.decoding.engines import SearchRequest
from regard.decoding.engines.pytorch import TorchEngine
from regard.decoding.generator import prompt_ids
from regard.decoding.options import GenerationOptions, SamplingOptions, TranslationOptions
from regard.decoding.results import Hypothesis
from regard.decoding.sampling import Sampler
from regard.errors import ConfigError, InputError
from regard.interpret.search_tree import SearchTree, greedy_tree
from regard.models.network import Network
from regard.training.task import abilities

MAX_TRACE_TOKENS = 512  # on each side
MAX_SPECIAL_TOKENS = 3  # added to a text: its start, its end, and the next token
DEFAULT_LENGTH = 20  # tokens that a language model generates if no length is set
MAX_TREE_BEAM = 32
Options = TypeVar("Options")


@dataclass(frozen=True)
class TracedModel:
    """A network with its config, tokenizers and display name."""

    network: Network
    config: Config
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer  # often the same
    name: str = ""


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
    return DecodedText(None, ids[:-1], ids[1:], len(prompt) - 1, generated[-1] == config.tokens.end)


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
