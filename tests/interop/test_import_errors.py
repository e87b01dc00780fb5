"""Import errors: one message that names file and setting, and nothing is written.

The folders are written with the tables of the import, which shows that these work in both directions.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

from regard.config import (
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    ModelConfig,
    SinusoidalPositionsConfig,
)
from regard.errors import ModelError
from regard.interop import SkippedTensor, import_huggingface
from regard.interop.bert import bert_mappings
from regard.interop.gpt2 import gpt2_mappings
from regard.interop.hf_folder import GENERATION_CONFIG_FILE, HFConfig
from regard.interop.hf_spec import TensorMapping, to_huggingface, to_regard
from regard.interop.huggingface import IMPORTERS
from regard.interop.marian import marian_mappings
from regard.models import build, load_network
from regard.models.folder_files import CONFIG_FILE

SMALL: dict[str, Any] = {
    "vocab_size": 11,
    "width": 8,
    "layers": 2,
    "heads": 2,
    "feed_forward": 12,
    "attention_bias": True,
}
LEARNED = LearnedPositionsConfig(max_length=16)
MODELS: dict[str, ModelConfig] = {
    "gpt2": DecoderOnlyConfig(
        **SMALL, norm_order="pre", positions=LEARNED, scale_embeddings=False, activation="gelu-tanh"
    ),
    "bert": EncoderOnlyConfig(**SMALL, embedding_norm=True, positions=LEARNED, segments=2, pooling="first-dense"),
    "marian": EncoderDecoderConfig(**SMALL, positions=SinusoidalPositionsConfig(layout="halves"), output_bias=True),
}
HF_CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"vocab_size": 11, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_inner": 12, "n_positions": 16},
    "bert": {
        "vocab_size": 11,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 16,
    },
    "marian": {
        "vocab_size": 11,
        "d_model": 8,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 12,
        "decoder_ffn_dim": 12,
        "pad_token_id": 10,
    },
}


def mappings_of(model: ModelConfig) -> list[TensorMapping]:
    match model:
        case DecoderOnlyConfig():
            return gpt2_mappings(model)
        case EncoderOnlyConfig():
            return bert_mappings(model)
        case EncoderDecoderConfig():
            return marian_mappings(model)
        case _:
            raise TypeError(f"no table for {model.family}")


def tensors_of(kind: str) -> dict[str, Tensor]:
    torch.manual_seed(0)
    tensors = to_huggingface(mappings_of(MODELS[kind]), build(MODELS[kind]).state_dict())
    return {name: tensor.contiguous().clone() for name, tensor in tensors.items()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "huggingface"


def write(source: Path, kind: str, change: dict[str, Tensor] | None = None, **settings: Any) -> None:
    """Write a Hugging Face folder; `change` replaces tensors, and removes those that are empty."""
    source.mkdir()
    (source / "config.json").write_text(json.dumps({"model_type": kind, **HF_CONFIGS[kind], **settings}))
    tensors = {name: tensor for name, tensor in (tensors_of(kind) | (change or {})).items() if tensor.numel()}
    save_file(tensors, source / "model.safetensors")


def import_error(source: Path) -> str:
    """Return the message of the import without the path of the folder; check that nothing is written."""
    out = source.parent / "out"
    with pytest.raises(ModelError) as error:
        import_huggingface(source, out)
    assert sorted(file.name for file in source.parent.iterdir() if file != source) == []
    message = str(error.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message.replace(f"{source}/", "").replace(str(source), "FOLDER")


@pytest.mark.parametrize("kind", MODELS)
def test_mappings_work_in_both_directions(kind: str, source: Path) -> None:
    write(source, kind)
    report = import_huggingface(source, source.parent / "out")
    tensors, mappings = load_network(source.parent / "out").network.state_dict(), mappings_of(MODELS[kind])
    hf_tensors = to_huggingface(mappings, tensors)
    again = to_regard(mappings, hf_tensors)
    assert all(torch.equal(again[name], tensors[name]) for name in again)
    assert hf_tensors.keys() == tensors_of(kind).keys()
    assert all(torch.equal(hf_tensors[name], tensor) for name, tensor in tensors_of(kind).items())
    assert report.skipped == ()


@pytest.mark.parametrize(
    ("kind", "setting", "value", "fact", "expected"),
    [
        ("gpt2", "scale_attn_by_inverse_layer_idx", True, "layers all have the same score scale", "false"),
        ("gpt2", "add_cross_attention", True, "GPT has no cross-attention", "false"),
        ("bert", "is_decoder", True, "BERT is bidirectional", "false"),
        ("bert", "add_cross_attention", True, "BERT has no cross-attention", "false"),
        ("bert", "position_embedding_type", "relative_key", "BERT has absolute positions", '"absolute"'),
        ("marian", "is_decoder", True, "translator has an encoder and a decoder", "false"),
        ("marian", "is_encoder_decoder", False, "translator has an encoder and a decoder", "true"),
        ("marian", "normalize_before", True, "Marian normalizes after each sublayer", "false"),
        ("marian", "normalize_embedding", True, "Marian does not normalize embeddings", "false"),
        ("marian", "add_final_layer_norm", True, "Marian has no norm at the end of a stack", "false"),
        (
            "marian",
            "static_position_embeddings",
            False,
            "Marian has sinusoidal positions",
            "true",
        ),
        (
            "marian",
            "decoder_attention_heads",
            4,
            "encoder and decoder have the same number of heads",
            "2, like encoder_attention_heads",
        ),
        (
            "marian",
            "decoder_ffn_dim",
            16,
            "encoder and decoder have the same number of hidden units",
            "12, like encoder_ffn_dim",
        ),
    ],
)
def test_unsupported_settings_are_refused_by_name(
    kind: str, setting: str, value: Any, fact: str, expected: str, source: Path
) -> None:
    write(source, kind, **{setting: value})
    assert import_error(source) == (
        f"config.json: {setting} = {json.dumps(value)} cannot be imported, because regard's {fact}; "
        f"choose a model where it is {expected}."
    )


@pytest.mark.parametrize(
    ("setting", "value", "problem"),
    [
        ("n_head", 3, "does not divide n_embd = 8"),
        ("n_layer", 0, "should be an integer greater than 0"),
        ("n_layer", 10**30, "is more than the maximum, 1,000; copy the folder again"),
        ("n_inner", 10**30, "is more than the maximum, 16,777,216; copy the folder again"),
        ("vocab_size", "many", "should be an integer greater than 0"),
        ("vocab_size", True, "should be an integer greater than 0"),
        ("attn_pdrop", 1.0, "should be a number from 0 to below 1"),
        ("layer_norm_epsilon", 0, "should be a number between 0 and 1"),
        ("scale_attn_weights", "no", "should be true or false"),
        ("eos_token_id", "</s>", "should be a token id"),
        ("auto_map", ["my.py"], "needs custom code, which regard does not run; choose a model without it"),
        (
            "activation_function",
            "quick_gelu",
            "is not an activation that regard supports; it supports relu, relu2, gelu, gelu_python, gelu_new, "
            "gelu_pytorch_tanh, gelu_python_tanh, gelu_fast, gelu_accurate, swish, silu",
        ),
    ],
)
def test_invalid_settings_are_refused_by_name(setting: str, value: Any, problem: str, source: Path) -> None:
    write(source, "gpt2", **{setting: value})
    assert import_error(source) == f"config.json: {setting} = {json.dumps(value)} {problem}."


SIZES: dict[str, Any] = {
    "rotary_pct": 0.5,
    "norm_topk_prob": True,
    "vocab_size": 11,
    "d_kv": 4,
    "head_dim": 4,
    "max_position_embeddings": 16,
} | {
    name: size
    for size, names in {
        2: "n_layer n_layers num_layers num_hidden_layers encoder_layers decoder_layers n_head n_heads num_heads "
        "num_attention_heads num_key_value_heads encoder_attention_heads decoder_attention_heads",
        8: "n_embd dim d_model hidden_size word_embed_proj_dim",
        12: "hidden_dim ffn_dim d_ff intermediate_size encoder_ffn_dim decoder_ffn_dim",
    }.items()
    for name in names.split()
}
DAMAGED: list[Any] = [10**400, float("inf"), float("nan"), -1, 3, "x", [1], {"a": 1}, True, None]
DAMAGED_ROTATION: list[Any] = [
    {"rope_theta": 10**400},
    {"rope_type": "linear", "factor": 10**400},
    {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": "x"},
    {"rope_type": "yarn", "factor": 2.0, "beta_fast": [1]},
    {"full_attention": 5},
]


@pytest.mark.parametrize("kind", IMPORTERS)
def test_no_value_of_a_setting_ends_in_another_error(kind: str, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting that an import reads, in `config.json` and `generation_config.json`, has damaged values in turn."""
    source.mkdir()
    save_file({"x": torch.zeros(1)}, source / "model.safetensors")
    read: dict[Path, set[str]] = {source / CONFIG_FILE: set(), source / GENERATION_CONFIG_FILE: set()}

    def get(config: HFConfig, name: str, default: Any = None, original: Any = HFConfig.get) -> Any:
        read[config.path].add(name)
        return original(config, name, default)

    base = {source / CONFIG_FILE: {"model_type": kind, **SIZES}, source / GENERATION_CONFIG_FILE: {}}
    for path, values in base.items():
        path.write_text(json.dumps(values))

    def stop(model: ModelConfig) -> None:
        raise ModelError("the plan is made.")

    monkeypatch.setattr("regard.interop.huggingface.build_meta", stop)
    with monkeypatch.context() as patch:
        patch.setattr(HFConfig, "get", get)
        assert import_error(source) == "the plan is made."
    for path, values in base.items():
        for name in sorted(read[path] - {"model_type"}):
            for value in DAMAGED + (DAMAGED_ROTATION if name.startswith("rope_") else []):
                path.write_text(json.dumps({**values, name: value}))
                assert import_error(source)
        path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("kind", "setting", "value", "problem"),
    [
        ("llama", "rope_scaling", [1], "rope_scaling = [1] should be an object with settings."),
        ("llama", "rope_theta", 1e30, "rope_theta = 1e+30 should be a number above 1."),
        ("gemma2", "final_logit_softcapping", float("inf"), "= Infinity should be a number above 0."),
        ("qwen2", "max_window_layers", "x", 'max_window_layers = "x" should be a number of layers.'),
        (
            "t5",
            "relative_attention_num_buckets",
            3,
            "describes a network that regard does not have: buckets should be a multiple of 2; copy it again, "
            "or choose another model.",
        ),
    ],
)
def test_damaged_numbers_are_refused_by_name(kind: str, setting: str, value: Any, problem: str, source: Path) -> None:
    source.mkdir()
    save_file({"x": torch.zeros(1)}, source / "model.safetensors")
    windows = {"use_sliding_window": True, "sliding_window": 4} if kind == "qwen2" else {}
    (source / "config.json").write_text(json.dumps({"model_type": kind, **SIZES, **windows, setting: value}))
    assert problem in import_error(source)


@pytest.mark.parametrize("file", [CONFIG_FILE, GENERATION_CONFIG_FILE, "tokenizer_config.json"])
def test_half_a_surrogate_pair_is_refused(file: str, source: Path) -> None:
    write(source, "gpt2")
    content = json.loads((source / file).read_text()) if (source / file).exists() else {}
    (source / file).write_text(json.dumps({**content, "chat_template": "\ud800"}))
    lone = "a text has the lone surrogate '\\ud800'"
    assert import_error(source) == f"{file}: is not valid JSON ({lone}); copy the folder again."


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("chat_template.jinja", b"\xff", "is not UTF-8 text (byte 0); copy the folder again."),
        ("chat_template.jinja", bytes(2**18 + 1), "cannot be read (it is larger than 0.25 MB); copy the folder again."),
        (
            "tokenizer_config.json",
            json.dumps({"chat_template": [{"name": [1]}, {"name": "default", "template": "x" * (2**18 + 1)}]}).encode(),
            "chat_template has more than 256 KB; remove or shorten it.",
        ),
    ],
)
def test_unusable_chat_templates_are_refused(file: str, content: bytes, problem: str, source: Path) -> None:
    """What `regard chat` and a server would refuse later."""
    write(source, "gpt2")
    (source / file).write_bytes(content)
    assert import_error(source) == f"{file}: {problem}"


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/dev/zero"), os.mkfifo])
@pytest.mark.parametrize("file", ["chat_template.jinja", GENERATION_CONFIG_FILE, "special_tokens_map.json"])
def test_only_regular_files_are_read(file: str, make: Callable[[Path], object], source: Path) -> None:
    write(source, "gpt2")
    make(source / file)
    assert import_error(source).startswith(f"{file}: cannot be read (it is a ")


@pytest.mark.parametrize("model_type", ["unheard-of", None, ["gpt2"]])
def test_other_model_types_are_refused(model_type: Any, source: Path) -> None:
    write(source, "gpt2")
    (source / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert import_error(source) == (
        f"config.json: model_type = {json.dumps(model_type)} cannot be imported; regard imports {', '.join(IMPORTERS)}."
    )


def test_a_model_folder_needs_no_import(source: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    write(source, "gpt2")
    ours = tmp_path_factory.mktemp("models") / "gpt2"
    import_huggingface(source, ours)
    assert import_error(ours) == "config.json: is a config of regard, so the folder needs no import; load it directly."


def test_pickled_weights_are_not_read(source: Path) -> None:
    write(source, "gpt2")
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    assert import_error(source) == (
        "pytorch_model.bin: is a pickle, which regard does not read; "
        "save the model as safetensors with save_pretrained of transformers."
    )


def test_missing_files_are_named(source: Path) -> None:
    assert import_error(source) == "FOLDER: is not a folder; pass the path of a Hugging Face model folder."
    source.write_text("a file")
    assert import_error(source) == "FOLDER: is not a folder; pass the path of a Hugging Face model folder."
    source.unlink()
    source.mkdir()
    assert import_error(source) == "config.json: is missing, so FOLDER is not a complete model folder."
    (source / "config.json").write_text('{"model_type": "gpt2"}')
    assert import_error(source) == "model.safetensors: is missing, so FOLDER is not a complete model folder."


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[1]", "should contain a JSON object"),
        (b"{", "is not valid JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        (b"\xff", "is not valid JSON ('utf-8' codec can't decode byte 0xff in position 0: invalid start byte)"),
    ],
)
def test_a_damaged_config_is_refused(content: bytes, problem: str, source: Path) -> None:
    write(source, "gpt2")
    (source / "config.json").write_bytes(content)
    assert import_error(source) == f"config.json: {problem}; copy the folder again."


def test_a_deeply_nested_config_is_refused(source: Path) -> None:
    write(source, "gpt2")
    (source / "config.json").write_text("[" * 100_000)
    assert import_error(source).startswith("config.json: is not valid JSON (")


def test_a_config_that_is_a_folder_is_refused(source: Path) -> None:
    (source / "config.json").mkdir(parents=True)
    assert (
        import_error(source)
        == "config.json: cannot be read (it is a folder, not a regular file); copy the folder again."
    )


@pytest.mark.parametrize("length", [0, 7, 200, -1])
def test_truncated_weights_are_refused(length: int, source: Path) -> None:
    write(source, "gpt2")
    path = source / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    assert re.fullmatch(r"model\.safetensors: is damaged \(.+\); copy the folder again\.", import_error(source))


REMOVED = torch.empty(0)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("gpt2", "transformer.h.1.attn.c_attn.weight"),
        ("bert", "bert.encoder.layer.0.attention.self.key.bias"),
        ("marian", "model.shared.weight"),
        ("marian", "model.decoder.layers.1.encoder_attn.v_proj.weight"),
    ],
)
def test_a_missing_tensor_is_named(kind: str, name: str, source: Path) -> None:
    write(source, kind, {name: REMOVED})
    assert (
        import_error(source)
        == f"model.safetensors: has no tensor {name}, which config.json requires; copy the folder again."
    )


def test_a_missing_tensor_has_its_name_in_the_file(source: Path) -> None:
    write(source, "gpt2")
    path = source / "model.safetensors"
    bare = {name.removeprefix("transformer."): tensor for name, tensor in load_file(path).items()}
    del bare["ln_f.bias"]
    save_file(bare, path)
    assert (
        import_error(source)
        == "model.safetensors: has no tensor ln_f.bias, which config.json requires; copy the folder again."
    )


@pytest.mark.parametrize(
    ("kind", "name", "shape", "expected"),
    [
        ("gpt2", "transformer.h.0.mlp.c_fc.weight", (12, 8), "8×12"),
        ("gpt2", "transformer.wpe.weight", (9, 8), "16×8"),
        ("bert", "bert.encoder.layer.1.attention.self.query.weight", (8, 7), "8×8"),
        ("bert", "bert.pooler.dense.bias", (9,), "8"),
        ("marian", "final_logits_bias", (11,), "1×11"),
    ],
)
def test_a_tensor_of_another_shape_is_named(
    kind: str, name: str, shape: tuple[int, ...], expected: str, source: Path
) -> None:
    write(source, kind, {name: torch.zeros(shape)})
    actual = "×".join(str(size) for size in shape)
    assert import_error(source) == (
        f"model.safetensors: {name} has shape {actual}, but config.json requires {expected}; copy the folder again."
    )


def test_quantized_weights_are_refused(source: Path) -> None:
    write(source, "gpt2", {"transformer.h.0.mlp.c_fc.weight": torch.zeros(8, 12, dtype=torch.int8)})
    assert import_error(source) == (
        "model.safetensors: transformer.h.0.mlp.c_fc.weight has type int8, and regard reads "
        "16-, 32- and 64-bit floats; save the model without quantization."
    )


@pytest.mark.parametrize("shape", [(20, 8), (20, 9), (8,), ()])
def test_learned_positions_of_a_marian_are_refused(shape: tuple[int, ...], source: Path) -> None:
    write(source, "marian", {"model.encoder.embed_positions.weight": torch.randn(shape)})
    assert import_error(source) == (
        "model.safetensors: model.encoder.embed_positions.weight is not a table of sinusoids, "
        "which regard's Marian needs; choose a model with sinusoidal positions."
    )


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "cls and mean"),
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
    ],
)
def test_unsupported_pooling_is_refused(config: dict[str, Any], pooling: str, source: Path) -> None:
    write(source, "bert")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text(json.dumps(config))
    assert import_error(source) == (
        f"1_Pooling/config.json: uses {pooling} pooling, and regard supports mean and cls; "
        "choose a model with one of these."
    )


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "model.safetensors.index.json: should map tensors to files under weight_map; copy the folder again."),
        (
            {"weight_map": {"a": 1}},
            "model.safetensors.index.json: should map tensors to files under weight_map; copy the folder again.",
        ),
        (
            {"weight_map": {"a": "../b"}},
            "model.safetensors.index.json: names the file '../b', which is in another folder; copy the folder again.",
        ),
        ({"weight_map": {"a": "b"}}, "b: is missing, so FOLDER is not a complete model folder."),
        (
            {"weight_map": {"a": "part"}},
            "part: has no tensor a, which model.safetensors.index.json lists; copy the folder again.",
        ),
    ],
)
def test_an_invalid_index_of_shards_is_refused(index: dict[str, Any], message: str, source: Path) -> None:
    write(source, "gpt2")
    (source / "model.safetensors").rename(source / "part")
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    assert import_error(source) == message


def test_an_existing_folder_is_not_overwritten(source: Path) -> None:
    write(source, "gpt2")
    out = source.parent / "out"
    out.mkdir()
    (out / "precious").write_text("mine")
    with pytest.raises(ModelError, match="already exists; choose another name or remove it first"):
        import_huggingface(source, out)
    assert [file.name for file in out.iterdir()] == ["precious"]


def test_missing_parent_folders_are_created(source: Path) -> None:
    write(source, "gpt2")
    report = import_huggingface(str(source), str(source.parent / "a" / "b" / "out"))
    assert load_network(report.folder).config.model == MODELS["gpt2"].model_copy(update={"attention_dropout": 0.1})


def test_an_unwritable_folder_is_refused(source: Path) -> None:
    write(source, "gpt2")
    with pytest.raises(ModelError, match=r"cannot be written \(.+\)"):
        import_huggingface(source, source / "config.json" / "out")


def test_unused_tensors_are_reported(source: Path) -> None:
    write(source, "gpt2", {"transformer.h.2.ln_1.weight": torch.ones(8)})
    report = import_huggingface(source, source.parent / "out")
    assert report.skipped == (
        SkippedTensor("transformer.h.2.ln_1.weight", "config.json describes a network without it"),
    )


def test_a_folder_without_a_tokenizer_is_imported_with_a_note(source: Path) -> None:
    write(source, "bert")
    report = import_huggingface(source, source.parent / "out")
    assert report.notes == (
        "The folder does not define the unknown token; id 0 is used.",
        "The folder does not define the start token; id 0 is used.",
        "The folder does not define the end token; id 0 is used.",
        "The folder has no tokenizer files; put a tokenizer.json into the imported folder to use it with text.",
    )
    assert not (report.folder / "tokenizer.json").exists()


def test_an_end_token_outside_the_vocabulary_is_replaced_with_a_note(source: Path) -> None:
    write(source, "gpt2", bos_token_id=50256, eos_token_id=50256)
    report = import_huggingface(source, source.parent / "out")
    assert report.notes[0] == "The folder does not define the end token; id 10 is used."
    tokens = load_network(report.folder).config.tokens
    assert {tokens.pad, tokens.unknown, tokens.start, tokens.end} == {10}


def test_a_tokenizer_larger_than_the_vocabulary_is_copied_with_a_note(source: Path) -> None:
    write(source, "gpt2", eos_token_id=0)
    Tokenizer(WordLevel({f"word{n}": n for n in range(20)}, "word0")).save(str(source / "tokenizer.json"))
    report = import_huggingface(source, source.parent / "out")
    assert report.notes == ("tokenizer.json has ids up to 19, but the network has only 11 tokens.",)


def test_general_names_of_settings_are_understood(source: Path) -> None:
    write(source, "gpt2")
    general = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16}
    settings = {"model_type": "gpt2", "vocab_size": 11, "n_inner": 12, **general}
    (source / "config.json").write_text(json.dumps(settings))
    model = load_network(import_huggingface(source, source.parent / "out").folder).config.model
    assert isinstance(model, DecoderOnlyConfig)
    assert (model.width, model.layers, model.heads) == (8, 2, 2)


def test_the_model_card_names_the_original(source: Path) -> None:
    write(source, "gpt2")
    import_huggingface(source, source.parent / "out")
    card = (source.parent / "out" / "README.md").read_text()
    assert "Imported from the Hugging Face folder huggingface (gpt2)." in card
