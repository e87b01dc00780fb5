"""Constrained output: a JSON schema, a regular expression or a grammar decides which tokens may follow.

`llguidance` (the extra `constrained`) computes the allowed tokens. A processor is for one call, whose rows it follows:

    grammar = Grammar.of_json_schema({"type": "object", "properties": {"city": {"type": "string"}}})
    model.generate("…", logits_processors=[grammar.processor(model.tokenizer, model.config)], engine="torch")

R rows · n tokens so far · V vocabulary
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

import numpy as np

from regard.config import Config
from regard.data.tokenizer import Tokenizer
from regard.errors import ConfigError, MissingPackageError

if TYPE_CHECKING:  # a server without torch can read a grammar, and say what is missing
    from llguidance import LLMatcher, LLTokenizer
    from torch import Tensor

MAX_GRAMMAR_CHARACTERS = 2**18
# with free white space, a weak model may write nothing else
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True)
class Grammar:
    """What an output must be."""

    source: str
    """The grammar in the format of llguidance."""
    name: str
    """What it was made from, for messages."""

    @classmethod
    def of_json_schema(cls, schema: Mapping[str, object] | bool, name: str = "json_schema") -> Self:
        """Return the grammar of JSON texts that fit a schema."""
        matcher = _import_llguidance().LLMatcher
        source = matcher.grammar_from_json_schema(json.dumps(schema), overrides=JSON_STYLE)
        return cls(_checked(source, name), name)

    @classmethod
    def of_json(cls, name: str = "json_object") -> Self:
        """Return the grammar of JSON objects."""
        return cls.of_json_schema({"type": "object"}, name)

    @classmethod
    def of_regex(cls, pattern: str, name: str = "regex") -> Self:
        """Return the grammar of the texts that match a regular expression as a whole."""
        return cls(_checked(_import_llguidance().LLMatcher.grammar_from_regex(pattern), name), name)

    @classmethod
    def of_lark(cls, grammar: str, name: str = "grammar") -> Self:
        """Return a grammar that is written in Lark's format."""
        return cls(_checked(_import_llguidance().LLMatcher.grammar_from_lark(grammar), name), name)

    def processor(self, tokenizer: Tokenizer, config: Config, ends: tuple[int, ...] = ()) -> "GrammarProcessor":
        """Return the logits processor for one call; `ends` are further tokens that end the output."""
        return GrammarProcessor(self, tokenizer, config.model.vocab_size, (*config.tokens.ends, *ends))


class GrammarProcessor:
    """Rules out the tokens that a grammar does not allow next, and the end until it allows that.

    Each row is followed from its prompt, which is the text that the processor sees first.
    """

    def __init__(self, grammar: Grammar, tokenizer: Tokenizer, vocab_size: int, ends: tuple[int, ...]) -> None:
        library = _import_llguidance()
        self._grammar = grammar
        self._tokenizer = _vocabulary(tokenizer, vocab_size, tuple(dict.fromkeys(ends)))
        self._new_matcher = library.LLMatcher
        self._rows: dict[int, tuple[LLMatcher, int]] = {}  # with the length of the text that the matcher has seen
        self._ends = list(dict.fromkeys(ends))

    def __call__(self, logits: "Tensor", generated: "Tensor", sentences: "Tensor") -> None:
        """Set the logits (R, V) of tokens that may not follow to −∞."""
        for row, sentence in enumerate(sentences.tolist()):
            text = generated[row].tolist()
            if sentence not in self._rows:
                self._rows[sentence] = self._new_matcher(self._tokenizer, self._grammar.source, log_level=0), len(text)
            matcher, seen = self._rows[sentence]
            for token in text[seen:]:
                matcher.consume_token(token)
            self._rows[sentence] = matcher, len(text)
            if matcher.is_error():
                raise ConfigError(f"{self._grammar.name}: {_one_line(matcher.get_error())}; simplify it.")
            logits[row].masked_fill_(~self._allowed(matcher, logits.size(-1)).to(logits.device), -math.inf)

    def _allowed(self, matcher: "LLMatcher", size: int) -> "Tensor":
        """Return whether each token may follow (V,)."""
        import torch

        if matcher.is_stopped():
            allowed = torch.zeros(size, dtype=torch.bool)
            allowed[self._ends] = True
            return allowed
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        allowed = torch.zeros(size, dtype=torch.bool)
        count = min(size, len(bits))
        allowed[:count] = torch.from_numpy(bits[:count].astype(bool))
        return allowed


_VOCABULARIES: WeakKeyDictionary[Tokenizer, dict[tuple[object, ...], "LLTokenizer"]] = WeakKeyDictionary()


def _vocabulary(tokenizer: Tokenizer, vocab_size: int, ends: tuple[int, ...]) -> "LLTokenizer":
    """Return a vocabulary for llguidance, which takes a second to build."""
    known = _VOCABULARIES.setdefault(tokenizer, {})
    if (vocab_size, ends) not in known:
        size = max(vocab_size, len(tokenizer))
        try:
            library = _import_llguidance()
            known[vocab_size, ends] = library.LLTokenizer(tokenizer.to_json().decode(), n_vocab=size, eos_token=[*ends])
        except ValueError as error:
            raise ConfigError(
                f"{tokenizer.location}: its output cannot be constrained ({_one_line(str(error))}); use a model with "
                "a byte-level or byte-fallback tokenizer."
            ) from None
    return known[vocab_size, ends]


def _checked(grammar: str, name: str) -> str:
    """Return a grammar if it is valid; otherwise raise ConfigError."""
    if len(grammar) > MAX_GRAMMAR_CHARACTERS:
        raise ConfigError(f"{name}: has more than {MAX_GRAMMAR_CHARACTERS // 1024} KB; simplify it.")
    problem = _import_llguidance().LLMatcher.validate_grammar(grammar)
    if problem and not problem.startswith("WARNING"):
        raise ConfigError(f"{name}: is not valid ({_one_line(problem)}).")
    return grammar


def _import_llguidance() -> ModuleType:
    try:
        import llguidance
    except ModuleNotFoundError:
        raise MissingPackageError(
            "constrained output needs llguidance; install it with: pip install 'regard[constrained]'."
        ) from None
    return llguidance


def _one_line(problem: str) -> str:
    return " ".join(problem.split())[:200].rstrip(".")
