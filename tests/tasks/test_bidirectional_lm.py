"""Bidirectional language models (ELMo): loss, training, resuming, and error messages."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given

import regard
from family import VOCABULARY, Batch, batches, make
from regard.cli.input_output import check_scorable
from regard.config import BidirectionalLanguageModelConfig, CorpusConfig
from regard.errors import ConfigError
from regard.models.recurrent import BidirectionalLanguageModel as Network
from regard.training.batches import BidirectionalBatch
from regard.training.losses import BidirectionalLMObjective
from regard.training.runner import run_training
from small_runs import lines, request, run

KIND = "model.kind=bidirectional-language-model"
SENTENCES = ["the cat sat and the dog ran", "the sun rose", "a dog barked at the sun"]
LEARN = [KIND, "tokenizer.kind=character", "tokenizer.byte_fallback=false", "training.label_smoothing=0.0"]


def make_network() -> Network:
    network = make(BidirectionalLanguageModelConfig(vocab_size=VOCABULARY, width=16))
    assert isinstance(network, Network)
    return network


def bidirectional(batch: Batch) -> BidirectionalBatch:
    return BidirectionalBatch(batch.target, batch.target.roll(-1, 1), batch.target_mask)


@given(batch=batches())
def test_the_loss_is_the_sum_of_two_language_models(batch: Batch) -> None:
    network, both = make_network(), bidirectional(batch)
    loss = BidirectionalLMObjective(network, 0.0)(both)
    expected = 0.0
    for row in range(len(batch.target)):
        mask = batch.target_mask[row]
        ids, following = both.target[row][mask], both.labels[row][mask]
        log_p = network.logits(network.bidirectional_states(ids[None], following[None]))[0].detach().log_softmax(-1)
        for n in range(len(ids)):
            expected -= float(log_p[n, 0, following[n]] + log_p[n, 1, ids[n]])
    assert float(loss.cross_entropy) == pytest.approx(expected)
    assert loss.targets == both.targets == 2 * int(batch.target_mask.sum())


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "book.txt"
    path.write_text("\n\n".join(SENTENCES * 30))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("documents", ["concatenated", "separate"])
def test_both_directions_learn_and_texts_are_encoded(documents: str, text: Path, tmp_path: Path) -> None:
    settings = ["training.steps=120", "training.batch_tokens=300", f"data.documents={documents}"]
    folder = run(tmp_path / "run", text, *LEARN, *settings, "model.width=64", "model.dropout=0.0")
    best = json.loads((folder / "run.json").read_text())["results"]["best"]
    assert best["forward_perplexity"] < 3  # of about 20 characters
    assert best["backward_perplexity"] < 3
    log_perplexities = math.log(best["forward_perplexity"]) + math.log(best["backward_perplexity"])
    assert best["loss"] == pytest.approx(log_perplexities / 2)
    model = regard.load(folder)
    ids = torch.tensor([model.tokenizer.encode("the sun rose")])
    assert model.network(ids).shape == (1, 64)


def test_layer_mixing_is_not_trained(text: Path, tmp_path: Path) -> None:
    folder = run(tmp_path / "run", text, *LEARN, "training.steps=5")
    network = regard.load(folder).network
    assert isinstance(network, Network)
    assert network.mixing.scalars.tolist() == [0.0, 0.0]
    assert network.mixing.scale.tolist() == [1.0]


def test_a_resumed_run_equals_an_uninterrupted_one(text: Path, tmp_path: Path) -> None:
    settings = [*LEARN, "model.dropout=0.2", "validation.every=3"]
    whole = run(tmp_path / "whole", text, *settings, "training.steps=6")
    run(tmp_path / "parts", text, *settings, "training.steps=3")
    parts = run(tmp_path / "parts", text, *settings, "training.steps=6", resume=True)

    def losses(folder: Path) -> list[float]:
        return [line["loss"] for line in lines(folder) if "loss" in line]

    assert losses(whole) == losses(parts)


def test_aligned_files_are_an_error(text: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        run_training(request(tmp_path / "run", text, KIND, f"data.train.source={text}", f"data.train.target={text}"))
    assert str(error.value) == "a language model is trained on --data; --source and --target are for translation."


def test_it_cannot_score_texts(text: Path, tmp_path: Path) -> None:
    folder = run(tmp_path / "run", text, *LEARN, "training.steps=1") / "best"
    model = regard.load(folder)
    with pytest.raises(ConfigError) as error:
        check_scorable(model, CorpusConfig(files=(str(text),)))
    assert str(error.value) == (
        f"{folder} is a bidirectional language model, which generates no text (regard evaluate measures its "
        "predictions); pass a translator or a language model."
    )
