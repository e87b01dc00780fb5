"""Flags of sentences that are unlike the training data: calibration, the file, and both engines."""

import json
import shutil
from math import exp
from pathlib import Path

import numpy as np
import pytest

import regard as api
from commands import regard
from random_models import SMALL, saved
from regard.config import EncoderDecoderConfig, TokenizerConfig
from regard.data.tokenizer import train_tokenizer
from regard.decoding.domain import DOMAIN_FILE, Domain, DomainCheck, calibrate, read_domain
from regard.errors import ModelError
from regard.registry import EngineName
from small_runs import run, write_pairs

UNKNOWN = 1


def test_one_percent_of_the_validation_sentences_are_below_the_confidence_limit() -> None:
    confidences = np.random.default_rng(0).uniform(0.4, 1, 1000).tolist()
    limit = calibrate(confidences, np.array([9]), [[0]]).min_confidence
    assert limit is not None
    assert sum(confidence < limit for confidence in confidences) == 10
    assert calibrate(confidences[:49], np.array([9]), [[0]]).min_confidence is None


def test_tokens_are_rare_below_five_unless_validation_sentences_have_them() -> None:
    counts = np.array([0, 1, 2, 3, 4, 5, 90])
    common = [[6]] * 199
    assert calibrate([], counts, common).rare_tokens == (0, 1, 2, 3, 4)
    assert calibrate([], counts, [*common, [6, 4]]).rare_tokens == (0, 1, 2, 3, 4)  # one of 200 is allowed
    assert calibrate([], counts, [*common, [2], [2], [2], [3]]).rare_tokens == (0, 1)
    assert calibrate([], counts, [[0]] * 9).rare_tokens == (0,)  # unseen tokens stay unknown


def test_the_file_is_read_back(tmp_path: Path) -> None:
    domain = Domain(description="greetings – saluti", min_confidence=0.7, rare_tokens=(3, 5), calibrated_on=80)
    assert read_domain(tmp_path) is None
    (tmp_path / DOMAIN_FILE).write_text(domain.to_json(), "utf-8")
    assert read_domain(tmp_path) == domain


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"min_confidence": 7}', "min_confidence: Input should be less than or equal to 1"),
        ('{"rare_tokens": ["a"]}', "rare_tokens.0: Input should be a valid integer"),
        ('{"rare_tokens": [-1]}', "rare_tokens.0: Input should be greater than or equal to 0"),
        ('{"limits": 1}', "limits: Extra inputs are not permitted"),
        ("[", "Invalid JSON"),
    ],
)
def test_a_damaged_file_gets_a_message(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / DOMAIN_FILE
    path.write_text(content)
    with pytest.raises(ModelError) as error:
        read_domain(tmp_path)
    assert str(error.value).startswith(f"{path}: is damaged ({problem}")
    assert str(error.value).endswith("copy the folder again, or remove the file, so that fewer sentences are flagged.")


def test_unknown_words_are_found_in_the_text() -> None:
    texts = ["one two three", "four, five!"]
    tokenizer = train_tokenizer(texts, TokenizerConfig(), 330)
    counts = np.bincount([token for ids in tokenizer.encode_batch(texts * 5) for token in ids], minlength=330)
    check = DomainCheck.of(calibrate([], counts, tokenizer.encode_batch(texts)), tokenizer, UNKNOWN)
    for text in texts:
        assert check.flags(tokenizer.encode(text), 1.0) == ()
        assert check.unknown_words(text) == ()
    strange = "one 'zebra', two zebra 🦓 five!"
    assert check.flags(tokenizer.encode(strange), 1.0) == ("unknown_pieces",)
    assert check.unknown_words(strange) == ("zebra", "🦓")


def test_without_the_file_only_unknown_tokens_and_bytes_are_flagged() -> None:
    tokenizer = train_tokenizer(["one two three"], TokenizerConfig(), 330)
    check = DomainCheck.of(None, tokenizer, UNKNOWN)
    assert check.flags(tokenizer.encode("one tow eerht"), 0.0) == ()
    assert check.flags(tokenizer.encode("one 字"), 0.0) == ("unknown_pieces",)
    assert check.unknown_words("one 字") == ("字",)
    words = train_tokenizer(["one two three"], TokenizerConfig(kind="word"), 330)
    assert DomainCheck.of(None, words, UNKNOWN).unknown_words("one seven") == ("seven",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("domain") / "en-it"
    saved(folder, EncoderDecoderConfig(**SMALL))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_both_engines_flag_the_same_sentences(folder: Path, tmp_path: Path, engine: EngineName) -> None:
    texts = [f"w{n} w{n + 1} w{n + 2}" for n in range(4, 24)]
    before = api.load(folder).translate_detailed(texts, engine="torch")
    confidences = sorted(translation.sentences[0].confidence or 0.0 for translation in before)
    limit = (confidences[9] + confidences[10]) / 2
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / DOMAIN_FILE).write_text(Domain(min_confidence=limit, rare_tokens=(7,)).to_json())
    results = api.load(tmp_path / "model").translate_detailed(texts, engine=engine, precision="float32")
    assert not any(translation.out_of_domain for translation in before)
    for old, translation in zip(before, results, strict=True):
        (sentence,), best = translation.sentences, translation.sentences[0].alternatives[0]
        assert sentence.confidence == pytest.approx(exp(best.log_probability / (len(best.tokens) + best.ended)))
        assert sentence.confidence is not None
        expected = ["unknown_pieces"] * ("w7" in sentence.tokens) + ["low_confidence"] * (sentence.confidence < limit)
        assert list(sentence.flags) == expected
        assert sentence.unknown_words == (("w7",) if "w7" in sentence.tokens else ())
        assert translation.out_of_domain == bool(expected)
        assert sentence.confidence == pytest.approx(old.sentences[0].confidence, abs=1e-3)
    assert sum("low_confidence" in translation.sentences[0].flags for translation in results) == 10


def test_greedy_search_needs_token_scores_for_the_confidence(folder: Path) -> None:
    model = api.load(folder)
    (plain,) = model.translate_detailed("w4 w5", beam=1)
    assert plain.sentences[0].confidence is None
    (scored,) = model.translate_detailed("w4 w5", beam=1, token_scores=True)
    assert scored.sentences[0].confidence is not None
    assert 0 < scored.sentences[0].confidence < 1


def test_copied_symbols_are_not_flagged(folder: Path) -> None:
    (translation,) = api.load(folder).translate_detailed("12:30")
    assert translation.sentences[0].flags == ()
    assert not translation.out_of_domain


def test_the_confidence_limit_of_one_model_is_not_used_for_an_ensemble(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / DOMAIN_FILE).write_text(Domain(min_confidence=1.0, rare_tokens=(7,)).to_json())
    alone, together = api.load(tmp_path / "model"), api.load(tmp_path / "model", folder)
    assert alone.translate_detailed("w4 w7")[0].sentences[0].flags == ("unknown_pieces", "low_confidence")
    assert together.translate_detailed("w4 w7")[0].sentences[0].flags == ("unknown_pieces",)


def test_json_of_the_command_has_the_flags(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "model")
    (tmp_path / "model" / DOMAIN_FILE).write_text(Domain(min_confidence=1.0, rare_tokens=(7,)).to_json())
    done = regard("translate", tmp_path / "model", "--json", "--beam", "1", stdin="w4 w7\n")
    line = json.loads(done.out)
    assert line["out_of_domain"] is True
    assert line["sentences"][0]["flags"] == ["unknown_pieces", "low_confidence"]
    assert line["sentences"][0]["unknown_words"] == ["w7"]
    assert 0 < line["sentences"][0]["confidence"] < 1


@pytest.mark.slow
def test_training_calibrates_the_best_model(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv", 700)
    folder = run(tmp_path / "run", data, "data.description='numbers from one to eight'", "training.steps=3")
    domain = read_domain(folder / "best")
    assert domain is not None
    assert domain.description == "numbers from one to eight"
    assert domain.calibrated_on >= 50
    model = api.load(folder)
    assert model.domain == domain
    assert domain.min_confidence is not None
    validation = [json.loads(line)["source"] for line in (folder / "data" / "valid.jsonl").read_text().splitlines()]
    translations = model.translate_detailed(
        validation, engine="torch", beam=1, token_scores=True, split_sentences=False
    )
    assert sum("low_confidence" in translation.sentences[0].flags for translation in translations) == 1
    assert sum("unknown_pieces" in translation.sentences[0].flags for translation in translations) == 0
    (strange,) = model.translate_detailed("six zebras")
    assert strange.sentences[0].unknown_words == ("zebras",)
    run(folder, data, "data.description='small numbers'", "training.steps=3", resume=True)
    assert read_domain(folder / "best") == domain.model_copy(update={"description": "small numbers"})
