"""What cannot be imported is said in one sentence, shown here as the user reads it, and nothing is left behind.

The folders are written with the very tables that read them, so this file also shows that these read backwards.
"""

import json
import re
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
from regard.interop.marian import marian_mappings
from regard.interop.tensor_mapping import TensorMapping, to_huggingface, to_regard
from regard.models import build, load

SMALL: dict[str, Any] = {
    "vocab_size": 11,
    "width": 8,
    "layers": 2,
    "heads": 2,
    "feed_forward": 12,
    "attention_bias": True,
}
LEARNED = LearnedPositionsConfig(max_length=16)
OURS: dict[str, ModelConfig] = {
    "gpt2": DecoderOnlyConfig(
        **SMALL, norm_order="pre", positions=LEARNED, scale_embeddings=False, activation="gelu-tanh"
    ),
    "bert": EncoderOnlyConfig(**SMALL, embedding_norm=True, positions=LEARNED, segments=2, pooling="first-dense"),
    "marian": EncoderDecoderConfig(**SMALL, positions=SinusoidalPositionsConfig(layout="halves"), output_bias=True),
}
THEIRS: dict[str, dict[str, Any]] = {
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


def table(model: ModelConfig) -> list[TensorMapping]:
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
    theirs = to_huggingface(table(OURS[kind]), build(OURS[kind]).state_dict())
    return {name: tensor.contiguous().clone() for name, tensor in theirs.items()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "theirs"


def write(source: Path, kind: str, change: dict[str, Tensor] | None = None, **settings: Any) -> None:
    """A Hugging Face folder; `change` replaces tensors, an empty one takes them away."""
    source.mkdir()
    (source / "config.json").write_text(json.dumps({"model_type": kind, **THEIRS[kind], **settings}))
    tensors = {name: tensor for name, tensor in (tensors_of(kind) | (change or {})).items() if tensor.numel()}
    save_file(tensors, source / "model.safetensors")


def sentence(source: Path) -> str:
    """What the import says, the path of the folder taken out; and nothing is at the place it should have gone to."""
    out = source.parent / "out"
    with pytest.raises(ModelError) as complaint:
        import_huggingface(source, out)
    assert sorted(file.name for file in source.parent.iterdir() if file != source) == []
    said = str(complaint.value)
    assert said.endswith(".")
    assert "\n" not in said
    return said.replace(f"{source}/", "").replace(str(source), "FOLDER")


@pytest.mark.parametrize("kind", OURS)
def test_a_table_reads_both_ways(kind: str, source: Path) -> None:
    write(source, kind)
    report = import_huggingface(source, source.parent / "out")
    ours, rows = load(source.parent / "out").network.state_dict(), table(OURS[kind])
    again = to_regard(rows, to_huggingface(rows, ours))
    assert all(torch.equal(again[name], ours[name]) for name in again)
    there = to_huggingface(rows, ours)
    assert there.keys() == tensors_of(kind).keys()
    assert all(torch.equal(there[name], tensor) for name, tensor in tensors_of(kind).items())
    assert report.left_out == ()


@pytest.mark.parametrize(
    ("kind", "setting", "value", "because", "wanted"),
    [
        ("gpt2", "scale_attn_by_inverse_layer_idx", True, "layers all scale their scores alike", "false"),
        ("gpt2", "add_cross_attention", True, "GPT looks at no other text", "false"),
        ("bert", "is_decoder", True, "BERT looks both ways", "false"),
        ("bert", "add_cross_attention", True, "BERT looks at no other text", "false"),
        ("bert", "position_embedding_type", "relative_key", "BERT has absolute positions", '"absolute"'),
        ("marian", "is_decoder", True, "translator has an encoder and a decoder", "false"),
        ("marian", "is_encoder_decoder", False, "translator has an encoder and a decoder", "true"),
        ("marian", "normalize_before", True, "Marian normalises after each sub-layer", "false"),
        ("marian", "normalize_embedding", True, "Marian does not normalise embeddings", "false"),
        ("marian", "add_final_layer_norm", True, "Marian has no norm at the end of a stack", "false"),
        (
            "marian",
            "static_position_embeddings",
            False,
            "Marian has sinusoids for positions, not learned ones",
            "true",
        ),
        (
            "marian",
            "decoder_attention_heads",
            4,
            "stacks have equal heads",
            "2, as encoder_attention_heads is",
        ),
        ("marian", "decoder_ffn_dim", 16, "stacks have equal hidden units", "12, as encoder_ffn_dim is"),
    ],
)
def test_a_setting_that_our_network_cannot_hold_is_refused_by_name(
    kind: str, setting: str, value: Any, because: str, wanted: str, source: Path
) -> None:
    write(source, kind, **{setting: value})
    assert sentence(source) == (
        f"config.json: {setting} = {json.dumps(value)} cannot be imported, because regard's {because}; "
        f"choose a model where it is {wanted}."
    )


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("n_head", 3, "does not divide n_embd = 8"),
        ("n_layer", 0, "should be a whole number above 0"),
        ("n_layer", 10**30, "is more than the 1,000 that regard takes; copy the folder again"),
        ("n_inner", 10**30, "is more than the 16,777,216 that regard takes; copy the folder again"),
        ("vocab_size", "many", "should be a whole number above 0"),
        ("vocab_size", True, "should be a whole number above 0"),
        ("attn_pdrop", 1.0, "should be a number from 0 to below 1"),
        ("layer_norm_epsilon", 0, "should be a number between 0 and 1"),
        ("scale_attn_weights", "no", "should be true or false"),
        ("eos_token_id", "</s>", "should be a token's id"),
        ("auto_map", ["my.py"], "asks for code of its own, and regard runs none; choose a model without it"),
        (
            "activation_function",
            "quick_gelu",
            "is no activation that regard computes; it computes relu, gelu, gelu_python, gelu_new, gelu_pytorch_tanh, "
            "gelu_python_tanh, gelu_fast, gelu_accurate, swish, silu",
        ),
    ],
)
def test_a_setting_that_makes_no_sense_is_one_sentence(setting: str, value: Any, said: str, source: Path) -> None:
    write(source, "gpt2", **{setting: value})
    assert sentence(source) == f"config.json: {setting} = {json.dumps(value)} {said}."


@pytest.mark.parametrize("model_type", ["t5", None, ["gpt2"]])
def test_a_model_of_another_type_is_refused_with_the_three_that_work(model_type: Any, source: Path) -> None:
    write(source, "gpt2")
    (source / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert sentence(source) == (
        f"config.json: model_type = {json.dumps(model_type)} is none that regard imports; "
        "it imports bert, gpt2, marian."
    )


def test_a_folder_of_our_own_needs_no_import(source: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    write(source, "gpt2")
    ours = tmp_path_factory.mktemp("models") / "gpt2"
    import_huggingface(source, ours)
    assert sentence(ours) == "config.json: is regard's own, so the folder needs no import; load it as it is."


def test_pickled_weights_are_not_read(source: Path) -> None:
    write(source, "gpt2")
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    assert sentence(source) == (
        "pytorch_model.bin: is pickled, and regard reads no pickle; "
        "save the model as safetensors with transformers' save_pretrained."
    )


def test_what_is_missing_is_named(source: Path) -> None:
    assert sentence(source) == "FOLDER: is not a folder; give the path of a Hugging Face model folder."
    source.write_text("a file")
    assert sentence(source) == "FOLDER: is not a folder; give the path of a Hugging Face model folder."
    source.unlink()
    source.mkdir()
    assert sentence(source) == "config.json: is missing, so FOLDER is not a complete model folder."
    (source / "config.json").write_text('{"model_type": "gpt2"}')
    assert sentence(source) == "model.safetensors: is missing, so FOLDER is not a complete model folder."


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[1]", "should contain a JSON object"),
        (b"{", "is not valid JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        (b"\xff", "is not valid JSON ('utf-8' codec can't decode byte 0xff in position 0: invalid start byte)"),
    ],
)
def test_damaged_settings_are_one_sentence(content: bytes, said: str, source: Path) -> None:
    write(source, "gpt2")
    (source / "config.json").write_bytes(content)
    assert sentence(source) == f"config.json: {said}; copy the folder again."


def test_deeply_nested_settings_are_one_sentence(source: Path) -> None:
    write(source, "gpt2")
    (source / "config.json").write_text("[" * 100_000)
    assert sentence(source).startswith("config.json: is not valid JSON (")


def test_settings_that_are_a_folder_are_one_sentence(source: Path) -> None:
    (source / "config.json").mkdir(parents=True)
    assert sentence(source) == "config.json: cannot be read (Is a directory)."


@pytest.mark.parametrize("length", [0, 7, 200, -1])
def test_truncated_weights_are_one_sentence(length: int, source: Path) -> None:
    write(source, "gpt2")
    path = source / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    assert re.fullmatch(r"model\.safetensors: is damaged \(.+\); copy the folder again\.", sentence(source))


MISSING = torch.empty(0)


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
    write(source, kind, {name: MISSING})
    assert (
        sentence(source)
        == f"model.safetensors: has no tensor {name}, which config.json beside it asks for; copy the folder again."
    )


def test_a_missing_tensor_is_named_as_a_file_without_a_head_would(source: Path) -> None:
    write(source, "gpt2")
    path = source / "model.safetensors"
    bare = {name.removeprefix("transformer."): tensor for name, tensor in load_file(path).items()}
    del bare["ln_f.bias"]
    save_file(bare, path)
    assert (
        sentence(source)
        == "model.safetensors: has no tensor ln_f.bias, which config.json beside it asks for; copy the folder again."
    )


@pytest.mark.parametrize(
    ("kind", "name", "shape", "wanted"),
    [
        ("gpt2", "transformer.h.0.mlp.c_fc.weight", (12, 8), "8×12"),
        ("gpt2", "transformer.wpe.weight", (9, 8), "16×8"),
        ("bert", "bert.encoder.layer.1.attention.self.query.weight", (8, 7), "8×8"),
        ("bert", "bert.pooler.dense.bias", (9,), "8"),
        ("marian", "final_logits_bias", (11,), "1×11"),
    ],
)
def test_a_tensor_of_another_shape_is_named(
    kind: str, name: str, shape: tuple[int, ...], wanted: str, source: Path
) -> None:
    write(source, kind, {name: torch.zeros(shape)})
    given = "×".join(str(size) for size in shape)
    assert sentence(source) == (
        f"model.safetensors: {name} has shape {given}, but config.json beside it asks for {wanted}; "
        "copy the folder again."
    )


def test_quantised_weights_are_refused(source: Path) -> None:
    write(source, "gpt2", {"transformer.h.0.mlp.c_fc.weight": torch.zeros(8, 12, dtype=torch.int8)})
    assert sentence(source) == (
        "model.safetensors: transformer.h.0.mlp.c_fc.weight holds int8 numbers, and regard reads "
        "16-, 32- and 64-bit floats; save the model without quantisation."
    )


@pytest.mark.parametrize("shape", [(20, 8), (20, 9), (8,), ()])
def test_learned_positions_of_a_marian_are_refused(shape: tuple[int, ...], source: Path) -> None:
    write(source, "marian", {"model.encoder.embed_positions.weight": torch.randn(shape)})
    assert sentence(source) == (
        "model.safetensors: model.encoder.embed_positions.weight holds other positions than sinusoids, "
        "and regard's Marian has only these; choose a model that has them."
    )


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "cls and mean"),
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
    ],
)
def test_a_pooling_that_regard_lacks_is_refused(config: dict[str, Any], asked: str, source: Path) -> None:
    write(source, "bert")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text(json.dumps(config))
    assert sentence(source) == (
        f"1_Pooling/config.json: asks for {asked} pooling, and regard pools by mean or cls; choose a model that does."
    )


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({}, "model.safetensors.index.json: should map tensors to files under weight_map; copy the folder again."),
        (
            {"weight_map": {"a": 1}},
            "model.safetensors.index.json: should map tensors to files under weight_map; copy the folder again.",
        ),
        (
            {"weight_map": {"a": "../b"}},
            "model.safetensors.index.json: names the file '../b', which is not beside it; copy the folder again.",
        ),
        ({"weight_map": {"a": "b"}}, "b: is missing, so FOLDER is not a complete model folder."),
        (
            {"weight_map": {"a": "part"}},
            "part: has no tensor a, which model.safetensors.index.json promises; copy the folder again.",
        ),
    ],
)
def test_a_wrong_index_of_shards_is_one_sentence(index: dict[str, Any], said: str, source: Path) -> None:
    write(source, "gpt2")
    (source / "model.safetensors").rename(source / "part")
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    assert sentence(source) == said


def test_an_existing_place_is_not_overwritten(source: Path) -> None:
    write(source, "gpt2")
    out = source.parent / "out"
    out.mkdir()
    (out / "precious").write_text("mine")
    with pytest.raises(ModelError, match="already exists; choose another name or remove it first"):
        import_huggingface(source, out)
    assert [file.name for file in out.iterdir()] == ["precious"]


def test_a_place_whose_parents_are_missing_is_made(source: Path) -> None:
    write(source, "gpt2")
    report = import_huggingface(str(source), str(source.parent / "a" / "b" / "out"))
    assert load(report.folder).config.model == OURS["gpt2"].model_copy(update={"attention_dropout": 0.1})


def test_a_place_that_cannot_be_written_is_one_sentence(source: Path) -> None:
    write(source, "gpt2")
    with pytest.raises(ModelError, match=r"cannot be written \(.+\)"):
        import_huggingface(source, source / "config.json" / "out")


def test_what_a_network_has_no_place_for_is_left_out_and_reported(source: Path) -> None:
    write(source, "gpt2", {"transformer.h.2.ln_1.weight": torch.ones(8)})
    report = import_huggingface(source, source.parent / "out")
    assert report.left_out == (
        SkippedTensor("transformer.h.2.ln_1.weight", "config.json describes a network without it"),
    )


def test_a_folder_without_a_tokenizer_is_imported_with_a_note(source: Path) -> None:
    write(source, "bert")
    report = import_huggingface(source, source.parent / "out")
    assert report.notes == (
        "The folder does not tell which token is the unknown one; 0 is taken for it.",
        "The folder does not tell which token is the first of a text; 0 is taken for it.",
        "The folder does not tell which token is the end of a text; 0 is taken for it.",
        "The folder has no tokenizer files; put a tokenizer.json into the imported folder to use it with text.",
    )
    assert not (report.folder / "tokenizer.json").exists()


def test_an_end_token_outside_the_vocabulary_is_replaced_with_a_note(source: Path) -> None:
    write(source, "gpt2", bos_token_id=50256, eos_token_id=50256)
    report = import_huggingface(source, source.parent / "out")
    assert report.notes[0] == "The folder does not tell which token is the end of a text; 10 is taken for it."
    tokens = load(report.folder).config.tokens
    assert {tokens.pad, tokens.unknown, tokens.start, tokens.end} == {10}


def test_a_tokenizer_with_more_ids_than_the_network_is_carried_over_with_a_note(source: Path) -> None:
    write(source, "gpt2", eos_token_id=0)
    Tokenizer(WordLevel({f"word{n}": n for n in range(20)}, "word0")).save(str(source / "tokenizer.json"))
    report = import_huggingface(source, source.parent / "out")
    assert report.notes == ("tokenizer.json has ids up to 19, but the network knows only those below 11.",)


def test_settings_under_their_general_names_are_understood(source: Path) -> None:
    write(source, "gpt2")
    general = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16}
    settings = {"model_type": "gpt2", "vocab_size": 11, "n_inner": 12, **general}
    (source / "config.json").write_text(json.dumps(settings))
    model = load(import_huggingface(source, source.parent / "out").folder).config.model
    assert isinstance(model, DecoderOnlyConfig)
    assert (model.width, model.layers, model.heads) == (8, 2, 2)


def test_the_model_card_says_where_the_model_came_from(source: Path) -> None:
    write(source, "gpt2")
    import_huggingface(source, source.parent / "out")
    card = (source.parent / "out" / "README.md").read_text()
    assert "Imported from the Hugging Face folder theirs (gpt2)." in card
