"""An imported network gives the numbers of the one it was imported from, whatever its shape and however it was saved.

The models are random ones of transformers, norms and biases included, so that nothing hides behind ones and zeros.
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
from regard.models import EncoderOnlyTransformer, LoadedNetwork, load

logging.set_verbosity_error()
logging.disable_progress_bar()

TOLERANCE = 1e-4
ACTIVATIONS = ["relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "silu", "swish"]


def marian_config(seed: int, **settings: Any) -> MarianConfig:
    pick = random.Random(seed)
    heads, vocabulary, hidden = pick.choice([1, 2, 4]), pick.randint(11, 40), pick.randint(5, 70)
    return MarianConfig(
        **{
            "vocab_size": vocabulary,
            "d_model": heads * pick.choice([6, 7, 16]),
            "encoder_layers": pick.randint(1, 3),
            "decoder_layers": pick.randint(1, 3),
            "encoder_attention_heads": heads,
            "decoder_attention_heads": heads,
            "encoder_ffn_dim": hidden,
            "decoder_ffn_dim": hidden,
            "activation_function": pick.choice(ACTIVATIONS),
            "scale_embedding": pick.choice([True, False]),
            "pad_token_id": vocabulary - 1,
            "decoder_start_token_id": vocabulary - 1,
            "eos_token_id": 0,
            "max_position_embeddings": 64,
            **settings,
        }
    )


def gpt2_config(seed: int, **settings: Any) -> GPT2Config:
    pick = random.Random(seed)
    heads, vocabulary = pick.choice([1, 2, 4]), pick.randint(11, 40)
    return GPT2Config(
        **{
            "vocab_size": vocabulary,
            "n_embd": heads * pick.choice([6, 7, 16]),
            "n_layer": pick.randint(1, 3),
            "n_head": heads,
            "n_inner": pick.choice([None, 23]),
            "n_positions": 32,
            "activation_function": pick.choice(ACTIVATIONS),
            "layer_norm_epsilon": pick.choice([1e-5, 1e-3]),
            "scale_attn_weights": pick.choice([True, True, False]),
            "tie_word_embeddings": pick.choice([True, False]),
            "bos_token_id": 1,
            "eos_token_id": 2,
            **settings,
        }
    )


def bert_config(seed: int, **settings: Any) -> BertConfig:
    pick = random.Random(seed)
    heads = pick.choice([1, 2, 4])
    return BertConfig(
        **{
            "vocab_size": pick.randint(11, 40),
            "hidden_size": heads * pick.choice([6, 7, 16]),
            "num_hidden_layers": pick.randint(1, 3),
            "num_attention_heads": heads,
            "intermediate_size": pick.randint(5, 70),
            "hidden_act": pick.choice(ACTIVATIONS),
            "layer_norm_eps": pick.choice([1e-12, 1e-3]),
            "max_position_embeddings": 32,
            "type_vocab_size": pick.choice([1, 2, 3]),
            **settings,
        }
    )


def randomised(model: Any, seed: int) -> Any:
    """The model with no parameter left at its first value."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" in name or not tensor.is_floating_point():
                continue
            around = 1.0 if "norm" in name.lower() or ".ln_" in name else 0.0
            tensor.copy_(around * tensor.sign() + 0.3 * torch.randn_like(tensor))
    return model.eval()


def padded(seed: int, vocabulary: int, longest: int = 12, rows: int = 4) -> tuple[Tensor, Tensor]:
    """Right-padded ids (B, T), at least one token each, and True where they are real."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocabulary, (rows, longest), generator=generator)
    lengths = torch.randint(1, longest + 1, (rows, 1), generator=generator)
    lengths[0] = longest
    return ids, torch.arange(longest) < lengths


def imported(model: Any, tmp_path: Path) -> tuple[LoadedNetwork, ImportReport]:
    model.save_pretrained(tmp_path / "theirs")
    report = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    return load(tmp_path / "ours"), report


def difference(ours: Tensor, theirs: Tensor, real: Tensor) -> float:
    assert ours.shape == theirs.shape
    return float((ours - theirs)[real].abs().max())


@torch.no_grad()
def marian_difference(theirs: Any, ours: LoadedNetwork, seed: int) -> float:
    source, source_real = padded(seed, theirs.config.vocab_size)
    target, target_real = padded(seed + 1, theirs.config.decoder_vocab_size, longest=9)
    expected = theirs(
        input_ids=source,
        attention_mask=source_real.long(),
        decoder_input_ids=target,
        decoder_attention_mask=target_real.long(),
    ).logits
    return difference(ours.network(source, target, source_real, target_real), expected, target_real)


@torch.no_grad()
def gpt2_difference(theirs: Any, ours: LoadedNetwork, seed: int) -> float:
    ids, real = padded(seed, theirs.config.vocab_size)
    return difference(ours.network(ids, real), theirs(input_ids=ids, attention_mask=real.long()).logits, real)


@torch.no_grad()
def bert_difference(theirs: Any, ours: LoadedNetwork, seed: int) -> float:
    """Of every token's vector and of the pooled ones."""
    assert isinstance(ours.network, EncoderOnlyTransformer)
    ids, real = padded(seed, theirs.config.vocab_size)
    segments, _ = padded(seed + 1, theirs.config.type_vocab_size)
    expected = theirs(input_ids=ids, attention_mask=real.long(), token_type_ids=segments)
    memory = ours.network.encode(ids, real, {"segment_ids": segments})
    worst = difference(memory.states, expected.last_hidden_state, real)
    if expected.pooler_output is not None:
        worst = max(worst, float((ours.network.pool(memory) - expected.pooler_output).abs().max()))
    return worst


MARIAN = [
    {},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 47},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 47, "tie_word_embeddings": False},
    {"tie_word_embeddings": False},
]


@pytest.mark.parametrize("settings", MARIAN, ids=["shared", "separate", "separate and untied", "untied"])
@pytest.mark.parametrize("seed", range(4))
def test_marian_logits_equal_hugging_faces(seed: int, settings: dict[str, Any], tmp_path: Path) -> None:
    theirs = randomised(MarianMTModel(marian_config(seed, **settings)), seed)
    ours, report = imported(theirs, tmp_path)
    assert marian_difference(theirs, ours, seed) < TOLERANCE
    assert report.kind == "marian"
    assert report.parameters == sum(parameter.numel() for parameter in ours.network.parameters())


@pytest.mark.parametrize("seed", range(10))
def test_gpt2_logits_equal_hugging_faces(seed: int, tmp_path: Path) -> None:
    theirs = randomised(GPT2LMHeadModel(gpt2_config(seed)), seed)
    ours, report = imported(theirs, tmp_path)
    assert gpt2_difference(theirs, ours, seed) < TOLERANCE
    assert (report.kind, report.left_out) == ("gpt2", ())
    assert report.parameters == theirs.num_parameters()
    assert isinstance(ours.config.model, DecoderOnlyConfig)
    assert ours.config.model.tie_output == theirs.config.tie_word_embeddings


@pytest.mark.parametrize("seed", range(10))
def test_bert_vectors_and_pooled_vectors_equal_hugging_faces(seed: int, tmp_path: Path) -> None:
    theirs = randomised(BertModel(bert_config(seed)), seed)
    ours, report = imported(theirs, tmp_path)
    assert bert_difference(theirs, ours, seed) < TOLERANCE
    assert (report.kind, report.left_out) == ("bert", ())
    assert report.parameters == theirs.num_parameters()


def test_marian_decoded_with_a_cache_equals_hugging_face(tmp_path: Path) -> None:
    theirs = randomised(MarianMTModel(marian_config(3)), 3)
    ours, _ = imported(theirs, tmp_path)
    source, real = padded(3, theirs.config.vocab_size)
    target, _ = padded(4, theirs.config.vocab_size, longest=6)
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=real.long(), decoder_input_ids=target).logits
        memory, cache = ours.network.encode(source, real), ours.network.new_cache()
        steps = [ours.network.decode(target[:, n : n + 1], memory, cache) for n in range(target.size(1))]
        assert torch.allclose(ours.network.logits(torch.cat(steps, dim=1)), expected, atol=TOLERANCE)


def test_marian_keeps_its_special_tokens_and_what_it_ties(tmp_path: Path) -> None:
    theirs = randomised(MarianMTModel(marian_config(0, vocab_size=30, pad_token_id=29, decoder_start_token_id=7)), 0)
    ours, report = imported(theirs, tmp_path)
    tokens, model = ours.config.tokens, ours.config.model
    assert (tokens.pad, tokens.start, tokens.end) == (29, 7, 0)
    assert isinstance(model, EncoderDecoderConfig)
    assert (model.share_embeddings, model.tie_output, model.output_bias) == (True, True, True)
    assert report.left_out == ()


def test_a_marian_without_its_head_is_imported_with_the_embeddings_as_output(tmp_path: Path) -> None:
    bare = randomised(MarianModel(marian_config(1)), 1)
    ours, report = imported(bare, tmp_path)
    source, source_real = padded(0, bare.config.vocab_size)
    target, target_real = padded(1, bare.config.vocab_size)
    with torch.no_grad():
        expected = bare(source, source_real.long(), target, target_real.long()).last_hidden_state
        hidden = ours.network.decode(target, ours.network.encode(source, source_real), mask=target_real)
    assert difference(hidden, expected, target_real) < TOLERANCE
    assert report.left_out == ()  # its tables of positions are the sinusoids that ours computes


def test_marian_matrices_that_should_be_one_but_differ_stay_two(tmp_path: Path) -> None:
    theirs = randomised(MarianMTModel(marian_config(2, tie_word_embeddings=False)), 2)
    ours, report = imported(theirs, tmp_path)
    assert isinstance(ours.config.model, EncoderDecoderConfig)
    assert not ours.config.model.share_embeddings
    assert report.left_out == (
        SkippedTensor("model.shared.weight", "encoder and decoder have embeddings of their own"),
    )


@pytest.mark.parametrize("name", ["lm_head.weight", "model.decoder.embed_tokens.weight"])
def test_a_tied_marian_matrix_is_found_under_any_of_its_names(name: str, tmp_path: Path) -> None:
    theirs = randomised(MarianMTModel(marian_config(5)), 5)
    theirs.save_pretrained(tmp_path / "theirs")
    rewrite(tmp_path / "theirs", lambda tensors: {name: tensors.pop("model.shared.weight"), **tensors})
    import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert marian_difference(theirs, load(tmp_path / "ours"), 5) < TOLERANCE


def test_a_tied_bert_matrix_is_found_under_its_other_name(tmp_path: Path) -> None:
    theirs = randomised(BertForMaskedLM(bert_config(5)), 5)
    theirs.save_pretrained(tmp_path / "theirs")
    embedding, output = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
    rewrite(tmp_path / "theirs", lambda tensors: {output: tensors.pop(embedding), **tensors})
    import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert bert_difference(theirs.bert, load(tmp_path / "ours"), 5) < TOLERANCE


def test_a_shared_marian_has_one_vocabulary_whatever_its_decoder_says(tmp_path: Path) -> None:
    theirs = randomised(MarianMTModel(marian_config(5)), 5)
    theirs.save_pretrained(tmp_path / "theirs")
    settings = json.loads((tmp_path / "theirs" / "config.json").read_text())
    write_json(tmp_path / "theirs" / "config.json", settings | {"decoder_vocab_size": 5})
    import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert marian_difference(theirs, load(tmp_path / "ours"), 5) < TOLERANCE


def test_a_gpt2_without_its_head_is_imported(tmp_path: Path) -> None:
    bare = randomised(GPT2Model(gpt2_config(1, tie_word_embeddings=True)), 1)
    ours, report = imported(bare, tmp_path)
    ids, real = padded(0, bare.config.vocab_size)
    with torch.no_grad():
        expected = bare(ids, attention_mask=real.long()).last_hidden_state
        assert difference(ours.network.decode(ids, mask=real), expected, real) < TOLERANCE
    assert report.left_out == ()


def test_old_gpt2_files_with_masks_and_a_second_copy_of_the_tied_matrix_are_imported(tmp_path: Path) -> None:
    theirs = randomised(GPT2LMHeadModel(gpt2_config(4, tie_word_embeddings=True)), 4)
    theirs.save_pretrained(tmp_path / "theirs")

    def old(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        extra = {
            "transformer.h.0.attn.bias": torch.ones(1, 1, 32, 32),
            "transformer.h.0.attn.masked_bias": torch.ones(1),
        }
        return {**tensors, **extra, "lm_head.weight": tensors["transformer.wte.weight"].clone()}

    rewrite(tmp_path / "theirs", old)
    report = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    ours = load(tmp_path / "ours")
    assert gpt2_difference(theirs, ours, 4) < TOLERANCE
    assert report.left_out == ()
    assert isinstance(ours.config.model, DecoderOnlyConfig)
    assert ours.config.model.tie_output


def test_a_gpt2_head_that_is_not_the_embedding_is_kept_though_the_settings_call_it_tied(tmp_path: Path) -> None:
    theirs = randomised(GPT2LMHeadModel(gpt2_config(4, tie_word_embeddings=False)), 4)
    theirs.save_pretrained(tmp_path / "theirs")
    settings = json.loads((tmp_path / "theirs" / "config.json").read_text())
    write_json(tmp_path / "theirs" / "config.json", settings | {"tie_word_embeddings": True})
    import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert gpt2_difference(theirs, load(tmp_path / "ours"), 4) < TOLERANCE


def test_a_gpt2_that_classifies_is_imported_without_its_head(tmp_path: Path) -> None:
    theirs = randomised(GPT2ForSequenceClassification(gpt2_config(1, pad_token_id=0)), 1)
    _, report = imported(theirs, tmp_path)
    assert report.left_out == (SkippedTensor("score.weight", "regard's GPT has no head that classifies texts"),)


@pytest.mark.parametrize("kind", [BertForMaskedLM, BertForPreTraining], ids=lambda kind: str(kind.__name__))
@pytest.mark.parametrize("seed", range(4))
def test_berts_guesses_of_masked_words_equal_hugging_faces(kind: Any, seed: int, tmp_path: Path) -> None:
    theirs = randomised(kind(bert_config(seed)), seed)
    ours, report = imported(theirs, tmp_path)
    ids, real = padded(seed, theirs.config.vocab_size)
    with torch.no_grad():
        found = theirs(input_ids=ids, attention_mask=real.long())
        expected = found.logits if kind is BertForMaskedLM else found.prediction_logits
        assert difference(ours.network.logits(ours.network.encode(ids, real).states), expected, real) < TOLERANCE
    assert isinstance(ours.config.model, EncoderOnlyConfig)
    assert ours.config.model.head.kind == "tokens"
    assert {left.tensor.partition(".weight")[0].partition(".bias")[0] for left in report.left_out} <= {
        "cls.seq_relationship"
    }


def test_a_bert_that_guesses_words_by_another_matrix_is_imported_without_its_head(tmp_path: Path) -> None:
    theirs = randomised(BertForMaskedLM(bert_config(5, tie_word_embeddings=False)), 5)
    ours, report = imported(theirs, tmp_path)
    assert bert_difference(theirs.bert, ours, 5) < TOLERANCE
    assert isinstance(ours.config.model, EncoderOnlyConfig)
    assert ours.config.model.head.kind == "none"
    assert {left.reason for left in report.left_out} == {
        "regard's encoder guesses masked words with its embedding matrix, and this one has another"
    }


def test_second_copies_of_what_a_head_shares_are_no_news(tmp_path: Path) -> None:
    theirs = randomised(BertForMaskedLM(bert_config(5)), 5)
    theirs.save_pretrained(tmp_path / "theirs")

    def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        matrix = tensors["bert.embeddings.word_embeddings.weight"].clone()
        bias = tensors["cls.predictions.bias"].clone()
        return {**tensors, "cls.predictions.decoder.weight": matrix, "cls.predictions.decoder.bias": bias}

    rewrite(tmp_path / "theirs", copies)
    assert import_huggingface(tmp_path / "theirs", tmp_path / "ours").left_out == ()


BERTS = {
    BertForPreTraining: ("first-dense", {"cls.seq_relationship"}),
    BertForQuestionAnswering: ("first", {"qa_outputs"}),
}


@pytest.mark.parametrize("kind", BERTS, ids=lambda kind: str(kind.__name__))
def test_berts_with_heads_are_imported_without_them(kind: Any, tmp_path: Path) -> None:
    theirs = randomised(kind(bert_config(6)), 6)
    ours, report = imported(theirs, tmp_path)
    pooling, heads = BERTS[kind]
    assert bert_difference(theirs.bert, ours, 6) < TOLERANCE
    assert isinstance(ours.config.model, EncoderOnlyConfig)
    assert ours.config.model.pooling == pooling
    assert {tuple(sorted(head for head in heads if left.tensor.startswith(head))) for left in report.left_out} == {
        (head,) for head in heads
    }
    assert all(left.reason.startswith("regard's encoder has no head that") for left in report.left_out)


def test_old_names_of_berts_norms_are_understood(tmp_path: Path) -> None:
    theirs = randomised(BertModel(bert_config(7)), 7)
    theirs.save_pretrained(tmp_path / "theirs")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def rename(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        for new, name in old.items():
            tensors = {key.replace(new, name): tensor for key, tensor in tensors.items()}
        return tensors | {"embeddings.position_ids": torch.arange(32)[None]}

    rewrite(tmp_path / "theirs", rename)
    report = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert bert_difference(theirs, load(tmp_path / "ours"), 7) < TOLERANCE
    assert report.left_out == ()


@pytest.mark.parametrize(("mode", "pooling"), [("mean", "mean"), ("cls", "first"), (["mean"], "mean")])
def test_the_pooling_of_sentence_transformers_is_followed(mode: Any, pooling: str, tmp_path: Path) -> None:
    theirs = randomised(BertModel(bert_config(8)), 8)
    theirs.save_pretrained(tmp_path / "theirs")
    write_json(tmp_path / "theirs" / "1_Pooling" / "config.json", {"pooling_mode": mode})
    report = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    model = load(tmp_path / "ours").config.model
    assert isinstance(model, EncoderOnlyConfig)
    assert model.pooling == pooling
    assert report.left_out == tuple(
        SkippedTensor(f"pooler.dense.{name}", "1_Pooling/config.json asks for another pooling")
        for name in ("bias", "weight")
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_other_precisions_become_single(dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = randomised(GPT2LMHeadModel(gpt2_config(9)), 9).to(dtype)
    ours, _ = imported(theirs, tmp_path)
    assert {parameter.dtype for parameter in ours.network.parameters()} == {torch.float32}
    assert gpt2_difference(theirs.float(), ours, 9) < TOLERANCE


def test_sharded_weights_are_read(tmp_path: Path) -> None:
    theirs = randomised(BertModel(bert_config(9)), 9)
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="5KB")
    assert len(list((tmp_path / "theirs").glob("model-*.safetensors"))) > 1
    import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert bert_difference(theirs, load(tmp_path / "ours"), 9) < TOLERANCE


def rewrite(folder: Path, change: Any) -> None:
    """Put changed tensors in the place of a folder's own."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
