"""Masked language models: training, resuming, filling masks, and error messages."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

import regard
from commands import regard as command_line
from regard.config import (
    Config,
    ConfigSource,
    DecoderOnlyConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    ModelConfig,
    TokenHeadConfig,
    validate_sources,
)
from regard.errors import ConfigError, DataError, InputError, ModelError
from regard.models import build, save
from regard.training.batches import MaskedBatch
from regard.training.losses import MaskedLMObjective
from small_runs import lines, numbers, run

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
ENCODER = [
    "model.kind=encoder-only",
    "model.head=tokens",
    "model.vocab_size=40",
    "model.norm_order=pre",
    "model.scale_embeddings=false",
    "model.dropout=0.0",
    "tokenizer.kind=word",
    "tokenizer.byte_fallback=false",
    "training.label_smoothing=0.0",
    "data.context_length=12",
    "data.documents=separate",
]
LEARN = [
    'model.positions={kind="relative", max_distance=3}',
    "training.batch_tokens=600",
    "training.steps=150",
    "training.masking.random_fraction=0.0",
    'training.schedule={kind="cosine", learning_rate=0.01, warmup_steps=20}',
    "validation.every=75",
    "validation.metric=accuracy",
    "validation.samples=2",
]


def counting(count: int, seed: int = 0) -> list[str]:
    """Texts that count from a random number: each word follows from the one before or after it."""
    draw = random.Random(seed)
    spans = [(draw.randrange(10), draw.randint(6, 9)) for _ in range(count)]
    return [" ".join(NUMBERS[(start + n) % 10] for n in range(length)) for start, length in spans]


def write_texts(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("data") / "counting.jsonl", counting(600))


@pytest.fixture(scope="module")
def learned(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("runs") / "learned", data, *ENCODER, *LEARN)


def test_an_encoder_learns_from_the_context(learned: Path) -> None:
    info = json.loads((learned / "run.json").read_text())
    best = info["results"]["best"]
    assert info["task"] == "masked language model"
    assert best["accuracy"] > 0.95
    assert best["loss"] < 0.25
    assert best["perplexity"] < 1.3


def test_samples_show_masks_and_predictions(learned: Path) -> None:
    samples = [sample for sample in lines(learned, "samples.jsonl") if sample["step"] == 150]
    assert len(samples) == 2
    for sample in samples:
        assert "[MASK]" in sample["source"]
        assert len(sample["source"].split()) == len(sample["reference"].split()) == len(sample["output"].split())
    page = (learned / "report.html").read_text()
    assert "accuracy" in page
    assert "[MASK]" in page


def test_a_loaded_model_fills_masks(learned: Path) -> None:
    model = regard.load(learned)
    assert model.config.tokens.mask == model.tokenizer.token_id("[MASK]") == 4
    (filled,) = model.fill_detailed("three four [MASK] six seven [MASK] nine", top_k=3)
    assert filled.text == "three four five six seven eight nine"
    assert [candidates[0].text for candidates in filled.masks] == ["five", "eight"]
    assert filled.masks[0][0].token == "▁five"
    assert [len(candidates) for candidates in filled.masks] == [3, 3]
    for candidates in filled.masks:
        probabilities = [candidate.probability for candidate in candidates]
        assert probabilities == sorted(probabilities, reverse=True)
        assert 0.5 < probabilities[0] <= sum(probabilities) <= 1 + 1e-6


def test_a_batch_is_filled_like_single_texts(learned: Path) -> None:
    model = regard.load(learned, learned)  # an ensemble of two
    texts = ["one [MASK] three", "four five [MASK] seven eight nine", "[MASK] six"]
    batch = model.fill_detailed(texts)
    for text, filled in zip(texts, batch, strict=True):
        (single,) = model.fill_detailed(text)
        assert (filled.source, filled.text) == (text, single.text)
        assert filled.masks[0][0].probability == pytest.approx(single.masks[0][0].probability, abs=1e-5)


def test_the_command_fills_each_line(learned: Path) -> None:
    done = command_line("fill", learned, "--top-k", "1", stdin=b"one [MASK] three\nfour [MASK] six [MASK]\n")
    assert done.code == 0, done.err
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["one two three", "four five six seven"]
    assert [len(row) for row in rows] == [2, 3]
    assert rows[0][1].startswith("two 0.")
    result = json.loads(command_line("fill", learned, "--json", "--top-k", "2", stdin=b"one [MASK] three").out)
    assert result["text"] == "one two three"
    assert result["masks"][0][0]["text"] == "two"
    assert set(result["masks"][0][0]) == {"text", "token", "probability"}


def test_lines_without_a_mask_are_errors_or_skipped(learned: Path) -> None:
    problem = "standard input:2: has no [MASK]; write [MASK] where a word is missing"
    text = b"one [MASK] three\none two\n"
    done = command_line("fill", learned, stdin=text)
    assert (done.code, done.err) == (3, f"regard: {problem}, or skip such lines with --skip-invalid.\n")
    done = command_line("fill", learned, "--skip-invalid", "--top-k", "1", stdin=text)
    assert done.code == 0
    assert done.out.splitlines()[1] == ""
    assert done.err == f"1 skipped: cannot be filled ({problem}).\n"


def test_texts_without_a_mask_or_too_long_are_errors(tmp_path: Path) -> None:
    model = EncoderOnlyConfig(
        vocab_size=8,
        width=8,
        layers=1,
        heads=2,
        feed_forward=8,
        head=TokenHeadConfig(),
        positions=LearnedPositionsConfig(max_length=5),
    )
    config = Config(model=model).model_copy(update={"tokens": Config().tokens.model_copy(update={"mask": 4})})
    save(tmp_path / "m", build(model), config, extra_files={"tokenizer.json": two_word_tokenizer()})
    loaded = regard.load(tmp_path / "m")
    with pytest.raises(InputError) as error:
        loaded.fill(["a [MASK]", "a b"])
    assert str(error.value) == "text 2: has no [MASK]; write [MASK] where a word is missing."
    with pytest.raises(InputError) as error:
        loaded.fill_detailed("a [MASK]", top_k=0)
    assert str(error.value) == "top_k is 0; it should be 1 or more."
    with pytest.raises(InputError) as error:
        loaded.fill("a b [MASK] a")
    assert str(error.value) == (
        "text 1: has 6 tokens with start and end token, but this network has 5 learned positions; shorten it."
    )


def two_word_tokenizer(mask: str | None = "[MASK]") -> bytes:
    """A tokenizer of two words."""
    tokens = ["[PAD]", "[UNK]", "[SOS]", "[EOS]", *([mask] if mask else []), "a", "b"]
    library = Tokenizer(models.WordLevel({token: n for n, token in enumerate(tokens)}, "[UNK]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return library.to_str().encode()


def test_models_without_a_masked_head_are_errors(tmp_path: Path) -> None:
    small: dict[str, Any] = {"vocab_size": 7, "width": 8, "layers": 1, "heads": 2, "feed_forward": 8}
    configs: dict[str, ModelConfig] = {
        "gpt": DecoderOnlyConfig(**small),
        "bare": EncoderOnlyConfig(**small),
        "no-mask": EncoderOnlyConfig(**small, head=TokenHeadConfig()),
    }
    for name, model in configs.items():
        save(tmp_path / name, build(model), Config(model=model), extra_files={"tokenizer.json": two_word_tokenizer()})
    for name, kind in {"gpt": "decoder-only Transformer", "bare": "encoder-only Transformer"}.items():
        with pytest.raises(ConfigError) as error:
            regard.load(tmp_path / name).fill("a [MASK]")
        assert str(error.value) == (
            f"{tmp_path / name}: is a model of type {kind} without a head that predicts masked tokens; "
            "train one with regard train masked."
        )
    with pytest.raises(ModelError) as model_error:
        regard.load(tmp_path / "no-mask").fill("a [MASK]")
    assert str(model_error.value) == (
        f"{tmp_path / 'no-mask' / 'config.json'}: does not set the mask token; set tokens.mask in it."
    )


SHORT = [
    *ENCODER,
    "training.steps=12",
    "validation.every=6",
    "training.batch_tokens=300",
    "training.gradient_accumulation=2",
]


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(data: Path, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", data, *SHORT)
    out = run(tmp_path / "halves", data, *SHORT, "training.steps=6")
    run(out, data, *SHORT, resume=True)
    assert numbers(out) == numbers(whole)
    weights = [(folder / "last" / "model.safetensors").read_bytes() for folder in (out, whole)]
    assert weights[0] == weights[1]


def test_each_epoch_masks_other_tokens_and_validation_the_same(data: Path, tmp_path: Path) -> None:
    still = ["training.schedule.learning_rate=1e-12", "training.steps=4", "validation.every=2"]
    out = run(tmp_path / "run", data, *ENCODER, *still, "training.batch_tokens=100000")
    assert lines(out)[-1]["epoch"] == 4.0
    trained = [line["loss"] for line in lines(out) if "loss" in line]
    assert len(set(trained)) == 4
    valid = [line["valid"]["loss"] for line in lines(out) if "valid" in line]
    assert valid[0] == pytest.approx(valid[1], abs=1e-6)


def test_line_ends_of_text_files_become_spaces(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(counting(60)))
    concatenated = [
        "data.documents=concatenated",
        "training.masking.whole_words=true",
        "tokenizer.kind=bpe",
        "model.vocab_size=300",
    ]
    out = run(tmp_path / "run", text, *ENCODER, *concatenated, "training.steps=3")
    (sample,) = lines(out, "samples.jsonl")
    assert "\n" not in sample["reference"]
    _, *inside, _ = sample["reference"].split(" ")  # the first and the last may be truncated
    assert set(inside) <= {*NUMBERS}


def test_the_pooling_is_not_trained() -> None:
    """Distributed processes would wait for its gradient."""
    model = EncoderOnlyConfig(
        vocab_size=9,
        width=8,
        layers=1,
        heads=2,
        feed_forward=8,
        segments=2,
        head=TokenHeadConfig(),
        pooling="first-dense",
    )
    objective = MaskedLMObjective(build(model), 0.0)  # type: ignore[arg-type]
    ids, none = torch.randint(4, 9, (2, 5)), torch.zeros(2, 5, dtype=torch.bool)
    for selected in (torch.ones(2, 5, dtype=torch.bool), none):  # the shard of a process may have no masks
        objective.zero_grad()
        objective(MaskedBatch(ids, ids, selected, ~none)).loss.backward()
        missing = [name for name, p in objective.named_parameters() if p.requires_grad and p.grad is None]
        assert missing == []
    assert not any(parameter.requires_grad for parameter in objective.network.pooling.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["training.masking.mask_fraction=0.95"],
            "--set training.masking.mask_fraction=0.95: training.masking.random_fraction = 0.1 is too large with "
            "training.masking.mask_fraction = 0.95: their sum should be at most 1; lower one.",
        ),
        (
            ["training.masking.probability=0"],
            "--set training.masking.probability=0: training.masking.probability = 0 should be greater than 0.",
        ),
        (
            ["data.context_length=2"],
            "data.context_length = 2 leaves no room for text between the start and end tokens; use 3 or more.",
        ),
    ],
)
def test_invalid_settings_are_errors(settings: list[str], message: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        run(tmp_path / "run", data, *ENCODER, *settings)
    assert str(error.value) == message


def test_accuracy_is_not_a_metric_of_translation() -> None:
    with pytest.raises(ConfigError) as error:
        validate_sources([ConfigSource("my.toml", {"validation": {"metric": "accuracy"}})])
    assert str(error.value) == (
        "my.toml: validation.metric = 'accuracy' is not measured where model.kind = 'encoder-decoder' is trained for "
        "translation: use loss or bleu or chrf."
    )


def test_the_tokenizer_must_have_a_mask_token(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(two_word_tokenizer(mask=None))
    with pytest.raises(DataError) as error:
        run(tmp_path / "without", data, *ENCODER, f"tokenizer.file={path}")
    assert str(error.value) == (
        f"{path}: has no mask token, such as [MASK] or <mask>; "
        "add one, or leave tokenizer.file out to train a tokenizer that has one."
    )
    path.write_bytes(two_word_tokenizer(mask="<mask>"))
    text = write_texts(tmp_path / "text.jsonl", ["a b b a"] * 40)
    out = run(tmp_path / "with", text, *ENCODER[:2], *ENCODER[3:], f"tokenizer.file={path}", "training.steps=2")
    model = regard.load(out)
    assert model.config.tokens.mask == 4
    assert len(model.fill_detailed("a <mask> b")[0].masks) == 1


def test_text_of_unknown_tokens_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(two_word_tokenizer())
    text = write_texts(tmp_path / "text.jsonl", ["x y z"] * 40)
    with pytest.raises(DataError) as error:
        run(tmp_path / "run", text, *ENCODER[:2], *ENCODER[3:], f"tokenizer.file={path}")
    assert (
        str(error.value)
        == "data.train has no token that the tokenizer knows, so none can be masked; provide more text."
    )


def test_aligned_files_are_an_error(tmp_path: Path) -> None:
    done = command_line("train", "masked", "--source", "a", "--target", "b", "--out", tmp_path / "run")
    assert done.code == 2
    assert done.err.endswith("an encoder is trained on --data; --source and --target are for translation.\n")


def test_settings_are_chosen_from_the_text(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(counting(200)))
    small = ["training.steps=2", "model.width=16", "model.layers=1", "model.feed_forward=16", "validation.samples=1"]
    sets = [part for setting in small for part in ("--set", setting)]
    done = command_line("train", "masked", "--data", text, "--out", tmp_path / "run", *sets)
    assert done.code == 0, done.err
    assert "model.norm_order = pre: trains without a long warmup.\n" in done.err
    assert "Encoder-only Transformer, " in done.err
    assert "accuracy" in done.out
    config = json.loads((tmp_path / "run" / "best" / "config.json").read_text())
    assert config["model"]["head"]["kind"] == "tokens"
    assert config["tokens"]["mask"] == 4
