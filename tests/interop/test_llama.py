"""Imported Llama-like networks compute what transformers computes, for random settings of every family."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Regex as Pattern
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    logging,
)

from regard.errors import ModelError
from regard.interop import ImportReport, import_huggingface
from regard.models import LoadedNetwork, load_network

logging.set_verbosity_error()
logging.disable_progress_bar()

TOLERANCE = 1e-4
FAMILIES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "mixtral": (MixtralConfig, MixtralForCausalLM),
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM),
}
LENGTHS: dict[str, Any] = {"original_max_position_embeddings": 16, "factor": 4.0}
ROPES: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 10_000.0},
    {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
    {"rope_type": "yarn", "rope_theta": 1000.0, **LENGTHS},
    {"rope_type": "llama3", "rope_theta": 5e5, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **LENGTHS},
]


def random_model(family: str, seed: int, **settings: Any) -> Any:
    """A network with random settings and parameters, gains and biases included."""
    draw = random.Random(f"{family} {seed}")
    config_class, model_class = FAMILIES[family]
    kv_heads, head_width = draw.choice([1, 2]), draw.choice([4, 6, 10])
    heads = kv_heads * draw.choice([1, 2])
    chosen: dict[str, Any] = {
        "vocab_size": draw.randint(11, 40),
        "hidden_size": heads * draw.choice([4, 6, 8]),
        "num_hidden_layers": 3,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": draw.randint(5, 40),
        "rms_norm_eps": draw.choice([1e-6, 1e-3]),
        "tie_word_embeddings": seed % 2 == 0,
        "max_position_embeddings": 64,
        "rope_parameters": ROPES[seed % len(ROPES)],
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if family != "qwen2":
        chosen["head_dim"] = head_width
    if family in ("llama", "qwen3", "qwen3_moe"):
        chosen["attention_bias"] = draw.choice([True, False])
    if family in ("mistral", "mixtral"):
        chosen["sliding_window"] = draw.choice([None, 3, 5])
    if family in ("mixtral", "qwen3_moe"):
        experts = draw.randint(3, 6)
        chosen |= {"num_local_experts": experts, "num_experts_per_tok": draw.randint(2, experts)}
    if family == "qwen3_moe":
        chosen |= {"moe_intermediate_size": draw.randint(5, 40), "norm_topk_prob": True}
    if family.startswith("qwen") and seed % 2:
        chosen |= {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": draw.choice([0, 1, 2])}
    torch.manual_seed(seed)
    model = model_class(config_class(**chosen | settings)).eval()
    model.set_experts_implementation("eager")  # others need sizes that are multiples of 16 bytes
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(float("norm" in name) + 0.3 * torch.randn_like(tensor))
    return model


def imported(model: Any, tmp_path: Path, **options: Any) -> tuple[LoadedNetwork, ImportReport]:
    model.save_pretrained(tmp_path / "original", **options)
    report = import_huggingface(tmp_path / "original", tmp_path / "ours")
    return load_network(tmp_path / "ours"), report


def random_batch(vocab_size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ids (B, T) with padding on the left, and their token mask."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab_size, (3, 24), generator=generator)
    return ids, torch.arange(24) >= torch.tensor([[0], [5], [13]])


@torch.no_grad()
def assert_equal(model: Any, ours: LoadedNetwork, seed: int = 0) -> None:
    """Compare logits without padding, with padding, and token by token with a cache."""
    ids, mask = random_batch(model.config.vocab_size, seed)
    expected = model(input_ids=ids).logits
    torch.testing.assert_close(ours.network(ids), expected, atol=TOLERANCE, rtol=TOLERANCE)
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)
    padded = model(input_ids=ids, attention_mask=mask.long(), position_ids=positions).logits
    torch.testing.assert_close(ours.network(ids, mask)[mask], padded[mask], atol=TOLERANCE, rtol=TOLERANCE)
    cache = ours.network.new_cache()
    steps = [ours.network.logits(ours.network.decode(part, cache=cache)) for part in ids.split([9, *[1] * 15], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_transformers(family: str, seed: int, tmp_path: Path) -> None:
    model = random_model(family, seed)
    ours, report = imported(model, tmp_path)
    assert report.kind == family
    assert not report.skipped
    assert_equal(model, ours, seed)


def test_sharded_weights_and_networks_without_a_head_are_imported(tmp_path: Path) -> None:
    model = random_model("llama", 0)
    ours, _ = imported(model, tmp_path, max_shard_size="4KB")
    assert (tmp_path / "original" / "model.safetensors.index.json").exists()
    assert_equal(model, ours)
    bare = LlamaModel(model.config)
    bare.load_state_dict(model.model.state_dict())
    ours, _ = imported(bare, tmp_path / "bare")
    assert_equal(model, ours)


def test_old_settings_of_rotary_positions_are_read(tmp_path: Path) -> None:
    model = random_model("llama", 3)
    model.save_pretrained(tmp_path / "original")
    path = tmp_path / "original" / "config.json"
    settings = json.loads(path.read_text("utf-8"))
    rope = settings.pop("rope_parameters")
    settings["rope_theta"], settings["rope_scaling"] = rope.pop("rope_theta"), rope
    path.write_text(json.dumps(settings), "utf-8")
    import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert_equal(model, load_network(tmp_path / "ours"))


REFUSED: list[tuple[str, Any, str]] = [
    ("mlp_bias", True, "SwiGLU has no biases"),
    ("hidden_act", "gelu", "it should be silu"),
    ("num_key_value_heads", 3, "does not divide num_attention_heads"),
    ("head_dim", 5, "cannot be rotated in pairs"),
    ("rope_parameters", {"rope_type": "longrope", "rope_theta": 100.0}, "regard has default, linear, yarn and llama3"),
    ("rope_parameters", {"rope_theta": 0}, "should be a number above 1"),
    ("rope_parameters", {"rope_theta": 100.0, "partial_rotary_factor": 0.5}, "rotate all units of a head"),
]


@pytest.mark.parametrize(("name", "value", "fact"), REFUSED)
def test_what_regard_does_not_have_is_refused(name: str, value: Any, fact: str, tmp_path: Path) -> None:
    random_model("llama", 0, num_attention_heads=2, hidden_size=8).save_pretrained(tmp_path / "original")
    path = tmp_path / "original" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {name: value}), "utf-8")
    with pytest.raises(ModelError, match=fact) as error:
        import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert str(error.value).startswith(str(path))
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("family", "name", "value", "fact"),
    [
        ("mixtral", "num_experts_per_tok", 1, "should be from 2 to num_local_experts ="),
        ("mixtral", "num_experts_per_tok", 9, "should be from 2 to num_local_experts ="),
        ("mixtral", "num_local_experts", 5000, "is more than the maximum, 4,096"),
        ("qwen3_moe", "norm_topk_prob", False, "gates are divided by their sum"),
        ("qwen3_moe", "norm_topk_prob", None, "gates are divided by their sum; it should be true"),
        ("qwen3_moe", "mlp_only_layers", [0], "layers all have experts"),
        ("qwen3_moe", "decoder_sparse_step", 2, "layers all have experts"),
    ],
)
def test_mixtures_that_regard_does_not_have_are_refused(
    family: str, name: str, value: Any, fact: str, tmp_path: Path
) -> None:
    random_model(family, 0).save_pretrained(tmp_path / "original")
    path = tmp_path / "original" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {name: value}), "utf-8")
    with pytest.raises(ModelError, match=fact) as error:
        import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert str(error.value).startswith(f"{path}: {name} = ")
    assert not (tmp_path / "ours").exists()


def test_older_settings_name_the_number_of_experts_otherwise(tmp_path: Path) -> None:
    model = random_model("qwen3_moe", 1)
    model.save_pretrained(tmp_path / "original")
    path = tmp_path / "original" / "config.json"
    settings = json.loads(path.read_text("utf-8"))
    settings["num_experts"] = settings.pop("num_local_experts")
    path.write_text(json.dumps(settings), "utf-8")
    import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert_equal(model, load_network(tmp_path / "ours"))


SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE_TOKENIZERS = {
    "Llama 3": [
        pre_tokenizers.Split(Pattern(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ],
    "Qwen": [
        pre_tokenizers.Split(Pattern(SPLIT.replace("{1,3}", "")), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ],
    "SmolLM2": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
}
TEXTS = ["Hello, it's 12345 o'clock!\n\n  Ça va? 日本", "<|begin|>user\nIt'LL do<|end|>\n", " ", ""]


@pytest.mark.parametrize("kind", PRE_TOKENIZERS)
def test_tokenizer_special_tokens_and_chat_template(kind: str, tmp_path: Path) -> None:
    fast = tokenizers.Tokenizer(models.BPE(ignore_merges=kind == "Llama 3"))
    fast.pre_tokenizer, fast.decoder = pre_tokenizers.Sequence(PRE_TOKENIZERS[kind]), decoders.ByteLevel()
    special = [AddedToken(name, special=True, normalized=False) for name in ("<|begin|>", "<|end|>", "<|turn|>")]
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=special,
    )
    fast.train_from_iterator(TEXTS * 3, trainer)
    if kind == "Llama 3":
        template = processors.TemplateProcessing("<|begin|> $A", None, [("<|begin|>", 0)])
        fast.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    theirs = PreTrainedTokenizerFast(tokenizer_object=fast, bos_token="<|begin|>", eos_token="<|end|>")
    theirs.chat_template = "{{ messages }}"
    theirs.save_pretrained(tmp_path / "original")
    model = random_model("llama", 0, vocab_size=fast.get_vocab_size(), bos_token_id=0, eos_token_id=1)
    model.generation_config.update(bos_token_id=0, eos_token_id=[1, 2], do_sample=True, temperature=0.6, top_p=0.9)
    ours, report = imported(model, tmp_path)
    copied = tokenizers.Tokenizer.from_file(str(tmp_path / "ours" / "tokenizer.json"))
    for text in TEXTS:
        assert copied.encode(text).ids == theirs(text).input_ids
        assert copied.encode(text, add_special_tokens=False).ids == theirs(text, add_special_tokens=False).input_ids
    tokens = ours.config.tokens
    assert tokens.ends == (1, 2)
    assert tokens.start == (0 if kind == "Llama 3" else 1)  # the same as the end: prompts have no start token
    assert (tmp_path / "ours" / "chat_template.jinja").read_text("utf-8") == "{{ messages }}"
    names = json.loads((tmp_path / "ours" / "special_tokens_map.json").read_text("utf-8"))
    assert names == {"bos_token": "<|begin|>", "eos_token": "<|end|>"}
    assert any("temperature 0.6, top_p 0.9" in note for note in report.notes)
