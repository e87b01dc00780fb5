"""Which sentences are translated together: the rule, its measurement on training data, and incomplete translations."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from regard.config import Config, DataConfig, EncoderDecoderConfig, TokenizerConfig
from regard.data.store import TokenColumn
from regard.data.tokenizer import train_tokenizer
from regard.decoding.engines import SearchRequest
from regard.decoding.options import TranslationOptions
from regard.decoding.results import Hypothesis
from regard.decoding.segmentation import SplitRule, measure_lengths, split_lines, split_rule
from regard.decoding.translator import Translator
from regard.models.folder_files import read_config
from small_runs import run

TOKENIZER = train_tokenizer(["One. Two! Three? Four five six."] * 3, TokenizerConfig(kind="word"), 400)
MODEL = EncoderDecoderConfig(vocab_size=400)
TRAINED = Config(model=MODEL, data=DataConfig(trained_tokens=6, trained_sentences=2))


class Forgetful:
    """An engine that repeats its source, but only the first sentence of one that begins with "Two!"."""

    name = "forgetful"

    def __init__(self) -> None:
        self.requests: list[SearchRequest] = []

    def best_ids(self, request: SearchRequest) -> list[list[int]]:
        return [hypotheses[0].ids for hypotheses in self.search(request)]

    def search(self, request: SearchRequest) -> list[list[Hypothesis]]:
        self.requests.append(request)
        two = TOKENIZER.encode("Two!")
        return [[Hypothesis(two if list(source[:2]) == two else list(source), 0.0, 0.0)] for source in request.sources]

    def texts(self) -> list[list[str]]:
        return [[TOKENIZER.decode(source) for source in request.sources] for request in self.requests]


def translator(config: Config) -> tuple[Translator, Forgetful]:
    engine = Forgetful()
    return Translator(engine, config, TOKENIZER, TOKENIZER), engine


def column(texts: Sequence[str]) -> TokenColumn:
    ids = TOKENIZER.encode_batch(texts)
    return TokenColumn(np.concatenate(ids).astype(np.uint16), np.cumsum([len(row) for row in ids]))


def parts(line: str, rule: SplitRule, max_tokens: int = 250) -> list[tuple[str, int]]:
    (line_parts,) = split_lines([line], rule, TOKENIZER, max_tokens)
    assert all(part.ids == TOKENIZER.encode(part.text) for part in line_parts)
    return [(part.text, part.sentences) for part in line_parts]


def test_lines_within_the_trained_lengths_are_translated_as_a_whole() -> None:
    rule = split_rule(TRAINED, None)
    assert rule == SplitRule(2, 6)
    assert parts(" One.  Two! ", rule) == [("One.  Two!", 2)]
    assert parts("Four five six.", rule) == [("Four five six.", 1)]
    assert parts("Four five six. One. Two!", rule) == [("Four five six. One.", 2), ("Two!", 1)]  # three sentences
    assert parts("Four five six. Four five.", rule) == [("Four five six.", 1), ("Four five.", 1)]  # seven tokens
    assert parts("One. Two!", rule, max_tokens=3) == [("One.", 1), ("Two!", 1)]
    assert parts("   ", rule) == []


def test_splitting_can_be_forced_on_and_off_and_is_the_fallback_of_models_without_lengths() -> None:
    line = "One. Two! Three?"
    assert parts(line, split_rule(TRAINED, True)) == [("One.", 1), ("Two!", 1), ("Three?", 1)]
    assert parts(line, split_rule(TRAINED, False)) == [(line, 1)]
    assert split_rule(Config(model=MODEL), None) == split_rule(TRAINED, True)
    assert [str(split_rule(TRAINED, choice)) for choice in (None, True, False)] == [
        "above 2 sentences or 6 tokens",
        "always",
        "never",
    ]


def test_sentences_are_translated_again_if_one_is_missing() -> None:
    ready, engine = translator(TRAINED)
    options = TranslationOptions(prefix="Four")
    found = ready.translate(["One. Two!", "Two! One.", "Three? Two!"], options)
    assert [line.text for line in found] == ["One. Two!", "Two! One.", "Three? Two!"]
    assert engine.texts() == [["One. Two!", "Two! One.", "Three? Two!"], ["Two!", "One."]]
    assert [sentence.source for sentence in found[1].sentences] == ["Two!", "One."]
    prefix = TOKENIZER.encode("Four")
    assert [list(map(list, request.prefixes or ())) for request in engine.requests] == [[prefix] * 3, [prefix, []]]
    ready.translate(["Two! One."], TranslationOptions(split_sentences=False))
    assert len(engine.requests) == 3  # the user wants it whole


def test_lengths_are_measured_on_the_training_sources() -> None:
    single = [("One. " * n).strip() for n in (1, 1, 1)] * 300
    assert measure_lengths(column(single), TOKENIZER) == {"trained_tokens": 2, "trained_sentences": 1}
    few = [*single, *["One. Two!"] * 9]
    assert measure_lengths(column(few), TOKENIZER)["trained_sentences"] == 1
    enough = [*single, *["One. Two!"] * 8, *["One. Two! Three?"] * 12, "One. Two! Three? Four."]
    assert measure_lengths(column(enough), TOKENIZER) == {"trained_tokens": 6, "trained_sentences": 3}


@pytest.mark.slow
def test_a_trained_model_knows_its_lengths_and_a_fine_tuned_one_keeps_them(tmp_path: Path) -> None:
    long, short = tmp_path / "long.tsv", tmp_path / "short.tsv"
    long.write_text("".join(f"One {n}. Two {n}!\tUno {n}. Due {n}!\n" for n in range(60)))
    short.write_text("".join(f"One {n}.\tUno {n}.\n" for n in range(60)))
    base = run(tmp_path / "base", long, "training.steps=1")
    lengths = read_config(base / "best").data
    assert lengths.trained_sentences == 2
    assert (lengths.trained_tokens or 0) >= 6
    tuned = read_config(run(tmp_path / "tuned", short, "training.steps=1", f"training.start_from={base}") / "best").data
    assert (tuned.trained_sentences, tuned.trained_tokens) == (2, lengths.trained_tokens)
    chosen = run(tmp_path / "chosen", long, "training.steps=1", "data.trained_sentences=1")
    assert read_config(chosen / "best").data.trained_sentences == 1
