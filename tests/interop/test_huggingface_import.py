"""Imported networks compute what the original computes, for all shapes and ways of saving.

The originals are transformers models with random parameters, norms and biases included.
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertModel,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    GPT2Model,
    MarianConfig,
    MarianModel,
    MarianMTModel,
    logging,
)

from regard.config import DecoderOnlyConfig, EncoderDecoderConfig, EncoderOnlyConfig
from regard.interop import ImportReport, SkippedTensor, import_huggingface
from regard.models import EncoderOnlyTransformer, LoadedNetwork, load_network

logging.set_verbosity_error()
logging.disable_progress_bar()

TOLERANCE = 1e-4
ACTIVATIONS = ["relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "silu", "swish"]


def marian_config(seed: int, **settings: Any) -> MarianConfig:
    draw = random.Random(seed)
    heads, vocabulary, hidden = draw.choice([1, 2, 4]), draw.randint(11, 40), draw.randint(5, 70)
    return MarianConfig(
        **{
            "vocab_size": vocabulary,
            "d_model": heads * draw.choice([6, 7, 16]),
            "encoder_layers": draw.randint(1, 3),
            "decoder_layers": draw.randint(1, 3),
            "encoder_attention_heads": heads,
            "decoder_attention_heads": heads,
            "encoder_ffn_dim": hidden,
            "decoder_ffn_dim": hidden,
            "activation_function": draw.choice(ACTIVATIONS),
            "scale_embedding": draw.choice([True, False]),
            "pad_token_id": vocabulary - 1,
            "decoder_start_token_id": vocabulary - 1,
            "eos_token_id": 0,
            "max_position_embeddings": 64,
            **settings,
        }
    )


def gpt2_config(seed: int, **settings: Any) -> GPT2Config:
    draw = random.Random(seed)
    heads, vocabulary = draw.choice([1, 2, 4]), draw.randint(11, 40)
    return GPT2Config(
        **{
            "vocab_size": vocabulary,
            "n_embd": heads * draw.choice([6, 7, 16]),
            "n_layer": draw.randint(1, 3),
            "n_head": heads,
            "n_inner": draw.choice([None, 23]),
            "n_positions": 32,
            "activation_function": draw.choice(ACTIVATIONS),
            "layer_norm_epsilon": draw.choice([1e-5, 1e-3]),
            "scale_attn_weights": draw.choice([True, True, False]),
            "tie_word_embeddings": draw.choice([True, False]),
            "bos_token_id": 1,
            "eos_token_id": 2,
            **settings,
        }
    )


def bert_config(seed: int, **settings: Any) -> BertConfig:
    draw = random.Random(seed)
    heads = draw.choice([1, 2, 4])
    return BertConfig(
        **{
            "vocab_size": draw.randint(11, 40),
            "hidden_size": heads * draw.choice([6, 7, 16]),
            "num_hidden_layers": draw.randint(1, 3),
            "num_attention_heads": heads,
            "intermediate_size": draw.randint(5, 70),
            "hidden_act": draw.choice(ACTIVATIONS),
            "layer_norm_eps": draw.choice([1e-12, 1e-3]),
            "max_position_embeddings": 32,
            "type_vocab_size": draw.choice([1, 2, 3]),
            **settings,
        }
    )


def randomize(model: Any, seed: int) -> Any:
    """Replace all parameters by random values."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" in name or not tensor.is_floating_point():
                continue
            center = 1.0 if "norm" in name.lower() or ".ln_" in name else 0.0
            tensor.copy_(center * tensor.sign() + 0.3 * torch.randn_like(tensor))
    return model.eval()


def random_batch(seed: int, vocab_size: int, max_length: int = 12, rows: int = 4) -> tuple[Tensor, Tensor]:
    """Right-padded ids (B, T) with at least one token each, and their token mask."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab_size, (rows, max_length), generator=generator)
    lengths = torch.randint(1, max_length + 1, (rows, 1), generator=generator)
    lengths[0] = max_length
    return ids, torch.arange(max_length) < lengths


def import_model(model: Any, tmp_path: Path) -> tuple[LoadedNetwork, ImportReport]:
    model.save_pretrained(tmp_path / "original")
    report = import_huggingface(tmp_path / "original", tmp_path / "ours")
    return load_network(tmp_path / "ours"), report


def difference(ours: Tensor, theirs: Tensor, mask: Tensor) -> float:
    assert ours.shape == theirs.shape
    return float((ours - theirs)[mask].abs().max())


@torch.no_grad()
def marian_difference(theirs: Any, ours: LoadedNetwork, seed: int) -> float:
    source, source_mask = random_batch(seed, theirs.config.vocab_size)
    target, target_mask = random_batch(seed + 1, theirs.config.decoder_vocab_size, max_length=9)
    expected = theirs(
        input_ids=source,
        attention_mask=source_mask.long(),
        decoder_input_ids=target,
        decoder_attention_mask=target_mask.long(),
    ).logits
    return difference(ours.network(source, target, source_mask, target_mask), expected, target_mask)


@torch.no_grad()
def gpt2_difference(theirs: Any, ours: LoadedNetwork, seed: int) -> float:
    ids, mask = random_batch(seed, theirs.config.vocab_size)
    return difference(ours.network(ids, mask), theirs(input_ids=ids, attention_mask=mask.long()).logits, mask)


@torch.no_grad()
def bert_difference(theirs: Any, ours: LoadedNetwork, seed: int) -> float:
    """The largest difference of token vectors and pooled vectors."""
    assert isinstance(ours.network, EncoderOnlyTransformer)
    ids, mask = random_batch(seed, theirs.config.vocab_size)
    segments, _ = random_batch(seed + 1, theirs.config.type_vocab_size)
    expected = theirs(input_ids=ids, attention_mask=mask.long(), token_type_ids=segments)
    memory = ours.network.encode(ids, mask, {"segment_ids": segments})
    worst = difference(memory.states, expected.last_hidden_state, mask)
    if expected.pooler_output is not None:
        worst = max(worst, float((ours.network.pool(memory) - expected.pooler_output).abs().max()))
    return worst


MARIAN = [
    {},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 47},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 47, "tie_word_embeddings": False},
    {"tie_word_embeddings": False},
]


@pytest.mark.slow
@pytest.mark.parametrize("settings", MARIAN, ids=["shared", "separate", "separate and untied", "untied"])
@pytest.mark.parametrize("seed", range(4))
def test_marian_logits_equal_hugging_face(seed: int, settings: dict[str, Any], tmp_path: Path) -> None:
    theirs = randomize(MarianMTModel(marian_config(seed, **settings)), seed)
    ours, report = import_model(theirs, tmp_path)
    assert marian_difference(theirs, ours, seed) < TOLERANCE
    assert report.kind == "marian"
    assert report.parameters == sum(parameter.numel() for parameter in ours.network.parameters())


@pytest.mark.parametrize("seed", range(10))
def test_gpt2_logits_equal_hugging_face(seed: int, tmp_path: Path) -> None:
    theirs = randomize(GPT2LMHeadModel(gpt2_config(seed)), seed)
    ours, report = import_model(theirs, tmp_path)
    assert gpt2_difference(theirs, ours, seed) < TOLERANCE
    assert (report.kind, report.skipped) == ("gpt2", ())
    assert report.parameters == theirs.num_parameters()
    assert isinstance(ours.config.model, DecoderOnlyConfig)
    assert ours.config.model.tie_output == theirs.config.tie_word_embeddings


@pytest.mark.parametrize("seed", range(10))
def test_bert_token_and_text_vectors_equal_hugging_face(seed: int, tmp_path: Path) -> None:
    theirs = randomize(BertModel(bert_config(seed)), seed)
    ours, report = import_model(theirs, tmp_path)
    assert bert_difference(theirs, ours, seed) < TOLERANCE
    assert (report.kind, report.skipped) == ("bert", ())
    assert report.parameters == theirs.num_parameters()


def test_cached_decoding_of_marian_equals_hugging_face(tmp_path: Path) -> None:
    theirs = randomize(MarianMTModel(marian_config(3)), 3)
    ours, _ = import_model(theirs, tmp_path)
    source, mask = random_batch(3, theirs.config.vocab_size)
    target, _ = random_batch(4, theirs.config.vocab_size, max_length=6)
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target).logits
        memory, cache = ours.network.encode(source, mask), ours.network.new_cache()
        steps = [ours.network.decode(target[:, n : n + 1], memory, cache) for n in range(target.size(1))]
        assert torch.allclose(ours.network.logits(torch.cat(steps, dim=1)), expected, atol=TOLERANCE)


def test_marian_without_scale_embedding_has_the_default_of_hugging_face(tmp_path: Path) -> None:
    theirs = randomize(MarianMTModel(marian_config(5, scale_embedding=MarianConfig().scale_embedding)), 5)
    theirs.save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    settings = json.loads(path.read_text("utf-8"))
    del settings["scale_embedding"]
    path.write_text(json.dumps(settings), "utf-8")
    import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert marian_difference(theirs, load_network(tmp_path / "ours"), 5) < TOLERANCE


def test_marian_keeps_special_tokens_and_tied_weights(tmp_path: Path) -> None:
    theirs = randomize(MarianMTModel(marian_config(0, vocab_size=30, pad_token_id=29, decoder_start_token_id=7)), 0)
    ours, report = import_model(theirs, tmp_path)
    tokens, model = ours.config.tokens, ours.config.model
    assert (tokens.pad, tokens.start, tokens.end) == (29, 7, 0)
    assert isinstance(model, EncoderDecoderConfig)
    assert (model.share_embeddings, model.tie_output, model.output_bias) == (True, True, True)
    assert report.skipped == ()


def test_a_marian_without_head_uses_the_embeddings_as_output(tmp_path: Path) -> None:
    bare = randomize(MarianModel(marian_config(1)), 1)
    ours, report = import_model(bare, tmp_path)
    source, source_mask = random_batch(0, bare.config.vocab_size)
    target, target_mask = random_batch(1, bare.config.vocab_size)
    with torch.no_grad():
        expected = bare(source, source_mask.long(), target, target_mask.long()).last_hidden_state
        hidden = ours.network.decode(target, ours.network.encode(source, source_mask), mask=target_mask)
    assert difference(hidden, expected, target_mask) < TOLERANCE
    assert report.skipped == ()  # its position tables are sinusoids


def test_marian_matrices_that_should_be_shared_but_differ_are_kept_apart(tmp_path: Path) -> None:
    theirs = randomize(MarianMTModel(marian_config(2, tie_word_embeddings=False)), 2)
    ours, report = import_model(theirs, tmp_path)
    assert isinstance(ours.config.model, EncoderDecoderConfig)
    assert not ours.config.model.share_embeddings
    assert report.skipped == (SkippedTensor("model.shared.weight", "encoder and decoder have separate embeddings"),)


@pytest.mark.parametrize("name", ["lm_head.weight", "model.decoder.embed_tokens.weight"])
def test_a_shared_marian_matrix_may_have_any_of_its_names(name: str, tmp_path: Path) -> None:
    theirs = randomize(MarianMTModel(marian_config(5)), 5)
    theirs.save_pretrained(tmp_path / "original")
    rewrite(tmp_path / "original", lambda tensors: {name: tensors.pop("model.shared.weight"), **tensors})
    import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert marian_difference(theirs, load_network(tmp_path / "ours"), 5) < TOLERANCE


def test_a_tied_bert_matrix_may_have_its_other_name(tmp_path: Path) -> None:
    theirs = randomize(BertForMaskedLM(bert_config(5)), 5)
    theirs.save_pretrained(tmp_path / "original")
    embedding, output = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
    rewrite(tmp_path / "original", lambda tensors: {output: tensors.pop(embedding), **tensors})
    import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert bert_difference(theirs.bert, load_network(tmp_path / "ours"), 5) < TOLERANCE


def test_a_shared_marian_ignores_decoder_vocab_size(tmp_path: Path) -> None:
    theirs = randomize(MarianMTModel(marian_config(5)), 5)
    theirs.save_pretrained(tmp_path / "original")
    settings = json.loads((tmp_path / "original" / "config.json").read_text())
    write_json(tmp_path / "original" / "config.json", settings | {"decoder_vocab_size": 5})
    import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert marian_difference(theirs, load_network(tmp_path / "ours"), 5) < TOLERANCE


def test_a_gpt2_without_head_is_imported(tmp_path: Path) -> None:
    bare = randomize(GPT2Model(gpt2_config(1, tie_word_embeddings=True)), 1)
    ours, report = import_model(bare, tmp_path)
    ids, mask = random_batch(0, bare.config.vocab_size)
    with torch.no_grad():
        expected = bare(ids, attention_mask=mask.long()).last_hidden_state
        assert difference(ours.network.decode(ids, mask=mask), expected, mask) < TOLERANCE
    assert report.skipped == ()


def test_old_gpt2_files_with_masks_and_a_copy_of_the_tied_matrix_are_imported(tmp_path: Path) -> None:
    theirs = randomize(GPT2LMHeadModel(gpt2_config(4, tie_word_embeddings=True)), 4)
    theirs.save_pretrained(tmp_path / "original")

    def old(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        extra = {
            "transformer.h.0.attn.bias": torch.ones(1, 1, 32, 32),
            "transformer.h.0.attn.masked_bias": torch.ones(1),
        }
        return {**tensors, **extra, "lm_head.weight": tensors["transformer.wte.weight"].clone()}

    rewrite(tmp_path / "original", old)
    report = import_huggingface(tmp_path / "original", tmp_path / "ours")
    ours = load_network(tmp_path / "ours")
    assert gpt2_difference(theirs, ours, 4) < TOLERANCE
    assert report.skipped == ()
    assert isinstance(ours.config.model, DecoderOnlyConfig)
    assert ours.config.model.tie_output


def test_a_gpt2_head_that_differs_from_the_embedding_is_kept_even_if_the_config_ties_it(tmp_path: Path) -> None:
    theirs = randomize(GPT2LMHeadModel(gpt2_config(4, tie_word_embeddings=False)), 4)
    theirs.save_pretrained(tmp_path / "original")
    settings = json.loads((tmp_path / "original" / "config.json").read_text())
    write_json(tmp_path / "original" / "config.json", settings | {"tie_word_embeddings": True})
    import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert gpt2_difference(theirs, load_network(tmp_path / "ours"), 4) < TOLERANCE


def test_a_gpt2_classifier_is_imported_without_its_head(tmp_path: Path) -> None:
    theirs = randomize(GPT2ForSequenceClassification(gpt2_config(1, pad_token_id=0)), 1)
    _, report = import_model(theirs, tmp_path)
    assert report.skipped == (SkippedTensor("score.weight", "regard's GPT has no text classification head"),)


@pytest.mark.parametrize("kind", [BertForMaskedLM, BertForPreTraining], ids=lambda kind: str(kind.__name__))
@pytest.mark.parametrize("seed", range(4))
def test_masked_token_logits_of_bert_equal_hugging_face(kind: Any, seed: int, tmp_path: Path) -> None:
    theirs = randomize(kind(bert_config(seed)), seed)
    ours, report = import_model(theirs, tmp_path)
    ids, mask = random_batch(seed, theirs.config.vocab_size)
    with torch.no_grad():
        outputs = theirs(input_ids=ids, attention_mask=mask.long())
        expected = outputs.logits if kind is BertForMaskedLM else outputs.prediction_logits
        assert difference(ours.network.logits(ours.network.encode(ids, mask).states), expected, mask) < TOLERANCE
    assert isinstance(ours.config.model, EncoderOnlyConfig)
    assert ours.config.model.head.kind == "tokens"
    assert {skipped.tensor.partition(".weight")[0].partition(".bias")[0] for skipped in report.skipped} <= {
        "cls.seq_relationship"
    }


def test_a_bert_with_an_untied_lm_head_is_imported_without_it(tmp_path: Path) -> None:
    theirs = randomize(BertForMaskedLM(bert_config(5, tie_word_embeddings=False)), 5)
    ours, report = import_model(theirs, tmp_path)
    assert bert_difference(theirs.bert, ours, 5) < TOLERANCE
    assert isinstance(ours.config.model, EncoderOnlyConfig)
    assert ours.config.model.head.kind == "none"
    assert {skipped.reason for skipped in report.skipped} == {
        "regard's encoder predicts masked tokens with its embedding matrix, and this one has another"
    }


def test_copies_of_tied_tensors_are_not_reported(tmp_path: Path) -> None:
    theirs = randomize(BertForMaskedLM(bert_config(5)), 5)
    theirs.save_pretrained(tmp_path / "original")

    def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        matrix = tensors["bert.embeddings.word_embeddings.weight"].clone()
        bias = tensors["cls.predictions.bias"].clone()
        return {**tensors, "cls.predictions.decoder.weight": matrix, "cls.predictions.decoder.bias": bias}

    rewrite(tmp_path / "original", copies)
    assert import_huggingface(tmp_path / "original", tmp_path / "ours").skipped == ()


BERTS = {
    BertForPreTraining: ("first-dense", {"cls.seq_relationship"}),
    BertForQuestionAnswering: ("first", {"qa_outputs"}),
}


@pytest.mark.parametrize("kind", BERTS, ids=lambda kind: str(kind.__name__))
def test_berts_with_other_heads_are_imported_without_them(kind: Any, tmp_path: Path) -> None:
    theirs = randomize(kind(bert_config(6)), 6)
    ours, report = import_model(theirs, tmp_path)
    pooling, heads = BERTS[kind]
    assert bert_difference(theirs.bert, ours, 6) < TOLERANCE
    assert isinstance(ours.config.model, EncoderOnlyConfig)
    assert ours.config.model.pooling == pooling
    assert {tuple(sorted(head for head in heads if skipped.tensor.startswith(head))) for skipped in report.skipped} == {
        (head,) for head in heads
    }
    assert all(skipped.reason.startswith("regard's encoder has no ") for skipped in report.skipped)


def test_old_names_of_bert_norms_are_understood(tmp_path: Path) -> None:
    theirs = randomize(BertModel(bert_config(7)), 7)
    theirs.save_pretrained(tmp_path / "original")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def rename(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        for new, name in old.items():
            tensors = {key.replace(new, name): tensor for key, tensor in tensors.items()}
        return tensors | {"embeddings.position_ids": torch.arange(32)[None]}

    rewrite(tmp_path / "original", rename)
    report = import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert bert_difference(theirs, load_network(tmp_path / "ours"), 7) < TOLERANCE
    assert report.skipped == ()


@pytest.mark.parametrize(("mode", "pooling"), [("mean", "mean"), ("cls", "first"), (["mean"], "mean")])
def test_the_pooling_of_sentence_transformers_is_followed(mode: Any, pooling: str, tmp_path: Path) -> None:
    theirs = randomize(BertModel(bert_config(8)), 8)
    theirs.save_pretrained(tmp_path / "original")
    write_json(tmp_path / "original" / "1_Pooling" / "config.json", {"pooling_mode": mode})
    report = import_huggingface(tmp_path / "original", tmp_path / "ours")
    model = load_network(tmp_path / "ours").config.model
    assert isinstance(model, EncoderOnlyConfig)
    assert model.pooling == pooling
    assert report.skipped == tuple(
        SkippedTensor(f"pooler.dense.{name}", "1_Pooling/config.json sets another pooling")
        for name in ("bias", "weight")
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_other_precisions_become_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = randomize(GPT2LMHeadModel(gpt2_config(9)), 9).to(dtype)
    ours, _ = import_model(theirs, tmp_path)
    assert {parameter.dtype for parameter in ours.network.parameters()} == {torch.float32}
    assert gpt2_difference(theirs.float(), ours, 9) < TOLERANCE


def test_sharded_weights_are_read(tmp_path: Path) -> None:
    theirs = randomize(BertModel(bert_config(9)), 9)
    theirs.save_pretrained(tmp_path / "original", max_shard_size="5KB")
    assert len(list((tmp_path / "original").glob("model-*.safetensors"))) > 1
    import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert bert_difference(theirs, load_network(tmp_path / "ours"), 9) < TOLERANCE


def rewrite(folder: Path, change: Any) -> None:
    """Replace the tensors of a folder."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
