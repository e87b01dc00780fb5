"""A multilingual translator reads a language token before the source and begins its output with another."""

from pathlib import Path

import pytest

import regard
from commands import regard as command
from random_models import SMALL, greedy_decode, random_network, sources, words
from regard.config import Config, EncoderDecoderConfig, LanguagesConfig, LearnedPositionsConfig
from regard.decoding.options import OutputConstraints, SearchOptions, TranslationOptions
from regard.errors import ConfigError
from regard.models import Network, load_network, save
from regard.registry import EngineName

ENGINES: tuple[EngineName, ...] = ("torch", "ctranslate2")
LANGUAGES = {"eng_Latn": 26, "ita_Latn": 27, "zho_Hans": 24, "zho_Hant": 28}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = EncoderDecoderConfig(**SMALL, norm_order="pre", positions=LearnedPositionsConfig(max_length=30))
    languages = LanguagesConfig(codes=tuple(LANGUAGES), tokens=tuple(LANGUAGES.values()))
    path = tmp_path_factory.mktemp("languages") / "model"
    files = {"tokenizer.json": words().to_str().encode()}
    save(path, random_network(model), Config(model=model, languages=languages), extra_files=files)
    return path


def expected(network: Network, config: Config, ids: list[int], source: int, target: int) -> list[int]:
    prompt = [config.tokens.start, target]
    return greedy_decode(network, config, [source, *ids], prompt, 8)


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
@pytest.mark.parametrize(("source", "target"), [("en", "it"), ("ita_Latn", "zho_Hant"), ("eng_Latn", "eng_Latn")])
def test_a_pair_of_languages_is_chosen_by_tokens(source: str, target: str, engine: EngineName, folder: Path) -> None:
    model, network = regard.load(folder), load_network(folder).network
    full = {"en": "eng_Latn", "it": "ita_Latn"}
    source_token, target_token = (LANGUAGES[full.get(code, code)] for code in (source, target))
    rows = sources(vocabulary=24)
    texts = [" ".join(f"w{n}" for n in row) for row in rows]
    details = model.translate_detailed(
        texts,
        beam=1,
        max_tokens=9,
        attention=True,
        token_scores=True,
        source_language=source,
        target_language=target,
        engine=engine,
        precision="float32",
    )
    for row, detail in zip(rows, details, strict=True):
        (sentence,) = detail.sentences
        best = sentence.alternatives[0]
        ids = expected(network, model.config, row, source_token, target_token)
        assert best.tokens == [f"w{n}" for n in ids]
        assert best.attention is not None
        assert all(len(weights) == len(row) for weights in best.attention)
        assert best.token_scores is not None
        assert len(best.token_scores) == len(best.tokens) + best.ended
    assert len({detail.text for detail in details}) > 1


def test_engines_find_the_same_translations_between_languages(folder: Path) -> None:
    model, texts = regard.load(folder), ["w4 w5 w6", "w9 w8", "w20 w21 w22 w23"]
    options = TranslationOptions(
        SearchOptions(patience=1.0, n_best=3, constraints=OutputConstraints(max_tokens=9)),
        token_scores=True,
        source_language="en",
        target_language="it",
    )
    results = [
        model.translator(options, engine=engine, precision="float32").translate(texts, options) for engine in ENGINES
    ]
    for expected, actual in zip(*results, strict=True):
        alternatives = [translation.sentences[0].alternatives for translation in (expected, actual)]
        for first, second in zip(*alternatives, strict=True):
            assert second.tokens == first.tokens
            assert second.token_scores == pytest.approx(first.token_scores, abs=1e-3)
            assert second.score == pytest.approx(first.score, abs=1e-3)


def test_translations_that_fill_all_positions_are_scored(folder: Path) -> None:
    (detail,) = regard.load(folder).translate_detailed(
        "w4 w5 w6", token_scores=True, source_language="en", target_language="it", engine="ctranslate2"
    )
    best = detail.sentences[0].alternatives[0]
    assert best.token_scores is not None
    assert len(best.tokens) == len(best.token_scores) == 29  # and the language token
    assert sum(best.token_scores) == pytest.approx(best.log_probability)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (None, "it", "source_language is missing: the model has 4 languages, eng_Latn, ita_Latn, zho_Hans, zho_Hant."),
        ("en", "fr", "target_language = fr: is not one of the model's 4 languages, eng_Latn, ita_Latn"),
        ("zh", "it", "source_language = zh: is one of zho_Hans, zho_Hant; pass the whole code."),
    ],
)
def test_unknown_languages_have_one_message(source: str | None, target: str, message: str, folder: Path) -> None:
    with pytest.raises(ConfigError) as error:
        regard.load(folder).translate("w4", source_language=source, target_language=target)
    assert str(error.value).startswith(message)


def test_a_translator_of_one_pair_takes_no_languages(translator: Path) -> None:
    with pytest.raises(ConfigError, match="target_language = it: the model translates one pair of languages"):
        regard.load(translator).translate("w4", target_language="it")


def test_the_command_takes_languages(folder: Path) -> None:
    model = regard.load(folder)
    result = command("translate", folder, "w4 w5 w6", "--source-language", "en", "--target-language", "zho_Hans")
    text = model.translate("w4 w5 w6", source_language="en", target_language="zho_Hans")
    assert (result.code, result.out) == (0, f"{text}\n")
    missing = command("translate", folder, "w4 w5 w6", "--source-language", "en")
    assert missing.code == 2
    assert "target_language is missing: the model has 4 languages" in missing.err


def test_each_language_needs_a_token() -> None:
    with pytest.raises(ConfigError, match=r"languages.tokens = \[5\] has 1 ids, but languages.codes has 2"):
        regard.load_config("tiny", ["languages.codes=['en', 'it']", "languages.tokens=[5]"])
