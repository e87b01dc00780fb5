"""Language models from folders, in words and characters, with large vocabularies, and from imported models."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, logging

from commands import regard
from regard.api import load
from regard.data.store import open_store
from regard.data.tokenizer import load_tokenizer
from regard.interop import import_huggingface
from small_runs import lines

SMALL = ("model.width=16", "model.layers=1", "model.heads=2", "model.feed_forward=32", "training.threads=1")
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"


def settings(*values: str) -> list[str]:
    return [argument for value in (*SMALL, *values) for argument in ("--set", value)]


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "notes"
    (folder / "older").mkdir(parents=True)
    (folder / "a.txt").write_text("The cat sees the dog.\nThe dog sees a tree.\n" * 40, "utf-8")
    (folder / "older" / "b.md").write_text("# Trees\n\nA tree is *old*: à côté.\n" * 40, "utf-8")
    (folder / ".hidden.txt").write_text("secret\n" * 40)
    return folder


@pytest.mark.parametrize("documents", ["concatenated", "separate"])
@pytest.mark.parametrize("kind", ["byte-level", "character"])
def test_bits_per_byte_and_samples_of_words_and_characters(
    kind: str, documents: str, notes: Path, tmp_path: Path
) -> None:
    valid = tmp_path / "valid.txt"
    valid.write_text("A dog sees the cat.\n\nThe tree is à côté.\n", "utf-8")
    choice = (f"tokenizer.kind={kind}", f"data.documents={documents}", "model.vocab_size=400")
    steps = ("training.steps=2", "training.batch_tokens=128", "data.context_length=32")
    out = tmp_path / "run"
    done = regard(
        "train", "gpt", "--data", notes, "--valid", valid, "--out", out, "--quiet", *settings(*choice, *steps)
    )
    assert done.code == 0, done.err
    (scores,) = [line["valid"] for line in lines(out) if "valid" in line]
    text, tokenizer = valid.read_text("utf-8"), load_tokenizer(out / "best" / "tokenizer.json")
    targets = len(tokenizer.encode(text)) + 1  # the end of the document is predicted too
    assert scores["bits_per_byte"] == pytest.approx(scores["loss"] * targets / math.log(2) / len(text.encode()))
    samples = lines(out, "samples.jsonl")
    assert samples[0]["prompt"] == text[: len(samples[0]["prompt"])] != ""
    assert all(sample["output"] for sample in samples)


@pytest.mark.slow
def test_a_vocabulary_of_more_than_65536_tokens_trains(tmp_path: Path) -> None:
    """Every Chinese character is a token, and ids need more than 16 bits."""
    characters = [chr(code) for code in (*range(0x4E00, 0xA000), *range(0xAC00, 0xD7A4), *range(0x20000, 0x2A6D0))]
    data, valid, out = tmp_path / "data.txt", tmp_path / "valid.txt", tmp_path / "run"
    data.write_text("".join(characters), "utf-8")
    valid.write_text("".join(characters[-9:]), "utf-8")
    steps = ("training.steps=2", "training.batch_tokens=64", "data.context_length=32", "validation.samples=1")
    vocabulary = ("model.vocab_size=80000", "tokenizer.kind=character", "model.width=8", f"data.store={tmp_path}/store")
    done = regard(
        *("train", "gpt", "--data", data, "--valid", valid, "--out", out, "--quiet"), *settings(*vocabulary, *steps)
    )
    assert done.code == 0, done.err
    (folder,) = (path.parent for path in tmp_path.glob("store/*/train/*.ids"))
    store = open_store(folder)
    assert store is not None
    (column,) = store.columns
    assert column.ids.dtype == np.uint32
    tokenizer = load_tokenizer(out / "best" / "tokenizer.json")
    assert len(tokenizer) > 2**16
    assert tokenizer.decode(column.ids[: len(characters)].tolist()) == "".join(characters)
    assert column.ids.max() > 2**16


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of transformers with its own tokenizer and chat template, imported."""
    folder = tmp_path_factory.mktemp("llama")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(["The cat sees the dog."] * 4, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.chat_template = TEMPLATE
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(1)
    logging.set_verbosity_error()
    network = LlamaForCausalLM(
        LlamaConfig(vocab_size=300, num_key_value_heads=1, bos_token_id=0, eos_token_id=1, **shape)
    )
    network.save_pretrained(folder / "hf")
    fast.save_pretrained(folder / "hf")
    import_huggingface(folder / "hf", folder / "imported")
    return folder / "imported"


def test_an_imported_model_is_trained_further_with_its_tokenizer_and_template(
    llama: Path, notes: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = regard(
        *("train", "gpt", "--data", notes, "--from", llama, "--out", out, "--quiet"),
        *("--set", "training.steps=8", "--set", "validation.every=8", "--set", "training.batch_tokens=256"),
    )
    assert done.code == 0, done.err
    chosen = {
        setting["setting"]: setting["value"]
        for setting in json.loads((out / "run.json").read_text())["automatic_settings"]
    }
    fresh = 3e-3 * math.sqrt(128 / 16) * math.sqrt(256 / 4096)
    assert float(chosen["training.schedule.learning_rate"]) == pytest.approx(fresh / 10, rel=0.05)
    assert not {"model.width", "tokenizer.kind"} & set(chosen)
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (out / "best" / name).read_bytes() == (llama / name).read_bytes()
    before, after = (load(folder).network.state_dict() for folder in (llama, out))
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    losses = [line["loss"] for line in lines(out) if "loss" in line]
    assert losses[-1] < math.log(300) + 0.5  # it did not begin again with another vocabulary


def test_a_model_that_is_trained_further_for_a_time_keeps_its_network(
    llama: Path, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.training.speed.seconds_per_token", lambda *_: 1e-2)
    arguments = ("--data", notes, "--from", llama, "--out", tmp_path / "run", "--minutes", "0.05", "--quiet")
    finished = regard("train", "gpt", *arguments)
    assert finished.code == 0, finished.err
    before, after = (load(folder).config.model for folder in (llama, tmp_path / "run"))
    assert (after.width, after.layers, after.vocab_size) == (before.width, before.layers, before.vocab_size)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_presets_of_llama_train(notes: Path, tmp_path: Path) -> None:
    arguments = ("train", "gpt", "--preset", "llama-tiny", "--data", notes, "--out", tmp_path / "run", "--quiet")
    shape = ("--set", "model.layers=1", "--set", "training.steps=1", "--set", "training.batch_tokens=64")
    done = regard(*arguments, *shape, "--set", "data.context_length=16", "--set", "validation.samples=1")
    assert done.code == 0, done.err
    generated = regard("generate", tmp_path / "run", "--prompt", "The", "--max-tokens", "3")
    assert generated.code == 0, generated.err
    assert "The" in generated.out
