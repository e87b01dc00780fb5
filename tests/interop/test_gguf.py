"""Llama-like decoders as GGUF and back: the same network, tokenizer, end tokens and chat template."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from regard.config import (
    Config,
    DecoderOnlyConfig,
    Llama3ScalingConfig,
    RotaryPositionsConfig,
    SpecialTokensConfig,
)
from regard.errors import ConfigError, ModelError
from regard.interop import export_gguf, import_gguf_file
from regard.interop.gguf_export import unsupported_by_gguf
from regard.interop.gguf_file import read_gguf
from regard.interop.gguf_rotary import frequency_divisors
from regard.interop.gguf_tokenizer import PRE_TOKENIZERS, export_tokenizer
from regard.models import build, load_network, save

TEMPLATE = "{% for message in messages %}{{ message['content'] }}<|im_end|>{% endfor %}"
TEXTS = ["The cat sat on the mat in 1987.", "I'll say: «è già qui» 12345\n\n  twice", "x<|im_end|>y ||  z\t"]


def byte_level_bpe(pre: str = "gpt-2") -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(name, special=True, normalized=False) for name in ("<|endoftext|>", "<|im_end|>")]
    alphabet = ["Ġ", "Ċ", *"abcdefghijklmnopqrstuvwxyzTIx<>|_.,:;'0123456789«»èÃÂ¨ł«»ĉ"]
    trainer = BpeTrainer(vocab_size=160, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(2 * TEXTS, trainer)
    tokenizer.add_tokens([AddedToken("||", normalized=False)])
    return tokenizer


def llama(**changes: Any) -> DecoderOnlyConfig:
    settings: dict[str, Any] = {
        "vocab_size": byte_level_bpe().get_vocab_size(),
        "width": 32,
        "layers": 2,
        "heads": 4,
        "kv_heads": 2,
        "feed_forward": 64,
        "activation": "swiglu",
        "norm": "rms",
        "norm_order": "pre",
        "positions": RotaryPositionsConfig(layout="halves", base=5000.0),
        "scale_embeddings": False,
        "dropout": 0.0,
    }
    return DecoderOnlyConfig(**settings | changes)


def make_model(folder: Path, tokenizer: Tokenizer | None = None, **changes: Any) -> Path:
    torch.manual_seed(1)
    model = llama(**changes)
    network = build(model)
    for parameter in network.parameters():  # norms too
        torch.nn.init.normal_(parameter, std=0.2)
    tokens = SpecialTokensConfig(pad=1, unknown=0, start=1, end=1, other_ends=(0,))
    files = {"chat_template.jinja": TEMPLATE.encode()}
    if tokenizer is not None:
        files["tokenizer.json"] = tokenizer.to_str().encode()
    config = Config.model_validate({"model": model, "tokens": tokens, "data": {"context_length": 99}})
    save(folder, network, config, extra_files=files)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("gguf") / "model", byte_level_bpe())


def logits(folder: Path) -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = load_network(folder).network(torch.arange(24).view(2, 12))
    return output


def test_float32_round_trip_gives_the_same_model_folder(model: Path, tmp_path: Path) -> None:
    report = export_gguf(model, tmp_path / "exported" / "x.gguf", "F32")
    assert report.folder == tmp_path / "exported" / "x.gguf"
    assert not report.notes
    imported = import_gguf_file(report.folder, tmp_path / "imported")
    assert imported.kind == "gguf llama"
    assert not imported.notes
    torch.testing.assert_close(logits(imported.folder), logits(model), rtol=0, atol=0)
    ours, theirs = (json.loads((folder / "config.json").read_text()) for folder in (model, imported.folder))
    assert theirs == ours
    assert (imported.folder / "chat_template.jinja").read_text() == TEMPLATE
    names = json.loads((imported.folder / "special_tokens_map.json").read_text())
    assert names["eos_token"] == Tokenizer.from_file(str(model / "tokenizer.json")).id_to_token(1)
    tokenizers = [Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in (model, imported.folder)]
    for text in TEXTS:
        assert tokenizers[0].encode(text).ids == tokenizers[1].encode(text).ids


@pytest.mark.parametrize(("quantization", "tolerance"), [("F16", 0.01), ("q8_0", 0.1)])
def test_quantized_round_trip_is_close(model: Path, quantization: str, tolerance: float, tmp_path: Path) -> None:
    report = export_gguf(model, tmp_path / "exported", quantization)
    assert report.folder == tmp_path / "exported" / "model.gguf"
    types = {tensor.tensor_type.name for tensor in gguf.GGUFReader(report.folder).tensors}
    assert types == {"F32", quantization.upper()}
    import_gguf_file(report.folder, tmp_path / "imported")
    difference = (logits(tmp_path / "imported") - logits(model)).abs().max()
    assert 0 < difference < tolerance * logits(model).abs().max()


def test_untied_output_interleaved_rotation_and_no_tokenizer(tmp_path: Path) -> None:
    positions = RotaryPositionsConfig(layout="interleaved")
    folder = make_model(tmp_path / "model", positions=positions, tie_output=False, kv_heads=None, heads=8)
    report = export_gguf(folder, tmp_path / "x.gguf", "F32")
    assert report.notes == ("The model has no tokenizer, so the file has none: use it with token ids.",)
    imported = import_gguf_file(report.folder, tmp_path / "imported")
    assert "tokenizer is 'no_vocab'" in imported.notes[0]
    torch.testing.assert_close(logits(imported.folder), logits(folder))


def test_rows_that_are_not_whole_blocks_are_stored_in_float16(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model", feed_forward=40)
    report = export_gguf(folder, tmp_path / "x.gguf", "Q8_0")
    assert "Matrices whose rows are not a multiple of 32 values are stored in F16." in report.notes
    types = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(report.folder).tensors}
    assert types["blk.0.ffn_down.weight"] == "F16"
    assert types["blk.0.ffn_up.weight"] == "Q8_0"


VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"attention_bias": "qkv"},
    "qwen3": {"qk_norm": True, "value_width": 16},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_logits_of_transformers_are_the_same(name: str, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    model = make_model(tmp_path / "model", **VARIANTS[name])
    path = export_gguf(model, tmp_path / "x.gguf", "F32").folder
    settings = load_gguf_checkpoint(str(path))["config"] | {"head_dim": llama(**VARIANTS[name]).head_width}  # not read
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings)).eval()
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=theirs)["tensors"]
    assert theirs.load_state_dict(tensors, strict=False).missing_keys == ["lm_head.weight"]
    theirs.tie_weights()
    with torch.no_grad():
        torch.testing.assert_close(logits(model), theirs(torch.arange(24).view(2, 12)).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_networks_with_biases_or_normalized_queries_and_keys_are_qwen(name: str, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model", **VARIANTS[name])
    path = export_gguf(folder, tmp_path / "x.gguf", "F32").folder
    assert import_gguf_file(path, tmp_path / "imported").kind == f"gguf {name}"
    torch.testing.assert_close(logits(tmp_path / "imported"), logits(folder), rtol=0, atol=0)


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_each_division_of_texts_is_recognized(pre: str, model: Path, tmp_path: Path) -> None:
    tokenizer = byte_level_bpe(pre)
    entries = export_tokenizer(tokenizer, tokenizer.get_vocab_size())
    assert entries is not None
    assert entries["pre"] == pre
    digits = len(tokenizer.encode("1987 1987").ids)
    folder = make_model(tmp_path / "model", tokenizer, vocab_size=tokenizer.get_vocab_size() + 3)
    imported = import_gguf_file(export_gguf(folder, tmp_path / "x.gguf").folder, tmp_path / "imported").folder
    again = Tokenizer.from_file(str(imported / "tokenizer.json"))
    assert [again.encode(text).ids for text in TEXTS] == [tokenizer.encode(text).ids for text in TEXTS]
    assert len(again.encode("1987 1987").ids) == digits
    assert again.decode(again.encode(TEXTS[1]).ids) == TEXTS[1]
    assert (again.normalizer is not None) == (pre == "qwen2")
    entries = export_tokenizer(again, again.get_vocab_size())
    assert entries is not None
    assert entries["pre"] == pre


def write(path: Path, changes: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]] | None = None) -> Path:
    """Write a file without tokenizer; None removes an entry."""
    entries: dict[str, Any] = {
        "llama.embedding_length": 8,
        "llama.block_count": 1,
        "llama.attention.head_count": 2,
        "llama.feed_forward_length": 12,
        "llama.context_length": 16,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
    }
    writer = gguf.GGUFWriter(path, str(changes.pop("general.architecture", "llama")))
    for name, value in (entries | changes).items():
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        elif value is not None:
            writer.add_uint32(name, value)
    shapes = {"token_embd": (11, 8), "output_norm": (8,), "blk.0.attn_norm": (8,), "blk.0.ffn_norm": (8,)}
    shapes |= {f"blk.0.attn_{name}": (8, 8) for name in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": (12, 8), "blk.0.ffn_up": (12, 8), "blk.0.ffn_down": (8, 12)}
    all_tensors = {f"{name}.weight": np.ones(shape, np.float32) for name, shape in shapes.items()} | (tensors or {})
    for name, tensor in all_tensors.items():
        if tensor.size:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


ONES = np.ones((8, 8), np.float32)
BPE_ENTRIES = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": [*"abcdefghij", "ab"]}


@pytest.mark.parametrize(
    ("changes", "tensors", "message"),
    [
        ({"general.architecture": "mamba"}, {}, "'mamba' cannot be imported; regard imports llama, qwen2, qwen3"),
        ({"llama.block_count": 2**31}, {}, "llama.block_count = 2147483648 should be an integer from 1 to 1,000"),
        ({"llama.embedding_length": None}, {}, "llama.embedding_length = None should be an integer"),
        ({"llama.attention.head_count": 3}, {}, "llama.attention.head_count = 3 should divide llama.embedding_length"),
        (
            {"llama.attention.head_count": 8, "llama.attention.head_count_kv": 8},
            {},
            "describes a network that regard does not have: rotates pairs of entries, but",
        ),
        ({"llama.attention.head_count": [2, 2]}, {}, r"head_count = \[2, 2\] should be an integer"),
        ({"llama.attention.layer_norm_rms_epsilon": 0.0}, {}, "layer_norm_rms_epsilon = 0.0 should be between 0 and 1"),
        ({"llama.rope.dimension_count": 2}, {}, "llama.rope.dimension_count = 2 cannot be imported: regard rotates"),
        ({"llama.rope.scaling.type": "longrope"}, {}, "llama.rope.scaling.type = 'longrope' cannot be imported"),
        ({"llama.rope.scaling.type": "linear"}, {}, "llama.rope.scaling.factor = None should be a number between"),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0},
            {},
            "llama.rope.scaling.original_context_length = None should be an integer",
        ),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.5},
            {},
            "llama.rope.scaling: factor should be greater than or equal to 1",
        ),
        ({"llama.expert_count": 8}, {}, "llama.expert_count = 8 cannot be imported: regard imports GGUF files without"),
        ({"llama.attention.value_length": 16}, {}, "llama.attention.value_length = 16 cannot be imported"),
        ({"tokenizer.ggml.eos_token_id": 11}, {}, "tokenizer.ggml.eos_token_id = 11 is not one of its 11 tokens"),
        ({"tokenizer.ggml.eos_token_id": True}, {}, "tokenizer.ggml.eos_token_id = True is not one of its 11 tokens"),
        ({}, {"blk.0.attn_k.weight": ONES[:0]}, "has no tensor blk.0.attn_k.weight, which its metadata requires"),
        ({}, {"blk.0.attn_k.weight": ONES[:4]}, "blk.0.attn_k.weight has shape 4×8, but its metadata requires 8×8"),
        ({}, {"blk.0.attn_q.bias": ONES[0]}, "has a tensor blk.0.attn_q.bias, which this network does not"),
        ({}, {"rope_freqs.weight": ONES[0, :3]}, "rope_freqs.weight is not the scaling of Llama 3"),
        ({}, {"rope_freqs.weight": np.array([8, 1], np.float32)}, "rope_freqs.weight is not the scaling of Llama 3"),
        (BPE_ENTRIES, {}, "tokenizer.ggml.merges should be a list of texts"),
        (BPE_ENTRIES | {"tokenizer.ggml.merges": ["a b", "ab"]}, {}, "merges has 'ab', which is not two tokens"),
        (BPE_ENTRIES | {"tokenizer.ggml.merges": ["a b", "b c"]}, {}, "merges has 'b c', which is not two tokens"),
        (
            BPE_ENTRIES | {"tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.token_type": [1]},
            {},
            "tokenizer.ggml.token_type should be a number for each token",
        ),
        (
            BPE_ENTRIES | {"tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.tokens": ["a", "b", "a"]},
            {},
            "tokenizer.ggml.tokens has 'a' twice",
        ),
    ],
)  # fmt: skip
def test_unusable_models_have_one_message(
    changes: dict[str, Any], tensors: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.gguf", dict(changes), tensors)
    with pytest.raises(ModelError, match=message) as error:
        import_gguf_file(path, tmp_path / "out")
    assert str(error.value).startswith(f"{path}: ")
    assert not (tmp_path / "out").exists()


def test_a_minimal_file_and_tokenizers_that_are_not_known_are_imported_with_notes(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "new"})
    report = import_gguf_file(path, tmp_path / "out")
    assert "tokenizer.ggml.pre = 'new', and regard knows gpt-2, smollm" in report.notes[0]
    assert report.notes[1] == "The file does not define the end token; id 10 is used."
    with pytest.raises(ModelError, match="already exists"):
        import_gguf_file(path, tmp_path / "out")


def test_a_start_token_is_added_if_the_file_says_so(tmp_path: Path) -> None:
    entries = BPE_ENTRIES | {"tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.bos_token_id": 3}
    for adds_start, start, ids in ((False, 10, [10, 4]), (True, 3, [3, 10, 4])):
        path = write(tmp_path / f"{adds_start}.gguf", entries | {"tokenizer.ggml.add_bos_token": adds_start})
        folder = import_gguf_file(path, tmp_path / str(adds_start)).folder
        assert load_network(folder).config.tokens.start == start
        assert Tokenizer.from_file(str(folder / "tokenizer.json")).encode("abe").ids == ids
        exported = read_gguf(export_gguf(folder, tmp_path / f"{adds_start} again.gguf").folder)
        assert exported.metadata["tokenizer.ggml.add_bos_token"] is adds_start


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"norm": "layer"}, "RMS norms"),
        ({"norm_order": "post"}, "normalizes before each sublayer"),
        ({"activation": "gelu"}, "swiglu"),
        ({"attention_bias": True}, "no bias after attention"),
        ({"output_bias": True}, "no bias on its logits"),
        ({"qk_norm": True, "attention_bias": "qkv"}, "either biases in attention or normalized queries"),
        ({"qk_norm": True, "positions": {"kind": "rotary"}}, "half a head apart"),
        ({"logit_soft_cap": 30.0}, "does not cap logits"),
        ({"scale_embeddings": True}, "does not scale embeddings"),
        ({"scale_scores": False}, "scales scores"),
        ({"key_width": 4}, "not as wide as its values"),
        ({"positions": {"kind": "alibi"}}, "rotary positions"),
        ({"experts": 4}, "has one feed-forward layer, and this network a mixture of experts"),
    ],
)
def test_networks_that_gguf_cannot_hold(changes: dict[str, Any], reason: str) -> None:
    assert unsupported_by_gguf(Config(model=llama())) is None
    assert reason in str(unsupported_by_gguf(Config(model=llama(**changes))))


def test_export_errors_leave_nothing(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="quantization = int4: GGUF files are written in F32, F16, Q8_0"):
        export_gguf(model, tmp_path / "x.gguf", "int4")
    other = make_model(tmp_path / "other", activation="gelu")
    with pytest.raises(ModelError, match="cannot be exported as GGUF, because Llama has swiglu"):
        export_gguf(other, tmp_path / "x.gguf")
    (tmp_path / "y.gguf").write_text("mine")
    with pytest.raises(ModelError, match="already exists"):
        export_gguf(model, tmp_path / "y.gguf")
    assert (tmp_path / "y.gguf").read_text() == "mine"
    assert not (tmp_path / "x.gguf").exists()


@pytest.mark.parametrize("length", [16, 8192])
def test_llama_3_files_without_settings_of_the_scaling(length: int, tmp_path: Path) -> None:
    """llama.cpp's converter writes only the divisors of the frequencies."""
    scaling = Llama3ScalingConfig(factor=8.0, original_length=length)
    positions = RotaryPositionsConfig(layout="halves", base=5000.0, scaling=scaling)
    divisors = frequency_divisors(positions, 4)
    assert divisors is not None
    path = write(tmp_path / "x.gguf", {"llama.rope.freq_base": 5000.0}, {"rope_freqs.weight": divisors})
    imported = load_network(import_gguf_file(path, tmp_path / "out").folder).config.model
    assert isinstance(imported, DecoderOnlyConfig)
    assert isinstance(imported.positions, RotaryPositionsConfig)
    again = frequency_divisors(imported.positions, 4)
    assert again is not None
    np.testing.assert_allclose(again, divisors, rtol=1e-3)
