"""Imported ModernBERT and T5 compute what transformers computes, for random settings."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
    logging,
)

import regard
from regard.config import EncoderOnlyConfig
from regard.errors import ModelError
from regard.interop import import_huggingface
from regard.models import load_network

logging.set_verbosity_error()
logging.disable_progress_bar()

TOLERANCE = 1e-4
TEXTS = ["The cat sat on the mat.", "Il gatto è  seduto sul tappeto!", "dove, perché — 1987", " x ", ""]


def with_random_parameters(model: Any) -> Any:
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(float("norm" in name and "weight" in name) + 0.3 * torch.randn_like(tensor))
    return model.eval()


def random_batch(vocab_size: int, seed: int, length: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids (3, T) with padding on the right, and their token mask."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, vocab_size, (3, length), generator=generator)
    return ids, torch.arange(length) < torch.tensor([[length], [length // 2], [1]])


def modernbert_config(seed: int, **settings: Any) -> ModernBertConfig:
    draw = random.Random(seed)
    heads = draw.choice([1, 2, 3])
    chosen: dict[str, Any] = {
        "vocab_size": draw.randint(11, 40),
        "hidden_size": heads * draw.choice([4, 6]),
        "num_hidden_layers": 4,
        "num_attention_heads": heads,
        "intermediate_size": draw.randint(5, 30),
        "local_attention": draw.choice([4, 6]),
        "norm_eps": draw.choice([1e-5, 1e-2]),
        "norm_bias": draw.choice([True, False]),
        "classifier_bias": draw.choice([True, False]),
        **dict.fromkeys(["pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"], 1),
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    }
    return ModernBertConfig(**chosen | settings, attn_implementation="eager")


@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_modernbert_equals_transformers(seed: int, tmp_path: Path) -> None:
    torch.manual_seed(seed)
    model = with_random_parameters(ModernBertForMaskedLM(modernbert_config(seed)))
    model.save_pretrained(tmp_path / "original")
    report = import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert not report.skipped
    network = load_network(tmp_path / "ours").network
    ids, mask = random_batch(model.config.vocab_size, seed)
    for token_mask in (mask, torch.ones_like(mask)):
        expected = model(input_ids=ids, attention_mask=token_mask.long()).logits
        actual = network.logits(network.encode(ids, token_mask).states)
        torch.testing.assert_close(actual[token_mask], expected[token_mask], atol=TOLERANCE, rtol=TOLERANCE)


def test_heads_of_modernbert_that_regard_lacks_are_reported(tmp_path: Path) -> None:
    model = ModernBertForSequenceClassification(modernbert_config(0))
    model.save_pretrained(tmp_path / "original")
    report = import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert {skipped.tensor.split(".")[0] for skipped in report.skipped} == {"head", "classifier"}
    config = load_network(tmp_path / "ours").config.model
    assert isinstance(config, EncoderOnlyConfig)
    assert config.head.kind == "none"
    path = tmp_path / "original" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"mlp_bias": True}), "utf-8")
    with pytest.raises(ModelError, match="mlp_bias = true cannot be imported"):
        import_huggingface(tmp_path / "original", tmp_path / "again")


def random_t5(seed: int, **settings: Any) -> Any:
    draw = random.Random(f"t5 {seed}")
    chosen: dict[str, Any] = {
        "vocab_size": draw.randint(11, 40),
        "d_model": draw.choice([7, 8, 10]),  # not always a multiple of the heads
        "d_kv": draw.choice([3, 4]),
        "num_heads": draw.choice([2, 3]),
        "d_ff": draw.randint(5, 30),
        "num_layers": 2,
        "num_decoder_layers": draw.choice([1, 2]),
        "relative_attention_num_buckets": draw.choice([4, 8, 32]),
        "relative_attention_max_distance": draw.choice([17, 20]),
        "feed_forward_proj": ["relu", "gated-gelu", "gated-silu"][seed % 3],
        "tie_word_embeddings": seed % 2 == 0,
        "decoder_start_token_id": 0,
    }
    torch.manual_seed(seed)
    return with_random_parameters(T5ForConditionalGeneration(T5Config(**chosen | settings)))


@pytest.mark.parametrize("seed", range(4))
@torch.no_grad()
def test_t5_equals_transformers(seed: int, tmp_path: Path) -> None:
    model = random_t5(seed)
    model.save_pretrained(tmp_path / "original")
    report = import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert not report.skipped
    network = load_network(tmp_path / "ours").network
    source, source_mask = random_batch(model.config.vocab_size, seed)
    target, target_mask = random_batch(model.config.vocab_size, seed + 1, 22)
    expected = model(input_ids=source, attention_mask=source_mask.long(), decoder_input_ids=target).logits
    memory = network.encode(source, source_mask)
    actual = network.logits(network.decode(target, memory, mask=target_mask))
    torch.testing.assert_close(actual[target_mask], expected[target_mask], atol=TOLERANCE, rtol=TOLERANCE)
    cache = network.new_cache()
    steps = [network.logits(network.decode(step, memory, cache)) for step in target.split([4, *[1] * 18], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1)[:1], expected[:1], atol=TOLERANCE, rtol=TOLERANCE)


@torch.no_grad()
def test_t5_with_an_output_projection_of_its_own(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = random_t5(1)
    model.save_pretrained(tmp_path / "original")
    path = tmp_path / "original" / "model.safetensors"
    tensors = load_file(path)
    output = torch.randn_like(tensors["shared.weight"])
    save_file(tensors | {"lm_head.weight": output}, path, {"format": "pt"})
    import_huggingface(tmp_path / "original", tmp_path / "ours")
    network = load_network(tmp_path / "ours").network
    torch.testing.assert_close(network.get_parameter("output.weight"), output)


def test_the_tokenizer_of_t5_is_built_from_its_file(tmp_path: Path) -> None:
    import sentencepiece

    with (tmp_path / "spiece.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*TEXTS[:3], "the cat and the mat", "il gatto e il tappeto", "perché no?"] * 3),
            model_writer=file,
            vocab_size=90,
            model_type="unigram",
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            minloglevel=2,
            hard_vocab_limit=False,
        )
    pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / "spiece.model"))
    random_t5(0, vocab_size=len(pieces) + 100).save_pretrained(tmp_path)
    import_huggingface(tmp_path, tmp_path / "ours")
    model = regard.load(tmp_path / "ours")
    for text in TEXTS:
        assert model.tokenizer.encode(text) == pieces.encode(text)
    assert model.config.tokens.end == 1
    assert model.config.tokens.start == model.config.tokens.pad == 0
    assert model.tokenizer.encode("<extra_id_0>") != [len(pieces) + 99]  # text is never a special token
    assert model.translate(TEXTS[0], max_tokens=5) is not None
