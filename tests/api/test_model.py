"""The `Model` class: shapes of inputs and results, options, ensembles, and errors."""

import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from typer.main import get_command

import regard
from random_models import SMALL, random_network, saved
from random_models import words as word_tokenizer
from regard.cli import app
from regard.config import Config, DecodingConfig, EncoderDecoderConfig
from regard.decoding.logits_processors import LOGITS_PROCESSORS, DecodingContext, LogitsProcessor, SuppressTokens
from regard.errors import ArgumentError, ConfigError, InputError, ModelError
from regard.models import save
from regard.serving.completions import Completion, CompletionRequest
from regard.serving.limits import Limits
from regard.serving.loaded_models import LoadedModel

TEXTS = ["w4 w5 w6", "w9", "", "w7 w7"]


def test_the_result_has_the_shape_of_the_input(translator: Path, writer: Path) -> None:
    model, gpt = regard.load(translator), regard.load(writer)
    translations = model.translate(TEXTS, beam=2)
    assert [model.translate(text, beam=2) for text in TEXTS] == translations
    assert list(model.translate(iter(TEXTS), beam=2)) == translations
    assert [translation.text for translation in model.translate_detailed(TEXTS, beam=2)] == translations
    continuations = gpt.generate(TEXTS, max_tokens=5, seed=0)
    assert [gpt.generate(text, max_tokens=5, seed=0) for text in TEXTS] == continuations
    assert list(gpt.generate(iter(TEXTS), max_tokens=5, seed=0)) == continuations
    assert ["".join(gpt.stream(text, max_tokens=5, seed=0)) for text in TEXTS] == continuations
    assert [result.text for result in gpt.generate_detailed(TEXTS, max_tokens=5, seed=0)] == continuations
    scores = model.score(TEXTS, TEXTS)
    assert [model.score(text, text) for text in TEXTS] == pytest.approx(scores, abs=1e-4)
    assert list(model.score(iter(TEXTS), iter(TEXTS))) == scores
    assert [score.total for score in model.score_detailed(TEXTS, TEXTS)] == scores
    assert list(gpt.score(iter(TEXTS))) == gpt.score(TEXTS)


def test_samples_of_a_prompt_differ_and_a_seed_repeats_them(writer: Path) -> None:
    model = regard.load(writer)
    results = model.generate_detailed(["w4", "w5"], samples=3, max_tokens=12, seed=1)
    assert [(result.prompt, result.sample) for result in results] == [(p, n) for p in ("w4", "w5") for n in range(3)]
    assert len({result.text for result in results}) > 2
    again = model.generate_detailed(["w4", "w5"], samples=3, max_tokens=12, seed=1)
    assert [result.text for result in again] == [result.text for result in results]
    assert model.generate("w4", max_tokens=12, seed=1) == results[0].text


def test_without_a_seed_equal_prompts_have_different_texts(writer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.decoding.options.secrets.randbelow", lambda _: 0)
    model, options = regard.load(writer), cast(Any, {"max_tokens": 12, "min_tokens": 12, "temperature": 5.0})
    assert len(set(model.generate(["w4"] * 5, engine="torch", **options))) == 5
    assert len(set(model.generate(["w4"] * 5, engine="torch", seed=0, **options))) == 1


def test_without_a_seed_every_text_is_another(writer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = itertools.count()
    monkeypatch.setattr("regard.decoding.options.secrets.randbelow", lambda _: next(seeds))  # repeatable, all different
    model, options = regard.load(writer), cast(Any, {"max_tokens": 12, "min_tokens": 12, "temperature": 5.0})
    assert len({model.generate("w4", engine="torch", **options) for _ in range(4)}) > 1
    assert len({"".join(model.stream("w4", engine="torch", **options)) for _ in range(4)}) > 1
    assert len({model.generate_detailed("w4", engine="torch", **options)[0].text for _ in range(4)}) > 1
    assert next(seeds) == 12
    assert model.generate("w4", engine="torch", seed=3, **options) == model.generate(
        "w4", engine="torch", seed=3, **options
    )


def test_python_command_line_and_http_have_the_same_defaults(writer: Path) -> None:
    options = {parameter.name: parameter.default for parameter in get_command(app).commands["generate"].params}  # type: ignore[attr-defined]
    keywords = signature(regard.Model.generate).parameters
    for name in ("max_tokens", "min_tokens", "temperature", "seed", "repetition_penalty", "engine", "precision"):
        assert keywords[name].default == options[name], name
    model = LoadedModel("gpt", regard.load(writer), ("en", "en"))
    completion = Completion(CompletionRequest(model="gpt"), model, Limits())
    assert completion._options.sampling.temperature == keywords["temperature"].default


def test_a_model_says_what_it_is(translator: Path, writer: Path) -> None:
    assert repr(regard.load(writer)) == f"<Model {writer}: decoder-only Transformer>"
    ensemble = regard.load(translator, translator)
    assert repr(ensemble) == f"<Model {translator} + {translator}: encoder-decoder Transformer>"


def test_alternatives_and_scores_are_returned_on_request(translator: Path) -> None:
    model = regard.load(translator)
    (translation,) = model.translate_detailed("w4 w5", n_best=3, token_scores=True, attention=True)
    (sentence,) = translation.sentences
    assert len(sentence.alternatives) == 3
    best = sentence.alternatives[0]
    assert translation.text == best.text
    assert best.token_scores is not None
    assert best.attention is not None
    (plain,) = model.translate_detailed("w4 w5")
    assert plain.sentences[0].alternatives[0].token_scores is None


def test_logits_processors_are_used_by_name_and_as_objects(translator: Path, writer: Path) -> None:
    @LOGITS_PROCESSORS.register("test-suppress")
    def suppress(context: DecodingContext) -> LogitsProcessor:
        return SuppressTokens(tuple(n for n, text in enumerate(context.token_texts) if text.strip() in words))

    for call in (regard.load(translator).translate, partial(regard.load(writer).generate, seed=0)):
        words = set(call("w4 w5", max_tokens=8, engine="torch").split())
        assert words
        changed = call("w4 w5", max_tokens=8, logits_processors=["test-suppress"])
        assert words.isdisjoint(changed.split())
        ids = tuple(int(word.removeprefix("w")) for word in words)
        assert call("w4 w5", max_tokens=8, logits_processors=[SuppressTokens(ids)]) == changed


def test_an_unknown_logits_processor_is_refused(translator: Path) -> None:
    with pytest.raises(ConfigError, match="'no-digit' is not one of the logits_processors"):
        regard.load(translator).translate("w4", logits_processors=["no-digit"])


@pytest.mark.slow
def test_iterators_are_read_in_batches(translator: Path) -> None:
    read = []

    def lines() -> Iterator[str]:
        for n in range(2000):
            read.append(n)
            yield "w4 w5"

    translations = regard.load(translator).translate(lines(), beam=1)
    next(translations)
    assert len(read) < 2000
    assert sum(1 for _ in translations) == 1999


def test_long_texts_are_scored_in_windows(writer: Path) -> None:
    model = regard.load(writer)  # 40 positions
    text = " ".join(f"w{4 + n % 20}" for n in range(100))
    (score,) = model.score_detailed(text)
    assert len(score.log_probabilities) == len(score.tokens) == 101
    (short,) = model.score_detailed(" ".join(text.split()[:30]))
    assert score.log_probabilities[:30] == pytest.approx(short.log_probabilities[:30], abs=1e-4)
    tokens, ids = model.config.tokens, model.tokenizer.encode(text)
    window = torch.tensor([[tokens.start, *ids][40:80]])  # the windows end at the 40th, 60th, 80th, … prediction
    expected = model.network.logits(model.network.decode(window)).detach().log_softmax(-1)[0, -1, ids[79]]
    assert score.log_probabilities[79] == pytest.approx(float(expected), abs=1e-4)


def test_wrong_folders_and_model_types_are_refused(translator: Path, writer: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    decoder, encoder_decoder = "decoder-only Transformer", "encoder-decoder Transformer"
    calls: list[tuple[Callable[[], object], str]] = [
        (
            lambda: regard.load(writer).translate("w4"),
            f"{writer}: is a model of type {decoder}, which does not translate; use an encoder-decoder model.",
        ),
        (
            lambda: regard.load(translator).generate("w4"),
            f"{translator}: is a model of type {encoder_decoder}, which does not generate text; use a language model.",
        ),
        (
            lambda: regard.load(translator).score("w4"),
            f"{translator}: is a model of type {encoder_decoder}, which does not score texts; "
            "pass targets to score translations.",
        ),
        (
            lambda: regard.load(writer).score("w4", "w5"),
            f"{writer}: is a model of type {decoder}, which does not translate; remove the targets.",
        ),
        (
            lambda: regard.load(translator, writer),
            f"{writer}: is a model of type {decoder}, and cannot form an ensemble with {translator}, "
            f"which is of type {encoder_decoder}.",
        ),
        (
            lambda: regard.load(writer).look("w4", beam=2),
            f"beam: does not apply to {writer}, a model of type {decoder}; remove it.",
        ),
        (
            lambda: regard.load(translator).look("w4", seed=2),
            f"seed: does not apply to {translator}, a model of type {encoder_decoder}; remove it.",
        ),
    ]
    for call, message in calls:
        with pytest.raises(ConfigError) as error:
            call()
        assert str(error.value) == message
    with pytest.raises(ModelError, match=f"^{missing}: "):
        regard.load(missing)


def test_models_with_different_vocabularies_cannot_form_an_ensemble(translator: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    saved(other, EncoderDecoderConfig(**SMALL), seed=3)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["w99"] = tokenizer["model"]["vocab"].pop("w9")
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ConfigError) as error:
        regard.load(translator, other)
    assert str(error.value) == (
        f"{other / 'tokenizer.json'}: differs from {translator / 'tokenizer.json'}; "
        "the models of an ensemble must have the same vocabulary: train them with the same tokenizer.file."
    )


def test_a_folder_without_a_tokenizer_cannot_process_text(tmp_path: Path) -> None:
    saved(tmp_path / "model", EncoderDecoderConfig(**SMALL))
    path = tmp_path / "model" / "tokenizer.json"
    path.unlink()
    with pytest.raises(ModelError) as error:
        regard.load(tmp_path / "model").translate("w4")
    assert str(error.value) == f"{path}: is missing, so {path.parent} cannot process text; copy the folder again."


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (None, "expected a str or an iterable of str, not None."),
        (4, "expected a str or an iterable of str, not an int."),
        (b"w4", "expected a str or an iterable of str, not bytes; decode them first."),
        (["w4", None], "text 2 should be a str, not None."),
        (["w4", "w5", 1.5], "text 3 should be a str, not a float."),
        ([["w4"]], "text 1 should be a str, not a list."),
    ],
)
def test_texts_of_the_wrong_type_are_refused(translator: Path, writer: Path, texts: Any, message: str) -> None:
    model, gpt = regard.load(translator), regard.load(writer)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: model.translate(texts), "translate"),
        (lambda: model.translate_detailed(texts), "translate_detailed"),
        (lambda: gpt.generate(texts), "generate"),
        (lambda: gpt.score(texts), "score"),
        (lambda: model.score(texts, ["w4"]), "score"),
    ]
    for call, name in calls:
        with pytest.raises(ArgumentError) as error:
            call()
        assert str(error.value) == f"{name}: {message}"
        assert isinstance(error.value, TypeError)


def test_iterators_with_a_text_of_the_wrong_type_are_refused(translator: Path) -> None:
    with pytest.raises(ArgumentError) as error:
        list(regard.load(translator).translate(text for text in ("w4", None)))  # type: ignore[misc]
    assert str(error.value) == "translate: text 2 should be a str, not None."


def test_each_text_needs_a_target(translator: Path) -> None:
    model = regard.load(translator)
    with pytest.raises(InputError) as error:
        model.score(["w4", "w5"], ["w6"])
    assert str(error.value) == "score: there are 2 texts and 1 targets; pass one for each."
    for texts, targets, which in ((["w4"], [], "fewer"), (["w4"], ["w5", "w6"], "more")):
        with pytest.raises(InputError) as error:
            list(model.score(iter(texts), iter(targets)))
        assert str(error.value) == f"score: there are {which} targets than texts; pass one for each."


def test_config_is_that_of_the_folder(translator: Path) -> None:
    assert regard.load(translator).config.model == Config(model=EncoderDecoderConfig(**SMALL)).model


@pytest.mark.slow
def test_a_translator_decodes_with_the_settings_that_its_folder_stores(tmp_path: Path) -> None:
    model = EncoderDecoderConfig(**SMALL)
    config = Config(model=model, decoding=DecodingConfig(beam=2, length_penalty=1.7, extra_tokens=1))
    network, tokenizer = random_network(model), word_tokenizer().to_str().encode()
    save(tmp_path / "own", network, config, extra_files={"tokenizer.json": tokenizer})
    save(tmp_path / "usual", network, Config(model=model), extra_files={"tokenizer.json": tokenizer})
    own, usual = (regard.load(tmp_path / name) for name in ("own", "usual"))
    assert own.config.decoding == config.decoding
    assert "| decoding | beam 2, length_penalty 1.7, extra_tokens 1 |" in (tmp_path / "own" / "README.md").read_text()
    text = "w4 w5 w6 w7"

    def scores(loaded: regard.Model, **options: Any) -> list[tuple[str, float]]:
        (translation,) = loaded.translate_detailed(text, n_best=2, engine="torch", **options)
        return [(found.text, found.score) for found in translation.sentences[0].alternatives]

    same = scores(usual, beam=2, length_penalty=1.7, max_tokens=6)  # four tokens, the end token and one more
    assert scores(own) == same
    assert scores(usual) != same
    assert scores(own, beam=4, length_penalty=0.6, max_tokens=55) == scores(usual)
    for beam, used in ((None, 2), (3, 3)):
        tree = own.look(text, beam=beam).tree
        assert tree is not None
        assert (tree.search.beam, tree.search.length_penalty) == (used, 1.7)


def test_only_translators_store_decoding_settings(writer: Path, translator: Path) -> None:
    assert "decoding" not in json.loads((writer / "config.json").read_text("utf-8"))
    stored = json.loads((translator / "config.json").read_text("utf-8"))
    assert stored["decoding"] == {"beam": 4, "length_penalty": 0.6, "extra_tokens": 50}
