"""What a network reads and writes, found by the real decoding: the search of translators, the sampling of writers.

All of it is ids here. A trace then reads the same ids again, with taps open.
"""

from dataclasses import dataclass, field, replace
from typing import TypeVar

from regard.data.masked_text import encode_masked
from regard.data.parses import END_POSITION, Parse, TokenFeatures, token_features
from regard.decoding.engines.engine import SearchRequest
from regard.decoding.engines.pytorch import TorchEngine
from regard.decoding.generator import prompt_ids
from regard.decoding.options import GenerationOptions, OutputConstraints, SamplingOptions, TranslationOptions
from regard.decoding.results import Hypothesis
from regard.decoding.sampling import Sampler
from regard.errors import ConfigError, InputError
from regard.interpret.given import given
from regard.interpret.subject import Subject
from regard.interpret.tree import Tree, chain

LONGEST = 512  # tokens that a trace may have on each side
LENGTH = 20  # tokens that a language model writes where no length is asked for
WIDEST = 32  # a tree of more hypotheses is not to be looked at
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Written:
    """What the encoder read, what the decoder read, and what followed each of the decoder's tokens."""

    source: list[int] | None
    read: list[int] | None
    follows: list[int]
    given: int  # how many of those were not chosen: a prompt's, or all of a target that was forced
    ended: bool = True
    found: Hypothesis | None = None
    tree: Tree | None = None
    facts: TokenFeatures = field(default_factory=dict)  # what a parse tells of the source's tokens, its end included
    told: list[int] | None = None  # what an encoder's head should have told, where that is given


def write(
    subject: Subject,
    text: str,
    wish: TranslationOptions | GenerationOptions | None,
    target: str | None,
    parse: Parse | None = None,
) -> Written:
    """Decode, or force the target that is given; `parse` is the text's, where the network reads one."""
    model = subject.config.model
    if model.translates:
        return _translated(subject, text, _wish(wish, TranslationOptions, "TranslationOptions, or none"), target, parse)
    if model.generates:
        return _continued(subject, text, _wish(wish, GenerationOptions, "GenerationOptions, or none"), target)
    source = _encoder_ids(subject, text)
    return Written(source, None, [], 0, told=None if target is None else given(subject, text, source, target))


def _translated(
    subject: Subject, text: str, wish: TranslationOptions | None, target: str | None, parse: Parse | None
) -> Written:
    tokens = subject.config.tokens
    ((ids, offsets),) = subject.source.encode_with_offsets([text.strip()])
    facts = token_features(parse, offsets) if parse is not None else {}
    known = {name: [*facts[name], end] for name, end in zip(facts, END_POSITION, strict=False)}
    wish = wish or TranslationOptions()
    source = [*_checked(subject, ids, "text"), tokens.end]
    if target is not None:
        forced = _checked(subject, subject.target.encode(target.strip()), "target")
        return Written(source, [tokens.start, *forced], [*forced, tokens.end], len(forced) + 1, facts=known)
    search = wish.search
    if search.width > WIDEST:
        raise InputError(f"A tree of a beam of {search.width} is too wide to look at; up to {WIDEST} can be shown.")
    words = (*search.bounds.words, *wish.forbidden)
    search = replace(search, bounds=replace(search.bounds, words=words))
    tree = Tree(search)
    task = SearchRequest(
        [ids],
        search,
        [subject.target.encode(wish.prefix)] if wish.prefix else None,
        spelling=subject.target.token_strings() if words else (),
        facts=[facts] if facts else (),
    )
    found = TorchEngine([subject.network], subject.config, observer=tree).search(task)[0][0]
    tree = tree.close() if len(tree.nodes) > 1 else chain(found, tokens.end, search)
    follows = [*found.ids, tokens.end] if found.ended else found.ids
    return Written(source, [tokens.start, *follows[:-1]], follows, 0, found.ended, found, tree, known)


def _continued(subject: Subject, text: str, wish: GenerationOptions | None, target: str | None) -> Written:
    config = subject.config
    prompt = prompt_ids(text, config, subject.target)
    if target is not None:
        forced = subject.target.encode(target)
        whole = _checked(subject, [*prompt, *forced, config.tokens.end], "text")
        return Written(None, whole[:-1], whole[1:], len(whole) - 1)
    sampling = wish.sampling if wish is not None else SamplingOptions(temperature=0)
    room = _room(subject) - len(prompt) + 1
    if room < 1:
        _checked(subject, [*prompt, 0], "text")
    longest = min(sampling.bounds.longest or LENGTH, room)
    bounds = OutputConstraints(
        min(sampling.bounds.shortest, longest), longest, sampling.bounds.forbidden, sampling.bounds.words
    )
    spelling = subject.target.token_strings() if bounds.words else ()
    writer = Sampler(
        [subject.network],
        [prompt],
        [0],
        config.tokens,
        replace(sampling, bounds=bounds),
        config.context_window,
        spelling,
    )
    while writer.open:
        writer.step()
    written = writer.text(0)
    whole = [*prompt, *written]
    return Written(None, whole[:-1], whole[1:], len(prompt) - 1, written[-1] == config.tokens.end)


def _encoder_ids(subject: Subject, text: str) -> list[int]:
    """A text between its start and its end, as encoders are trained; where tokens are guessed, [MASK] hides one."""
    tokens = subject.config.tokens
    if subject.config.model.task == "masked" and tokens.mask is not None:
        ids = encode_masked(subject.source, text, tokens.mask)
    else:
        ids = subject.source.encode(text)
    return _checked(subject, [tokens.start, *_checked(subject, ids, "text"), tokens.end], "text")


def _checked(subject: Subject, ids: list[int], what: str) -> list[int]:
    if not ids:
        raise InputError(f"There is no {what} to look at: give a sentence.")
    if len(ids) + 1 > _room(subject):
        raise InputError(
            f"The {what} is {len(ids)} tokens long, and a trace of this network has room for {_room(subject) - 1}: "
            "shorten it, or look at its sentences one by one."
        )
    return ids


def _room(subject: Subject) -> int:
    return min(LONGEST, subject.config.context_window or LONGEST)


def _wish(wish: object, kind: type[Kind], what: str) -> Kind | None:
    if wish is not None and not isinstance(wish, kind):
        raise ConfigError(f"a {type(wish).__name__} does not fit this model; give a {what}.")
    return wish
