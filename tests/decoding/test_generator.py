"""Generated text: whole characters in each part, and generation ends at a stop string."""

from collections.abc import Iterable, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import Config, DecoderOnlyConfig, SpecialTokensConfig, TokenizerConfig
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.decoding.generator import Generator, IncrementalDetokenizer
from regard.decoding.options import GenerationOptions, OutputConstraints, SamplingOptions
from regard.decoding.results import Generation, SampledToken

TEXT = "the quick brown fox, and the end of the day"
CONFIG = Config(model=DecoderOnlyConfig(vocab_size=400))


class Script:
    """Generates fixed token ids, row by row."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.left = [list(row) for row in rows]
        self.active = list(range(len(rows)))
        self.cached_tokens = 0
        self.truncated: set[int] = set()
        self.steps = 0

    def step(self) -> list[SampledToken]:
        self.steps += 1
        drawn = [SampledToken(row, self.left[row].pop(0), -0.5) for row in self.active]
        self.active = [row for row in self.active if self.left[row]]
        return drawn

    def close(self, rows: Iterable[int]) -> None:
        gone = set(rows)
        self.active = [row for row in self.active if row not in gone]


def tokenizer(kind: str = "byte-level") -> Tokenizer:
    return train_tokenizer([TEXT], TokenizerConfig(kind=kind), 300)  # type: ignore[arg-type]


def generated(
    texts: Sequence[str], stop: tuple[str, ...] = (), prompt: str = "so", kind: str = "byte-level"
) -> tuple[list[str], list[Generation], Script]:
    both = tokenizer(kind)
    script = Script([[*both.encode(text), CONFIG.tokens.end] for text in texts])
    writer = Generator(lambda prompts, streams, sampling: script, CONFIG, both)
    found: list[Generation] = []
    options = GenerationOptions(samples=len(texts), stop=stop)
    parts = [part.text for part in writer.stream([prompt], options, found)]
    return parts, found, script


@pytest.mark.parametrize("kind", ["byte-level", "bpe", "character", "word"])
def test_the_parts_are_the_text(kind: str) -> None:
    text = "the quick fox, and the end"
    parts, (found,), _ = generated([text], kind=kind)
    assert "".join(parts).strip() == found.text.strip() == text
    assert len(parts) > 2
    assert found.ended
    assert found.log_probability == pytest.approx(-0.5 * (len(found.tokens) + 1))


@cache
def byte_fallback(kind: str) -> Tokenizer:
    return train_tokenizer(["a la"], TokenizerConfig.model_validate({"kind": kind}), 300)


@given(st.text(alphabet="aé字😀 ", min_size=1, max_size=8))
def test_characters_come_whole(text: str) -> None:
    parts, (found,), _ = generated([text])
    assert "".join(parts) == found.text == text
    assert "\ufffd" not in found.text


@given(st.text(alphabet="abn ", max_size=20), st.sampled_from(["ab", "nab", "a n", "bb"]))
def test_a_text_to_stop_at_ends_it_and_is_not_part_of_it(text: str, stop: str) -> None:
    parts, (found,), script = generated([text], stop=(stop,))
    assert "".join(parts) == found.text == text.split(stop)[0]
    assert found.ended
    if stop in text:
        assert script.steps <= len(tokenizer().encode(text)) + 1


def test_rows_stop_by_themselves() -> None:
    _, found, _ = generated(["the end of the day", "the quick fox"], stop=(" of",))
    assert [one.text for one in found] == ["the end", "the quick fox"]
    assert [one.sample for one in found] == [0, 1]


@given(
    st.sampled_from(["bpe", "character", "word"]),
    st.text(alphabet="字語é😀 a", max_size=30).map(str.strip),
    st.text(alphabet="字語é😀 a", max_size=30),
)
def test_characters_in_bytes_come_whole(kind: str, prompt: str, text: str) -> None:
    both = byte_fallback(kind)
    ids, whole = both.encode(prompt), both.encode(f"{prompt}{text}")
    if kind == "word" or whole[: len(ids)] != ids:  # a word that goes on has other tokens
        ids = []
    spelling = IncrementalDetokenizer(both, ids, ())
    parts = [spelling.add(number) for number in whole[len(ids) :]]
    expected = both.decode(whole)[len(both.decode(ids)) :]
    assert "".join([*parts, spelling.flush()]) == expected
    assert "\ufffd" not in "".join(parts)


def test_what_never_becomes_a_character_is_shown_at_the_end() -> None:
    both = tokenizer()
    half = both.encode("😀")[:1]
    spelling = IncrementalDetokenizer(both, [], ())
    assert spelling.add(half[0]) == ""
    assert spelling.flush() == "\ufffd"


def test_a_prompt_begins_with_the_start_token_unless_it_is_the_end_too() -> None:
    seen: list[list[int]] = []

    def begin(prompts: list[list[int]], streams: list[int], sampling: SamplingOptions) -> Script:
        seen.extend(prompts)
        assert streams == [0, 1]
        assert sampling.constraints == OutputConstraints(max_tokens=200)
        return Script([[3], [3]])

    both, ids = tokenizer(), tokenizer().encode("fox")
    for tokens, prompt, wanted in (
        (SpecialTokensConfig(), "fox", [2, *ids]),
        (SpecialTokensConfig(), "", [2]),
        (SpecialTokensConfig(start=3), "fox", ids),
        (SpecialTokensConfig(start=3), "", [3]),
    ):
        config = Config(model=CONFIG.model, tokens=tokens)
        list(Generator(begin, config, both).stream([prompt], GenerationOptions(samples=2), []))
        assert seen[-2:] == [wanted, wanted]
