"""Encoders that guess hidden tokens: they learn, resume and fill holes, and what is wrong is a sentence."""

import json
import random
import subprocess
import sys
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
from regard.training.objectives import MaskedBatch, MaskedToken
from small_runs import command, lines, numbers, run

COUNT = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
ENCODER = [
    "model.kind=encoder-only",
    "model.head=tokens",
    "model.vocab_size=40",
    "model.norm_order=pre",
    "model.scale_embeddings=false",
    "model.dropout=0.0",
    "tokenizer.kind=word",
    "training.label_smoothing=0.0",
    "data.context_length=12",
    "data.documents=separate",
]
LEARN = [
    'model.positions={kind="relative", clip=3}',
    "training.batch_tokens=600",
    "training.steps=150",
    "training.masking.random_fraction=0.0",
    'training.schedule={kind="cosine", peak=0.01, warmup=20}',
    "validation.every=75",
    "validation.metric=accuracy",
    "validation.samples=2",
]


def counting(count: int, seed: int = 0) -> list[str]:
    """Texts that count on from anywhere: each word follows from the one before or after it."""
    draw = random.Random(seed)
    spans = [(draw.randrange(10), draw.randint(6, 9)) for _ in range(count)]
    return [" ".join(COUNT[(start + n) % 10] for n in range(length)) for start, length in spans]


def write_texts(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("data") / "counting.jsonl", counting(600))


@pytest.fixture(scope="module")
def learned(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("runs") / "learned", data, *ENCODER, *LEARN)


def test_an_encoder_learns_what_follows_from_the_words_around(learned: Path) -> None:
    about = json.loads((learned / "run.json").read_text())
    best = about["results"]["best"]
    assert about["task"] == "masked-token model"
    assert best["accuracy"] > 0.95
    assert best["loss"] < 0.25
    assert best["perplexity"] < 1.3


def test_samples_show_the_holes_and_what_fills_them(learned: Path) -> None:
    samples = [sample for sample in lines(learned, "samples.jsonl") if sample["step"] == 150]
    assert len(samples) == 2
    for sample in samples:
        assert "[MASK]" in sample["source"]
        assert len(sample["source"].split()) == len(sample["reference"].split()) == len(sample["output"].split())
    page = (learned / "report.html").read_text()
    assert "accuracy" in page
    assert "[MASK]" in page


def test_the_folder_knows_its_mask_and_fills_holes(learned: Path) -> None:
    model = regard.load(learned)
    assert model.config.tokens.mask == model.tokenizer.token_id("[MASK]") == 4
    (filled,) = model.fill_detailed("three four [MASK] six seven [MASK] nine", top_k=3)
    assert filled.text == "three four five six seven eight nine"
    assert [guesses[0].text for guesses in filled.masks] == ["five", "eight"]
    assert filled.masks[0][0].token == "▁five"
    assert [len(guesses) for guesses in filled.masks] == [3, 3]
    for guesses in filled.masks:
        chances = [guess.probability for guess in guesses]
        assert chances == sorted(chances, reverse=True)
        assert 0.5 < chances[0] <= sum(chances) <= 1 + 1e-6


def test_several_texts_are_filled_as_each_by_itself(learned: Path) -> None:
    model = regard.load(learned, learned)  # two that vote
    texts = ["one [MASK] three", "four five [MASK] seven eight nine", "[MASK] six"]
    together = model.fill_detailed(texts)
    for text, filled in zip(texts, together, strict=True):
        (alone,) = model.fill_detailed(text)
        assert (filled.source, filled.text) == (text, alone.text)
        assert filled.masks[0][0].probability == pytest.approx(alone.masks[0][0].probability, abs=1e-5)


def test_the_command_fills_line_for_line(learned: Path) -> None:
    done = command_line("fill", learned, "--top-k", "1", stdin=b"one [MASK] three\nfour [MASK] six [MASK]\n")
    assert done.code == 0, done.err
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["one two three", "four five six seven"]
    assert [len(row) for row in rows] == [2, 3]
    assert rows[0][1].startswith("two 0.")
    told = json.loads(command_line("fill", learned, "--json", "--top-k", "2", stdin=b"one [MASK] three").out)
    assert told["text"] == "one two three"
    assert told["holes"][0][0]["text"] == "two"
    assert set(told["holes"][0][0]) == {"text", "token", "probability"}


def test_lines_that_cannot_be_filled_are_named_or_skipped(learned: Path) -> None:
    why = "standard input:2: has no [MASK]; write [MASK] where a word is missing"
    given = b"one [MASK] three\none two\n"
    done = command_line("fill", learned, stdin=given)
    assert (done.code, done.err) == (3, f"regard: {why}, or skip such lines with --skip-invalid.\n")
    done = command_line("fill", learned, "--skip-invalid", "--top-k", "1", stdin=given)
    assert done.code == 0
    assert done.out.splitlines()[1] == ""
    assert done.err == f"1 skipped: cannot be filled ({why}).\n"


def test_a_text_without_a_hole_or_beyond_all_positions_is_a_sentence(tmp_path: Path) -> None:
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
    save(tmp_path / "m", build(model), config, extra_files={"tokenizer.json": words()})
    ready = regard.load(tmp_path / "m")
    with pytest.raises(InputError) as error:
        ready.fill(["a [MASK]", "a b"])
    assert str(error.value) == "text 2: has no [MASK]; write [MASK] where a word is missing."
    with pytest.raises(InputError) as error:
        ready.fill_detailed("a [MASK]", top_k=0)
    assert str(error.value) == "top_k is 0; it should be 1 or more."
    with pytest.raises(InputError) as error:
        ready.fill("a b [MASK] a")
    assert str(error.value) == (
        "text 1: has 6 tokens with start and end token, but this network has 5 learned positions; shorten it."
    )


def words(mask: str | None = "[MASK]") -> bytes:
    """A tokenizer of two words."""
    pieces = ["[PAD]", "[UNK]", "[SOS]", "[EOS]", *([mask] if mask else []), "a", "b"]
    library = Tokenizer(models.WordLevel({piece: n for n, piece in enumerate(pieces)}, "[UNK]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return library.to_str().encode()


def test_models_that_guess_no_hidden_tokens_say_so(tmp_path: Path) -> None:
    small: dict[str, Any] = {"vocab_size": 7, "width": 8, "layers": 1, "heads": 2, "feed_forward": 8}
    models_of: dict[str, ModelConfig] = {
        "gpt": DecoderOnlyConfig(**small),
        "bare": EncoderOnlyConfig(**small),
        "blind": EncoderOnlyConfig(**small, head=TokenHeadConfig()),
    }
    for name, model in models_of.items():
        save(tmp_path / name, build(model), Config(model=model), extra_files={"tokenizer.json": words()})
    for name, kind in {"gpt": "decoder-only Transformer", "bare": "encoder-only Transformer"}.items():
        with pytest.raises(ConfigError) as error:
            regard.load(tmp_path / name).fill("a [MASK]")
        assert str(error.value) == (
            f"{tmp_path / name}: is a model of type {kind} without a head that predicts masked tokens; "
            "train one with regard train masked."
        )
    with pytest.raises(ModelError) as refused:
        regard.load(tmp_path / "blind").fill("a [MASK]")
    assert str(refused.value) == (
        f"{tmp_path / 'blind' / 'config.json'}: does not set the mask token; set tokens.mask in it."
    )


SHORT = [
    *ENCODER,
    "training.steps=12",
    "validation.every=6",
    "training.batch_tokens=300",
    "training.gradient_accumulation=2",
]


def test_a_resumed_run_equals_an_uninterrupted_one(data: Path, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", data, *SHORT)
    out = run(tmp_path / "halves", data, *SHORT, "training.steps=6")
    run(out, data, *SHORT, resume=True)
    assert numbers(out) == numbers(whole)
    weights = [(folder / "last" / "model.safetensors").read_bytes() for folder in (out, whole)]
    assert weights[0] == weights[1]


def test_each_epoch_hides_other_tokens_and_validation_the_same(data: Path, tmp_path: Path) -> None:
    still = ["training.schedule.learning_rate=1e-12", "training.steps=4", "validation.every=2"]
    out = run(tmp_path / "run", data, *ENCODER, *still, "training.batch_tokens=100000")
    assert lines(out)[-1]["epoch"] == 4.0
    trained = [line["loss"] for line in lines(out) if "loss" in line]
    assert len(set(trained)) == 4
    valid = [line["valid"]["loss"] for line in lines(out) if "valid" in line]
    assert valid[0] == pytest.approx(valid[1], abs=1e-6)


def test_text_in_plain_files_is_one_stream_whose_line_ends_are_spaces(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(counting(60)))
    joined = [
        "data.documents=concatenated",
        "training.masking.whole_words=true",
        "tokenizer.kind=bpe",
        "model.vocab_size=300",
    ]
    out = run(tmp_path / "run", text, *ENCODER, *joined, "training.steps=3")
    (sample,) = lines(out, "samples.jsonl")
    assert "\n" not in sample["reference"]
    _, *inside, _ = sample["reference"].split(" ")  # the first and the last may be cut off
    assert set(inside) <= {*COUNT}


def test_the_pooling_has_no_part_in_it() -> None:
    """So that with several processes none waits for its gradient."""
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
    objective = MaskedToken(build(model), 0.0)  # type: ignore[arg-type]
    ids, nowhere = torch.randint(4, 9, (2, 5)), torch.zeros(2, 5, dtype=torch.bool)
    for chosen in (torch.ones(2, 5, dtype=torch.bool), nowhere):  # a process's share may have nothing to guess
        objective.zero_grad()
        objective(MaskedBatch(ids, ids, chosen, ~nowhere)).loss.backward()
        missing = [name for name, p in objective.named_parameters() if p.requires_grad and p.grad is None]
        assert missing == []
    assert not any(parameter.requires_grad for parameter in objective.network.pooling.parameters())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ["training.masking.mask_fraction=0.95"],
            "--set training.masking.mask_fraction=0.95: training.masking.random_fraction = 0.1 is too much with "
            "training.masking.mask_fraction = 0.95: their sum is at most 1; lower one.",
        ),
        (
            ["training.masking.probability=0"],
            "--set training.masking.probability=0: training.masking.probability = 0 should be greater than 0.",
        ),
        (
            ["data.context_length=2"],
            "data.context_length = 2 leaves no room for text between its start and its end; use 3 or more.",
        ),
    ],
)
def test_settings_that_cannot_be_are_sentences(settings: list[str], sentence: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        run(tmp_path / "run", data, *ENCODER, *settings)
    assert str(error.value) == sentence


def test_accuracy_is_for_encoders() -> None:
    with pytest.raises(ConfigError) as error:
        validate_sources([ConfigSource("my.toml", {"validation": {"metric": "accuracy"}})])
    assert str(error.value) == (
        "my.toml: validation.metric = 'accuracy' is for labels, but model.kind = 'encoder-decoder' has none."
    )


def test_a_tokenizer_without_a_mask_is_refused_and_one_with_a_mask_is_taken(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(words(mask=None))
    with pytest.raises(DataError) as error:
        run(tmp_path / "refused", data, *ENCODER, f"tokenizer.file={path}")
    assert str(error.value) == (
        f"{path}: has no token to hide others behind, such as [MASK] or <mask>; "
        "add one, or leave tokenizer.file out to learn a tokenizer that has."
    )
    path.write_bytes(words(mask="<mask>"))
    text = write_texts(tmp_path / "text.jsonl", ["a b b a"] * 40)
    out = run(tmp_path / "taken", text, *ENCODER[:2], *ENCODER[3:], f"tokenizer.file={path}", "training.steps=2")
    model = regard.load(out)
    assert model.config.tokens.mask == 4
    assert len(model.fill_detailed("a <mask> b")[0].masks) == 1


def test_text_of_which_nothing_is_known_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(words())
    text = write_texts(tmp_path / "text.jsonl", ["x y z"] * 40)
    with pytest.raises(DataError) as error:
        run(tmp_path / "run", text, *ENCODER[:2], *ENCODER[3:], f"tokenizer.file={path}")
    assert (
        str(error.value) == "data.train has no token that the tokenizer knows, so none can be hidden; give more text."
    )


def test_pairs_are_for_translation(tmp_path: Path) -> None:
    done = command_line("train", "masked", "--source", "a", "--target", "b", "--out", tmp_path / "run")
    assert done.code == 2
    assert done.err.endswith("an encoder learns from --data; --source and --target are for translation.\n")


def test_two_processes_equal_one_even_where_a_part_is_not_trained(data: Path, tmp_path: Path) -> None:
    settings = [*SHORT, "training.steps=4", "validation.every=4", "model.pooling=first-dense"]
    one = run(tmp_path / "one", data, *settings)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29541"]
    call = [*launcher, *command(tmp_path / "two", data, *settings)[1:]]
    done = subprocess.run(call, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for left, right in zip(numbers(one), numbers(tmp_path / "two"), strict=True):
        left, right = left.get("valid", left), right.get("valid", right)
        assert right["loss"] == pytest.approx(left["loss"], abs=1e-5)
        assert right.get("tokens") == left.get("tokens")


def test_with_nothing_but_text_sizes_are_picked_and_said(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(counting(200)))
    small = ["training.steps=2", "model.width=16", "model.layers=1", "model.feed_forward=16", "validation.samples=1"]
    sets = [part for setting in small for part in ("--set", setting)]
    done = command_line("train", "masked", "--data", text, "--out", tmp_path / "run", *sets)
    assert done.code == 0, done.err
    assert "model.norm_order = pre: trains without a long warm-up.\n" in done.err
    assert "Encoder-only Transformer, " in done.err
    assert "accuracy" in done.out
    settled = json.loads((tmp_path / "run" / "best" / "config.json").read_text())
    assert settled["model"]["head"]["kind"] == "tokens"
    assert settled["tokens"]["mask"] == 4
