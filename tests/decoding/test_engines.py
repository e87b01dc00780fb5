"""Two engines, one answer: CTranslate2 in float32 finds what torch finds; and the choice between them."""

import errno
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ctranslate2.specs import TransformerSpec

import regard
from random_models import SMALL, saved, sources
from regard.config import Config, EncoderDecoderConfig
from regard.decoding.engines.ctranslate2_models import converted_folder, fingerprint
from regard.decoding.options import (
    GenerationOptions,
    OutputConstraints,
    SamplingOptions,
    SearchOptions,
    TranslationOptions,
)
from regard.decoding.results import Generation
from regard.errors import ArgumentError, ConfigError, InputError, ModelError

LINES = ["w4 w5 w6", "w9", "", "w20 w21 w22 w23 w24 w25 w26", "w7 w7", "w12 w28 w4 w5 w6"]


@pytest.mark.parametrize(
    "search",
    [
        SearchOptions(beam=1),
        SearchOptions(patience=1.0),
        SearchOptions(patience=2.5, length_penalty=1.2, n_best=4),
        SearchOptions(beam=6, patience=1.0, length_penalty=0.0, constraints=OutputConstraints(max_length=9)),
        SearchOptions(
            patience=1.0,
            constraints=OutputConstraints(min_length=5, max_length=12, suppressed_sequences=((7,), (8, 9))),
        ),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_both_engines_find_the_same(search: SearchOptions, seed: int, tmp_path: Path) -> None:
    saved(tmp_path / "model", EncoderDecoderConfig(**SMALL), seed)
    model = regard.load(tmp_path / "model")
    lines = [" ".join(f"w{n}" for n in ids) for ids in sources(count=12, seed=seed)]
    scored = not search.constraints.suppressed_sequences
    wish = TranslationOptions(search, token_scores=scored, attention=True)
    ours, theirs = (
        model.translations(lines, wish, engine=engine, precision="float32") for engine in ("torch", "ctranslate2")
    )
    for one, other in zip(ours, theirs, strict=True):
        mine, its = (found.sentences[0].alternatives for found in (one, other))
        assert [a.tokens for a in mine] == [a.tokens for a in its]
        for a, b in zip(mine, its, strict=True):
            # where a batch had room for more, it is not known what the first token gained from no end
            assert a.score == pytest.approx(b.score, abs=1e-3 if a.ended else 1e-2)
            if scored:
                assert a.token_scores is not None
                assert b.token_scores is not None
                first = 0 if a.ended else 1
                assert a.token_scores[first:] == pytest.approx(b.token_scores[first:], abs=1e-3)
            torch.testing.assert_close(torch.tensor(a.attention), torch.tensor(b.attention), atol=1e-3, rtol=0)


def test_both_engines_write_the_same_after_a_prompt(writer: Path) -> None:
    model = regard.load(writer)
    wish = GenerationOptions(SamplingOptions(temperature=0.0, constraints=OutputConstraints(max_length=12)))
    found: dict[str, list[Generation]] = {"torch": [], "ctranslate2": []}
    for engine, into in found.items():
        list(model.stream(["w4 w5", "w9 w9 w9 w9 w10", ""], wish, into, engine=engine, precision="float32"))  # type: ignore[arg-type]
    for one, other in zip(*found.values(), strict=True):
        assert (one.text, one.tokens, one.ended) == (other.text, other.tokens, other.ended)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-3)


def test_more_candidates_than_the_vocabulary_has_are_all_of_them(writer: Path) -> None:
    wish = GenerationOptions(SamplingOptions(top_k=10**6, constraints=OutputConstraints(min_length=4, max_length=4)))
    for engine in ("torch", "ctranslate2"):
        assert regard.load(writer).generate("w4", wish, engine=engine, seeded=False)


@pytest.mark.parametrize("width", [1, 2, 3, 7])
@pytest.mark.parametrize("patience", [5e-324, 0.1, 0.3])
def test_no_patience_is_too_small(translator: Path, width: int, patience: float) -> None:
    (found,) = regard.load(translator).translations(
        ["w4 w5"], TranslationOptions(SearchOptions(width, patience=patience))
    )
    assert found.text


def test_int8_translates_too(translator: Path) -> None:
    found = regard.load(translator).translate(LINES)
    assert len(found) == len(LINES)
    assert found[2] == ""
    assert all(text for n, text in enumerate(found) if n != 2)


def test_the_default_engine_never_imports_torch_once_a_model_is_converted(translator: Path) -> None:
    regard.load(translator).translate(LINES)
    program = (
        "import sys, regard\n"
        f"print(regard.load({str(translator)!r}).translate(['w4 w5']))\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_conversion_is_kept_and_made_anew_when_the_weights_change(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    saved(folder, EncoderDecoderConfig(**SMALL))
    first = converted_folder(folder, "int8")
    assert first == folder / "ctranslate2" / f"int8-{fingerprint(folder)}"
    stamp = (first / "model.bin").stat().st_mtime_ns
    assert converted_folder(folder, "int8") == first
    assert (first / "model.bin").stat().st_mtime_ns == stamp
    before = regard.load(folder).translate(LINES)
    saved(tmp_path / "other", EncoderDecoderConfig(**SMALL), seed=1)
    os.replace(tmp_path / "other" / "model.safetensors", folder / "model.safetensors")
    assert converted_folder(folder, "int8") != first
    assert not first.exists()
    assert regard.load(folder).translate(LINES) != before


def test_a_model_folder_that_cannot_be_written_is_converted_in_the_cache(
    translator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)
    folder = tmp_path / "read-only"
    saved(folder, EncoderDecoderConfig(**SMALL), seed=5)
    assert converted_folder(folder, "int8").parent == tmp_path / "regard" / "ctranslate2"


def test_a_model_folder_on_a_full_disk_is_converted_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    saved(folder, EncoderDecoderConfig(**SMALL), seed=5)
    fill_disks(monkeypatch, folder)
    kept = converted_folder(folder, "int8")
    assert kept.parent == tmp_path / "cache" / "regard" / "ctranslate2"
    assert list((folder / "ctranslate2").iterdir()) == []
    assert converted_folder(folder, "int8") == kept
    fill_disks(monkeypatch, folder, tmp_path / "cache")
    name = f"float32-{fingerprint(folder)}"
    with pytest.raises(ModelError) as error:
        converted_folder(folder, "float32")
    assert str(error.value) == (f"{kept.parent / name}: cannot be written (No space left on device); free some space.")


def fill_disks(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Let there be no space left for the conversions of models in these folders."""
    save = TransformerSpec.save

    def full(self: Any, out: str) -> None:
        if any(Path(out).is_relative_to(folder) for folder in folders):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(self, out)

    monkeypatch.setattr(TransformerSpec, "save", full)


def reason(caplog: pytest.LogCaptureFixture, call: Any) -> str:
    caplog.clear()
    with caplog.at_level(logging.INFO, "regard"):
        call()
    return caplog.messages[-1]


def test_the_choice_of_an_engine_has_a_reason(
    translator: Path, writer: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    model, gpt = regard.load(translator), regard.load(writer)
    several = regard.load(translator, translator)
    saved(tmp_path / "odd", EncoderDecoderConfig(**{**SMALL, "feed_forward": 0}))
    odd = regard.load(tmp_path / "odd")
    holds = "engine: ctranslate2, which supports the model and the options."
    torch_because = "engine: torch, because "
    for call, wanted in (
        (lambda: model.translate(["w4"]), holds),
        (lambda: model.translate(["w4"], engine="torch"), "engine: torch, as requested."),
        (
            lambda: model.translate(["w4"], TranslationOptions(prefix="w5")),
            f"{torch_because}a prefix is set.",
        ),
        (
            lambda: model.translate(["w4"], TranslationOptions(SearchOptions(coverage_penalty=1.0))),
            f"{torch_because}a coverage penalty is set.",
        ),
        (
            lambda: model.translate(
                "w4", TranslationOptions(SearchOptions(constraints=OutputConstraints(min_length=3)), token_scores=True)
            ),
            f"{torch_because}token scores are requested with a minimum length or suppressed sequences.",
        ),
        (lambda: model.translate("w4", TranslationOptions(suppress=("w5",))), f"{torch_because}words are suppressed."),
        (lambda: several.translate(["w4"]), f"{torch_because}CTranslate2 does not support ensembles."),
        (
            lambda: odd.translate(["w4"]),
            f"{torch_because}CTranslate2 needs feed-forward layers, and the network has none.",
        ),
        (lambda: gpt.generate("w4"), f"{torch_because}a seed is set, and CTranslate2's samples are not reproducible."),
        (
            lambda: gpt.generate("w4", seeded=False),
            f"{torch_because}the text may outgrow the model's context window.",
        ),
        (
            lambda: gpt.generate(
                "w4", GenerationOptions(SamplingOptions(constraints=OutputConstraints(max_length=9))), seeded=False
            ),
            holds,
        ),
        (
            lambda: gpt.generate(
                "w4",
                GenerationOptions(SamplingOptions(min_p=0.1, constraints=OutputConstraints(max_length=9))),
                seeded=False,
            ),
            f"{torch_because}CTranslate2 has no min_p.",
        ),
        (
            lambda: gpt.generate(
                "w4",
                GenerationOptions(SamplingOptions(top_p=0.9, constraints=OutputConstraints(max_length=9))),
                seeded=False,
            ),
            f"{torch_because}CTranslate2 supports top_p only with a top_k of at most 1,024.",
        ),
    ):
        assert reason(caplog, call) == wanted


def test_an_engine_that_cannot_is_refused_by_name(translator: Path) -> None:
    model = regard.load(translator)
    with pytest.raises(ConfigError) as error:
        model.translate(["w4"], TranslationOptions(prefix="w5"), engine="ctranslate2")
    assert str(error.value) == (
        "the engine ctranslate2 cannot be used because a prefix is set; use --engine torch, or auto."
    )
    with pytest.raises(ConfigError) as error:
        model.translate(["w4"], engine="onnx")  # type: ignore[arg-type]
    assert str(error.value) == "there is no engine 'onnx'; the engines are auto, torch and ctranslate2."


def test_an_iterator_is_translated_as_it_is_read(translator: Path) -> None:
    read = []

    def lines() -> Any:
        for n in range(2000):
            read.append(n)
            yield "w4 w5"

    found = regard.load(translator).translate(lines(), TranslationOptions(SearchOptions(beam=1)))
    next(found)
    assert len(read) < 2000
    assert sum(1 for _ in found) == 1999


def test_scores_of_long_texts_are_read_in_windows(writer: Path) -> None:
    model = regard.load(writer)  # 40 positions
    text = " ".join(f"w{4 + n % 20}" for n in range(100))
    (scores,) = model.score([text])
    assert len(scores) == 101
    (short,) = model.score([" ".join(text.split()[:30])])
    assert scores[:30] == pytest.approx(short[:30], abs=1e-4)
    tokens, ids = model.config.tokens, model.tokenizer.encode(text)
    window = torch.tensor([[tokens.start, *ids][40:80]])  # the windows end at the 40th, 60th, 80th, … prediction
    wanted = model.network.logits(model.network.decode(window)).detach().log_softmax(-1)[0, -1, ids[79]]
    assert scores[79] == pytest.approx(float(wanted), abs=1e-4)


def test_wrong_folders_and_kinds_get_a_sentence(translator: Path, writer: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    one, other = "decoder-only Transformer", "encoder-decoder Transformer"
    for call, sentence in (
        (lambda: regard.load(missing), f"{missing}: is not a folder; give the path of a model folder, or of a run."),
        (lambda: regard.load(writer).translate("w4"), f"{writer}: is of the kind {one}, which does not translate."),
        (
            lambda: regard.load(translator).generate("w4"),
            f"{translator}: is of the kind {other}, which continues no text.",
        ),
        (
            lambda: regard.load(translator, writer),
            f"{writer}: is of the kind {one}, and cannot vote with {translator}, which is of the kind {other}.",
        ),
    ):
        with pytest.raises((ConfigError, ModelError)) as error:
            call()
        assert str(error.value) == sentence


def test_models_with_other_vocabularies_cannot_vote(translator: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    saved(other, EncoderDecoderConfig(**SMALL), seed=3)
    about = json.loads((other / "tokenizer.json").read_text())
    about["model"]["vocab"]["w99"] = about["model"]["vocab"].pop("w9")
    (other / "tokenizer.json").write_text(json.dumps(about))
    with pytest.raises(ConfigError) as error:
        regard.load(translator, other)
    assert str(error.value) == (
        f"{other / 'tokenizer.json'}: is not the same as {translator / 'tokenizer.json'}; "
        "models that vote must share one vocabulary: train them with one tokenizer.file."
    )


def test_a_folder_without_a_tokenizer_takes_no_text(tmp_path: Path) -> None:
    saved(tmp_path / "model", EncoderDecoderConfig(**SMALL))
    path = tmp_path / "model" / "tokenizer.json"
    path.unlink()
    with pytest.raises(ModelError) as error:
        regard.load(tmp_path / "model").translate("w4")
    assert str(error.value) == f"{path}: is missing, so {path.parent} can take no text; copy the folder again."


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, "should be given a str or several, not None."),
        (4, "should be given a str or several, not an int."),
        (b"w4", "should be given a str or several, not bytes; decode them first."),
        (["w4", None], "text 2 should be a str, not None."),
        (["w4", "w5", 1.5], "text 3 should be a str, not a float."),
        ([["w4"]], "text 1 should be a str, not a list."),
    ],
)
def test_what_is_no_text_gets_a_sentence(translator: Path, writer: Path, given: Any, sentence: str) -> None:
    model, gpt = regard.load(translator), regard.load(writer)
    for call, name in (
        (lambda: model.translate(given), "translate"),
        (lambda: model.translations(given), "translate"),
        (lambda: gpt.generate(given), "generate"),
        (lambda: gpt.score(given), "score"),
        (lambda: model.score(given, ["w4"]), "score"),
    ):
        with pytest.raises(ArgumentError) as error:
            call()
        assert str(error.value) == f"{name}: {sentence}"
        assert isinstance(error.value, TypeError)


def test_what_is_no_text_among_texts_that_come_one_by_one_gets_a_sentence(translator: Path) -> None:
    with pytest.raises(ArgumentError) as error:
        list(regard.load(translator).translate(text for text in ("w4", None)))  # type: ignore[misc]
    assert str(error.value) == "translate: text 2 should be a str, not None."


def test_texts_and_targets_that_do_not_match_get_a_sentence(translator: Path) -> None:
    with pytest.raises(InputError) as error:
        regard.load(translator).score(["w4", "w5"], ["w6"])
    assert str(error.value) == "score: 2 texts have 1 targets; give one for each."


def test_config_is_that_of_the_folder(translator: Path) -> None:
    assert regard.load(translator).config.model == Config(model=EncoderDecoderConfig(**SMALL)).model


@pytest.mark.parametrize("name", ["model.bin", "config.json", "shared_vocabulary.json"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff\x00garbage" * 20])
def test_a_damaged_conversion_is_made_again(name: str, content: bytes | None, tmp_path: Path) -> None:
    saved(tmp_path / "model", EncoderDecoderConfig(**SMALL))
    wanted = regard.load(tmp_path / "model").translate(LINES)
    path = converted_folder(tmp_path / "model", "int8") / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert regard.load(tmp_path / "model").translate(LINES) == wanted
