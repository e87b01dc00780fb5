"""Recurrent networks in the same commands as Transformers: training, translation and generation."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.config import (
    Config,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
    TrainingConfig,
    load_config,
)
from regard.errors import ConfigError, InputError, ModelError
from regard.interop.huggingface import export_huggingface
from small_runs import lines, run, write_pairs

KIND = "model.kind=recurrent-encoder-decoder"
LEARN = ["training.steps=300", "validation.every=150", "training.batch_tokens=400", "model.dropout=0.0"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.tsv", 1500)


@pytest.fixture(scope="module")
def learned(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = [*LEARN, "model.width=64", "validation.sentences=50", KIND]
    return run(tmp_path_factory.mktemp("runs") / "learned", data, *settings)


@pytest.mark.slow
def test_a_recurrent_translator_learns_a_small_language(learned: Path) -> None:
    assert json.loads((learned / "run.json").read_text())["results"]["best"]["bleu"] > 80
    assert "Recurrent encoder-decoder" in (learned / "best" / "README.md").read_text()


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.slow
def test_attention_aligns_words(learned: Path, beam: int) -> None:
    """The target is reversed, so each word attends to its counterpart from the end."""
    model = regard.load(learned)
    (translation,) = model.translate_detailed(["one two three"], beam=beam, attention=True)
    assert translation.text == "tre due uno"
    attention = translation.sentences[0].alternatives[0].attention
    assert attention is not None
    assert torch.tensor(attention)[:3].argmax(-1).tolist() == [2, 1, 0]


def test_a_network_without_attention_translates_without_alignments(data: Path, tmp_path: Path) -> None:
    folder = run(tmp_path / "run", data, KIND, "model.attention=none", "model.cell=rnn", "training.steps=3")
    model = regard.load(folder)
    (translation,) = model.translate_detailed(["one two"], attention=True)
    assert translation.sentences[0].alternatives[0].attention is None
    with pytest.raises(InputError) as error:
        model.translate_detailed(["one two"], copy_unknown=True)
    assert str(error.value) == "This network has no attention to a source, so there is no alignment."


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(data: Path, tmp_path: Path) -> None:
    settings = [KIND, "model.cell=gru", "model.dropout=0.2", "validation.every=3"]
    whole = run(tmp_path / "whole", data, *settings, "training.steps=6")
    run(tmp_path / "parts", data, *settings, "training.steps=3")
    parts = run(tmp_path / "parts", data, *settings, "training.steps=6", resume=True)

    def losses(folder: Path) -> list[float]:
        return [line["loss"] for line in lines(folder) if "loss" in line]

    assert losses(whole) == losses(parts)


@pytest.mark.parametrize("documents", ["concatenated", "separate"])
@pytest.mark.slow
def test_a_recurrent_language_model_learns_and_generates(documents: str, tmp_path: Path) -> None:
    text = tmp_path / "book.txt"
    text.write_text("\n\n".join(["the cat sat and the dog ran", "the sun rose"] * 40))
    settings = ["model.kind=recurrent-language-model", "tokenizer.kind=character", f"data.documents={documents}"]
    learning = ["training.steps=150", "training.batch_tokens=600", "training.label_smoothing=0.0"]
    folder = run(tmp_path / "run", text, *settings, *learning)
    assert json.loads((folder / "run.json").read_text())["results"]["best"]["loss"] < 1.0
    model = regard.load(folder)
    assert model.generate("the su", temperature=0.0, max_tokens=8).startswith("n rose")


def test_additive_attention_comes_before_each_step_and_others_after_by_default() -> None:
    assert RecurrentEncoderDecoderConfig().attention_timing == "before"
    assert (
        RecurrentEncoderDecoderConfig(attention="dot").attention_timing
        == RecurrentEncoderDecoderConfig(attention="general").attention_timing
        == "after"
    )
    assert RecurrentEncoderDecoderConfig(attention_order="after").attention_timing == "after"
    assert RecurrentEncoderDecoderConfig(attention="dot", attention_order="before").attention_timing == "before"


def test_gradients_of_recurrent_networks_are_clipped_by_default() -> None:
    assert Config().training.max_grad_norm == 0
    assert Config(model=RecurrentLanguageModelConfig()).training.max_grad_norm == 1
    assert Config(model=RecurrentEncoderDecoderConfig(), training=TrainingConfig(steps=5)).training.max_grad_norm == 1
    assert (
        Config(model=RecurrentLanguageModelConfig(), training=TrainingConfig(max_grad_norm=0.0)).training.max_grad_norm
        == 0
    )
    assert load_config("tiny", [KIND]).training.max_grad_norm == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["model.width=31"],
            "model.bidirectional = True needs an even model.width, not 31: use 32, or set bidirectional = false.",
        ),
        (
            ["model.target_vocab_size=50"],
            "--set model.target_vocab_size=50: model.target_vocab_size = 50 differs from model.vocab_size = 37000: "
            "set model.share_embeddings = false.",
        ),
        (
            ["model.attention=none", "model.attention_order=before"],
            "--set model.attention_order=before: model.attention_order = 'before' has no effect, since "
            "model.attention is none: choose additive, dot or general.",
        ),
    ],
)
def test_contradicting_settings_are_errors(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, [KIND, *settings])
    assert str(error.value) == message


@pytest.mark.slow
def test_unsupported_uses_are_errors(learned: Path, tmp_path: Path) -> None:
    model: Any = regard.load(learned)
    folder = learned / "best"
    with pytest.raises(ConfigError) as error:
        model.translate("one", engine="ctranslate2")
    assert str(error.value) == (
        "the engine ctranslate2 cannot be used because CTranslate2 is for Transformers, and the network is recurrent; "
        "use the engine torch, or auto."
    )
    with pytest.raises(ConfigError) as error:
        model.generate("one")
    assert str(error.value) == (
        f"{folder}: is a model of type recurrent encoder-decoder, which does not generate text; use a language model."
    )
    with pytest.raises(ModelError) as export_error:
        export_huggingface(folder, tmp_path / "theirs")
    assert str(export_error.value) == (
        f"{folder}: cannot be exported to Hugging Face, because transformers has no class for models of type "
        "recurrent encoder-decoder; use it with regard."
    )
