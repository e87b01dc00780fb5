"""Exported networks compute the same in transformers, for all settings, and can be imported again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ctranslate2 import Translator
from tokenizers import Tokenizer
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BertModel,
    GPT2LMHeadModel,
    MarianMTModel,
    logging,
)

from random_models import ROTARY, SMALL, VOCABULARY, greedy_decode, random_network, saved, sources, words
from regard.config import (
    AlibiPositionsConfig,
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    LinformerAttentionConfig,
    ModelConfig,
    NoPositionsConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
    TokenHeadConfig,
    TokenizerConfig,
    WindowAttentionConfig,
)
from regard.data.tokenizer import train_tokenizer
from regard.errors import ModelError
from regard.interop import export_ctranslate2, import_huggingface
from regard.interop.huggingface import export_huggingface
from regard.models import EncoderOnlyTransformer, load_network, save

logging.set_verbosity_error()
logging.disable_progress_bar()

TOLERANCE = 1e-4
COMMON: dict[str, dict[str, Any]] = {
    "GELU": {"activation": "gelu"},
    "GELU with tanh": {"activation": "gelu-tanh"},
    "swish": {"activation": "swish"},
    "attention biases": {"attention_bias": True},
    "unscaled embeddings": {"scale_embeddings": False},
    "unscaled scores": {"scale_scores": False},
    "narrow keys": {"key_width": 2, "attention_bias": True},
    "grouped heads": {"kv_heads": 2, "attention_bias": True},
    "multi-query, narrow keys": {"kv_heads": 1, "key_width": 2},
    "norms without gain and bias": {"norm_affine": False},
    "odd heads": {"width": 21, "heads": 3},
    "odd hidden units": {"feed_forward": 7},
}
MARIAN: dict[str, dict[str, Any]] = COMMON | {
    "the paper": {},
    "sinusoids in halves": {"positions": SinusoidalPositionsConfig(layout="halves")},
    "output bias": {"output_bias": True},
    "shallow decoder": {"layers": 3, "decoder_layers": 1},
    "untied output": {"tie_output": False},
    "separate embeddings": {"share_embeddings": False},
    "separate vocabularies": {"share_embeddings": False, "target_vocab_size": VOCABULARY + 6},
    "everything separate": {
        "share_embeddings": False,
        "target_vocab_size": 17,
        "tie_output": False,
        "output_bias": True,
    },
}
GPT2: dict[str, dict[str, Any]] = COMMON | {
    "sinusoids": {},
    "learned positions": {"positions": LearnedPositionsConfig(max_length=24)},
    "no positions": {"positions": NoPositionsConfig()},
    "squared ReLU": {"activation": "relu2"},
    "untied output": {"tie_output": False},
    "concatenated sinusoids": {
        "positions": SinusoidalPositionsConfig(combine="concatenate", width=5),
        "tie_output": False,
    },
    "concatenated learned positions": {
        "positions": LearnedPositionsConfig(max_length=24, combine="concatenate"),
        "tie_output": False,
        "scale_embeddings": False,
    },
    "tied output": {"scale_embeddings": False, "tie_output": True},
    "large epsilon": {"norm_epsilon": 0.1},
}
BERT: dict[str, dict[str, Any]] = COMMON | {
    "segments": {"segments": 2},
    "learned positions": {"positions": LearnedPositionsConfig(max_length=24)},
    "large epsilon": {"norm_epsilon": 0.1},
    "concatenated sinusoids": {"positions": SinusoidalPositionsConfig(combine="concatenate"), "segments": 2},
    "first token": {"pooling": "first"},
    "first token through a dense layer": {"pooling": "first-dense"},
}


def padded(texts: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """A right-padded batch (B, T) and its token mask."""
    width = max(map(len, texts))
    ids = torch.tensor([[*text, *[pad] * (width - len(text))] for text in texts])
    return ids, torch.arange(width) < torch.tensor([[len(text)] for text in texts])


@pytest.mark.parametrize("settings", MARIAN.values(), ids=MARIAN)
@torch.no_grad()
@pytest.mark.slow
def test_translators_round_trip_as_marian(settings: dict[str, Any], tmp_path: Path) -> None:
    model = EncoderDecoderConfig(**{**SMALL, **settings})
    network, config = saved(tmp_path / "ours", model)
    assert export_huggingface(tmp_path / "ours", tmp_path / "exported").kind == "MarianMTModel"
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "exported").eval().double()  # to avoid rounding
    network.double()
    assert isinstance(theirs, MarianMTModel)
    texts = [[*text, config.tokens.end] for text in sources()]
    source, source_mask = padded(texts, config.tokens.pad)
    target, target_mask = padded(sources(model.target_vocab_size or VOCABULARY, seed=1), config.tokens.pad)
    expected = network(source, target, source_mask, target_mask)
    inputs = {"input_ids": source, "attention_mask": source_mask.long()}
    logits = theirs(**inputs, decoder_input_ids=target, decoder_attention_mask=target_mask.long()).logits
    assert float((logits - expected)[target_mask].abs().max()) < TOLERANCE

    generated = theirs.generate(**inputs, num_beams=1, max_new_tokens=12)[:, 1:].tolist()
    for text, ids in zip(texts, generated, strict=True):
        ended = ids[: ids.index(config.tokens.end)] if config.tokens.end in ids else ids
        assert ended == greedy_decode(network, config, text[:-1], [config.tokens.start], 12)

    import_huggingface(tmp_path / "exported", tmp_path / "again")
    again = load_network(tmp_path / "again")
    logits = again.network.double()(source, target, source_mask, target_mask)
    assert float((logits - expected)[target_mask].abs().max()) < TOLERANCE
    assert again.config.tokens == config.tokens


@pytest.mark.parametrize("settings", GPT2.values(), ids=GPT2)
@torch.no_grad()
def test_language_models_round_trip_as_gpt2(settings: dict[str, Any], tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", DecoderOnlyConfig(**{**SMALL, "norm_order": "pre", **settings}))
    assert export_huggingface(tmp_path / "ours", tmp_path / "exported").kind == "GPT2LMHeadModel"
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    assert isinstance(theirs, GPT2LMHeadModel)
    ids, mask = padded([[config.tokens.start, *text] for text in sources()], config.tokens.pad)
    expected = network(ids, mask)
    logits = theirs(input_ids=ids, attention_mask=mask.long()).logits
    assert float((logits - expected)[mask].abs().max()) < TOLERANCE

    for text in sources(count=3):
        prompt = [config.tokens.start, *text]
        output = theirs.generate(torch.tensor([prompt]), max_new_tokens=10)[0].tolist()
        generated = output[len(prompt) :]
        ended = generated[: generated.index(config.tokens.end)] if config.tokens.end in generated else generated
        assert ended == greedy_decode(network, config, None, prompt, 10)

    import_huggingface(tmp_path / "exported", tmp_path / "again")
    again = load_network(tmp_path / "again")
    assert float((again.network(ids, mask) - expected)[mask].abs().max()) < TOLERANCE


def test_large_weights_are_exported_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.models.folder.MAX_SHARD_BYTES", 4096)
    model = DecoderOnlyConfig(**SMALL, norm_order="pre", positions=LearnedPositionsConfig(max_length=40))
    network, _ = saved(tmp_path / "model", model)
    assert (tmp_path / "model" / "model.safetensors.index.json").exists()
    export_huggingface(tmp_path / "model", tmp_path / "exported")
    assert (tmp_path / "exported" / "model.safetensors.index.json").exists()
    assert not (tmp_path / "exported" / "model.safetensors").exists()
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    expected = network.logits(network.decode(ids))
    torch.testing.assert_close(theirs(ids).logits[..., : expected.size(-1)], expected, atol=TOLERANCE, rtol=TOLERANCE)
    import_huggingface(tmp_path / "exported", tmp_path / "again")
    again = load_network(tmp_path / "again").network
    torch.testing.assert_close(again.logits(again.decode(ids)), expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("name", ROTARY)
@torch.no_grad()
def test_rotary_language_models_equal_those_of_the_llama_family(name: str, tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", ROTARY[name])
    kind = export_huggingface(tmp_path / "ours", tmp_path / "exported").kind
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    assert type(theirs).__name__ == kind
    assert kind.startswith(name.split()[0].strip(",")) or kind == "LlamaForCausalLM"
    theirs.set_experts_implementation("eager")  # others have no float64
    network, theirs = network.double(), theirs.double()
    ids, mask = padded([[config.tokens.start, *text] for text in sources(longest=14)], config.tokens.pad)
    logits = theirs(input_ids=ids, attention_mask=mask.long()).logits
    assert float((logits - network(ids, mask))[mask].abs().max()) < TOLERANCE
    prompt = [config.tokens.start, *sources(count=1)[0]]
    output = theirs.generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False)[0].tolist()[len(prompt) :]
    ended = output[: output.index(config.tokens.end)] if config.tokens.end in output else output
    assert ended == greedy_decode(network, config, None, prompt, 6)


@pytest.mark.slow
@pytest.mark.parametrize("settings", BERT.values(), ids=BERT)
@torch.no_grad()
def test_encoders_round_trip_as_bert(settings: dict[str, Any], tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", EncoderOnlyConfig(**{**SMALL, "embedding_norm": True, **settings}))
    assert isinstance(network, EncoderOnlyTransformer)
    assert export_huggingface(tmp_path / "ours", tmp_path / "exported").kind == "BertModel"
    theirs = AutoModel.from_pretrained(tmp_path / "exported").eval()
    assert isinstance(theirs, BertModel)
    ids, mask = padded(sources(), config.tokens.pad)
    memory = network.encode(ids, mask)
    outputs = theirs(input_ids=ids, attention_mask=mask.long())
    assert float((outputs.last_hidden_state - memory.states)[mask].abs().max()) < TOLERANCE
    if settings.get("pooling") == "first-dense":
        assert torch.allclose(outputs.pooler_output, network.pool(memory), atol=TOLERANCE)

    import_huggingface(tmp_path / "exported", tmp_path / "again")
    again = load_network(tmp_path / "again").network
    assert isinstance(again, EncoderOnlyTransformer)
    assert torch.allclose(again.pool(again.encode(ids, mask)), network.pool(memory), atol=TOLERANCE)


MASKED_LM: dict[str, dict[str, Any]] = {
    "GELU": {"activation": "gelu"},
    "unscaled embeddings": {"activation": "gelu", "scale_embeddings": False},
    "other activation": {"activation": "relu", "head": TokenHeadConfig(activation="relu")},
    "large epsilon": {"activation": "gelu", "norm_epsilon": 0.1, "head": TokenHeadConfig(norm_epsilon=0.1)},
    "first token through a dense layer": {"activation": "gelu", "pooling": "first-dense"},
}


@pytest.mark.parametrize("settings", MASKED_LM.values(), ids=MASKED_LM)
@torch.no_grad()
def test_masked_language_models_round_trip_as_bert(settings: dict[str, Any], tmp_path: Path) -> None:
    model = EncoderOnlyConfig(**{**SMALL, "embedding_norm": True, "head": TokenHeadConfig(), **settings})
    network, config = saved(tmp_path / "ours", model, mask=4)
    assert export_huggingface(tmp_path / "ours", tmp_path / "exported").kind == "BertForMaskedLM"
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path / "exported").eval()
    ids, mask = padded(sources(), config.tokens.pad)
    expected = network.logits(network.encode(ids, mask).states)
    logits = theirs(input_ids=ids, attention_mask=mask.long()).logits
    assert float((logits - expected)[mask].abs().max()) < TOLERANCE
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert tokenizer.mask_token_id == 4

    import_huggingface(tmp_path / "exported", tmp_path / "again")
    again = load_network(tmp_path / "again")
    assert (
        float((again.network.logits(again.network.encode(ids, mask).states) - expected)[mask].abs().max()) < TOLERANCE
    )
    assert again.config.tokens == config.tokens


@pytest.mark.slow
@torch.no_grad()
def test_sentence_transformers_vectors_equal_ours(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    network, config = saved(tmp_path / "ours", EncoderOnlyConfig(**SMALL, embedding_norm=True))
    assert isinstance(network, EncoderOnlyTransformer)
    export_huggingface(tmp_path / "ours", tmp_path / "exported")
    theirs = SentenceTransformer(str(tmp_path / "exported"), device="cpu")
    ids = torch.tensor([[config.tokens.start, 5, 9, 4, config.tokens.end]])
    vector = torch.tensor(theirs.encode("w5 w9 w4"))
    assert torch.allclose(vector, network.pool(network.encode(ids))[0], atol=TOLERANCE)


TEXTS = ["I love you very much", "  two  spaces ", "è così, perché no?", "[EOS] is [PAD] text", "emoji 🙂 and ß", "a"]
KINDS = ["bpe", "unigram", "byte-level", "character", "word"]


def with_tokenizer(folder: Path, model: ModelConfig, kind: Any) -> Any:
    """Write a model folder with a trained tokenizer, and return the tokenizer."""
    tokenizer = train_tokenizer(TEXTS * 3, TokenizerConfig(kind=kind), vocab_size=330)
    config = Config(model=model.model_copy(update={"vocab_size": len(tokenizer)}))
    save(folder, random_network(config.model), config, extra_files={"tokenizer.json": tokenizer.to_json()})
    return tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_autotokenizer_gives_our_ids_with_an_end_token_for_sources(kind: str, tmp_path: Path) -> None:
    ours = with_tokenizer(tmp_path / "ours", EncoderDecoderConfig(**SMALL), kind)
    export_huggingface(tmp_path / "ours", tmp_path / "exported")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "exported")
    for text in TEXTS:
        inputs = theirs(text)
        assert inputs["input_ids"] == [*ours.encode(text), 3]
        assert set(inputs) == {"input_ids", "attention_mask"}
        assert theirs.decode(inputs["input_ids"], skip_special_tokens=True) == ours.decode(inputs["input_ids"])
    batch = theirs(TEXTS, padding=True, return_tensors="pt")
    assert batch["input_ids"][-1, -1] == theirs.pad_token_id == 0
    assert (theirs.unk_token, theirs.bos_token, theirs.eos_token) == ("[UNK]", "[SOS]", "[EOS]")


@pytest.mark.parametrize("kind", KINDS)
def test_autotokenizer_gives_our_ids_with_a_start_token_for_prompts(kind: str, tmp_path: Path) -> None:
    ours = with_tokenizer(tmp_path / "ours", DecoderOnlyConfig(**SMALL, norm_order="pre"), kind)
    export_huggingface(tmp_path / "ours", tmp_path / "exported")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert [theirs(text)["input_ids"] for text in TEXTS] == [[2, *ours.encode(text)] for text in TEXTS]


@torch.no_grad()
def test_prompts_of_unequal_length_are_continued_in_one_batch(tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", DecoderOnlyConfig(**SMALL, norm_order="pre"))
    export_huggingface(tmp_path / "ours", tmp_path / "exported")
    theirs, tokenizer = (kind.from_pretrained(tmp_path / "exported") for kind in (AutoModelForCausalLM, AutoTokenizer))
    prompts = ["w5 w9 w4 w17", "w20"]
    inputs = tokenizer(prompts, padding=True, return_tensors="pt")
    generated = theirs.generate(**inputs, max_new_tokens=6)[:, inputs["input_ids"].size(1) :]
    for prompt, ids in zip(prompts, generated.tolist(), strict=True):
        ended = ids[: ids.index(config.tokens.end)] if config.tokens.end in ids else ids
        assert ended == greedy_decode(network, config, None, tokenizer(prompt)["input_ids"], 6)


def test_no_start_token_is_added_if_it_is_the_end_token(tmp_path: Path) -> None:
    saved(tmp_path / "ours", DecoderOnlyConfig(**SMALL, norm_order="pre"), pad=3, unknown=3, start=3, end=3)
    export_huggingface(tmp_path / "ours", tmp_path / "exported")
    assert AutoTokenizer.from_pretrained(tmp_path / "exported")("w5 w6")["input_ids"] == [5, 6]
    generation = json.loads((tmp_path / "exported" / "generation_config.json").read_text())
    assert generation["bad_words_ids"] is None


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("kind", ["translator", "gpt"])
@torch.no_grad()
def test_padding_and_start_tokens_are_never_generated(kind: str, beams: int, tmp_path: Path) -> None:
    config = Config(
        model=EncoderDecoderConfig(**SMALL) if kind == "translator" else DecoderOnlyConfig(**SMALL, norm_order="pre")
    )
    network = random_network(config.model)
    direction = torch.randn(SMALL["width"])
    norm = "decoder.layers.1.feed_forward_residual.norm.bias" if kind == "translator" else "decoder.norm.bias"
    network.get_parameter(norm).add_(direction * 5)
    network.get_parameter("output.weight")[[0, 2]] = direction  # padding and start are the most probable tokens
    save(tmp_path / "ours", network, config)
    export_huggingface(tmp_path / "ours", tmp_path / "exported")
    kinds = {"translator": AutoModelForSeq2SeqLM, "gpt": AutoModelForCausalLM}
    theirs = kinds[kind].from_pretrained(tmp_path / "exported")
    ids = torch.tensor([[2, 5, 6]])
    assert int(network(*([ids, ids[:, :1]] if kind == "translator" else [ids]))[0, -1].argmax()) in (0, 2)
    generated = theirs.generate(ids, num_beams=beams, max_new_tokens=8)[0].tolist()
    assert not {0, 2} & set(generated[1 if kind == "translator" else 3 :])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_networks_of_other_precisions_become_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    config = Config(model=DecoderOnlyConfig(**SMALL, norm_order="pre"))
    network = random_network(config.model).to(dtype)
    save(tmp_path / "ours", network, config)
    export_huggingface(tmp_path / "ours", tmp_path / "exported")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    assert theirs.dtype == torch.float32
    ids = torch.tensor([[2, 5, 6]])
    with torch.no_grad():
        assert torch.allclose(theirs(ids).logits, network.float()(ids), atol=TOLERANCE)


def test_a_second_tokenizer_is_exported_with_a_note(tmp_path: Path) -> None:
    model = EncoderDecoderConfig(**SMALL, share_embeddings=False)
    files = {"tokenizer.json": words(), "target_tokenizer.json": words(prefix="p")}
    contents = {name: tokenizer.to_str().encode() for name, tokenizer in files.items()}
    save(tmp_path / "ours", random_network(model), Config(model=model), extra_files=contents)
    report = export_huggingface(tmp_path / "ours", tmp_path / "exported")
    assert report.notes == ("AutoTokenizer reads tokenizer.json, for sources; target_tokenizer.json is for targets.",)
    import_huggingface(tmp_path / "exported", tmp_path / "again")
    for folder in ("exported", "again"):
        target = Tokenizer.from_file(str(tmp_path / folder / "target_tokenizer.json"))
        assert target.id_to_token(4) == "p4"


def test_special_tokens_in_texts_are_recognized_if_the_tokenizer_has_further_ones(tmp_path: Path) -> None:
    tokenizer = words()
    tokenizer.add_special_tokens(["w28"])  # like a language code
    config = Config(model=EncoderDecoderConfig(**SMALL))
    files = {"tokenizer.json": tokenizer.to_str().encode()}
    save(tmp_path / "ours", random_network(config.model), config, extra_files=files)
    export_huggingface(tmp_path / "ours", tmp_path / "exported")
    assert AutoTokenizer.from_pretrained(tmp_path / "exported")("w28w5")["input_ids"] == [28, 5, 3]


def test_a_missing_tokenizer_is_noted(tmp_path: Path) -> None:
    config = Config(model=EncoderDecoderConfig(**SMALL))
    save(tmp_path / "ours", random_network(config.model), config)
    report = export_huggingface(tmp_path / "ours", tmp_path / "exported")
    assert report.notes == ("The model has no tokenizer, so the exported model has none: use it with token ids.",)
    assert {path.name for path in (tmp_path / "exported").iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors")
    }


def test_a_tokenizer_without_end_token_is_noted(tmp_path: Path) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**{**SMALL, "vocab_size": 40}), end=35)
    report = export_huggingface(tmp_path / "ours", tmp_path / "exported")
    assert report.notes == ("The tokenizer lacks a special token of the model, so it adds none to texts.",)


@torch.no_grad()
def test_a_marian_with_two_tokenizers_can_be_exported_to_ctranslate2_after_import(tmp_path: Path) -> None:
    source, target = (Tokenizer.from_str(words(prefix=prefix).to_str()) for prefix in "ab")
    model = EncoderDecoderConfig(**SMALL, positions=SinusoidalPositionsConfig(layout="halves"), attention_bias=True)
    files = {"tokenizer.json": source.to_str().encode(), "target_tokenizer.json": target.to_str().encode()}
    network, config = random_network(model), Config(model=model)
    save(tmp_path / "ours", network, config, extra_files=files)
    export_huggingface(tmp_path / "ours", tmp_path / "exported")
    import_huggingface(tmp_path / "exported", tmp_path / "again")
    export_ctranslate2(tmp_path / "again", tmp_path / "ct2", "float32")
    tokens = Tokenizer.from_file(str(tmp_path / "ct2" / "tokenizer.json")).encode("a5 a9", add_special_tokens=False)
    theirs = Translator(str(tmp_path / "ct2"), intra_threads=1)
    (result,) = theirs.translate_batch([tokens.tokens], beam_size=1, min_decoding_length=0, max_decoding_length=9)
    expected = greedy_decode(network, config, [5, 9], [config.tokens.start], 9)
    assert result.hypotheses[0] == [target.id_to_token(number) for number in expected]


PRE: dict[str, Any] = {**SMALL, "norm_order": "pre"}
NORMED: dict[str, Any] = {**SMALL, "embedding_norm": True}
MODERN: dict[str, Any] = {**PRE, "norm": "rms", "activation": "swiglu", "positions": RotaryPositionsConfig()}
TO_CTRANSLATE2, WITH_REGARD = "export it to ctranslate2", "use it with regard"
REFUSED: dict[str, tuple[ModelConfig, str]] = {
    "Marian normalizes after each sublayer, and this network before": (EncoderDecoderConfig(**PRE), TO_CTRANSLATE2),
    "Marian has layer norms, and this network has RMS norms": (
        EncoderDecoderConfig(**SMALL, norm="rms"),
        TO_CTRANSLATE2,
    ),
    "Marian has layer norms, and this network has none": (EncoderDecoderConfig(**SMALL, norm="none"), WITH_REGARD),
    "Marian has one feed-forward layer, and this network a mixture of experts": (
        EncoderDecoderConfig(**SMALL, experts=3),
        WITH_REGARD,
    ),
    "GPT-2 has one feed-forward layer, and this network a mixture of experts": (
        DecoderOnlyConfig(**PRE, experts=3),
        WITH_REGARD,
    ),
    "BERT has one feed-forward layer, and this network a mixture of experts": (
        EncoderOnlyConfig(**NORMED, experts=3),
        WITH_REGARD,
    ),
    "Mixtral has no biases in attention, and this network has experts and biases": (
        DecoderOnlyConfig(**MODERN, experts=3, attention_bias=True),
        WITH_REGARD,
    ),
    "Mixtral and Qwen3-MoE have windows in all layers, and this network has experts, and windows in some": (
        DecoderOnlyConfig(**MODERN, experts=3, attention=WindowAttentionConfig(window=2, full_layers=(0,))),
        WITH_REGARD,
    ),
    "Marian has feed-forward layers, and this network has none": (
        EncoderDecoderConfig(**{**SMALL, "feed_forward": 0}),
        WITH_REGARD,
    ),
    "Marian has no gates, and this network's activation is swiglu": (
        EncoderDecoderConfig(**SMALL, activation="swiglu"),
        TO_CTRANSLATE2,
    ),
    "Marian does not normalize queries and keys, and this network does": (
        EncoderDecoderConfig(**SMALL, qk_norm=True),
        WITH_REGARD,
    ),
    "GPT-2 does not cap its logits, and this network does": (
        DecoderOnlyConfig(**PRE, logit_soft_cap=15.0),
        WITH_REGARD,
    ),
    "Marian has full attention, and this network's is linformer": (
        EncoderDecoderConfig(**SMALL, attention=LinformerAttentionConfig()),
        WITH_REGARD,
    ),
    "GPT-2 has full attention, and this network's is window": (
        DecoderOnlyConfig(**PRE, attention=WindowAttentionConfig()),
        WITH_REGARD,
    ),
    "Marian has residual connections, and this network has none": (
        EncoderDecoderConfig(**SMALL, residual=False),
        WITH_REGARD,
    ),
    "Marian has a causal mask, and this network's decoder has none": (
        EncoderDecoderConfig(**SMALL, causal_mask=False),
        WITH_REGARD,
    ),
    "Marian has no keys that are wider than values, as this network has": (
        EncoderDecoderConfig(**SMALL, key_width=7),
        TO_CTRANSLATE2,
    ),
    "the epsilon of Marian's norms is 1e-05, and of this network's 0.1": (
        EncoderDecoderConfig(**SMALL, norm_epsilon=0.1),
        TO_CTRANSLATE2,
    ),
    "Marian does not normalize embeddings, and this network does": (EncoderDecoderConfig(**NORMED), TO_CTRANSLATE2),
    "Marian's positions are sinusoidal, and this network's are learned": (
        EncoderDecoderConfig(**SMALL, positions=LearnedPositionsConfig()),
        TO_CTRANSLATE2,
    ),
    "Marian adds positions to embeddings, and this network concatenates them": (
        EncoderDecoderConfig(**SMALL, positions=SinusoidalPositionsConfig(combine="concatenate"), tie_output=False),
        TO_CTRANSLATE2,
    ),
    "BERT's head has the model width, and this network's that of its embeddings, which are narrower": (
        EncoderOnlyConfig(
            **NORMED,
            activation="gelu",
            positions=SinusoidalPositionsConfig(combine="concatenate"),
            head=TokenHeadConfig(),
        ),
        WITH_REGARD,
    ),
    "Marian adds positions to embeddings, and this network's are relative": (
        EncoderDecoderConfig(**SMALL, positions=RelativePositionsConfig()),
        TO_CTRANSLATE2,
    ),
    "GPT-2 adds positions to embeddings, and this network's are alibi": (
        DecoderOnlyConfig(**PRE, positions=AlibiPositionsConfig()),
        TO_CTRANSLATE2,
    ),
    "Llama has RMS norms, and this network has layer norms": (
        DecoderOnlyConfig(**PRE, positions=RotaryPositionsConfig()),
        TO_CTRANSLATE2,
    ),
    "Llama does not cap logits, and this network does": (
        DecoderOnlyConfig(**MODERN, logit_soft_cap=15.0),
        WITH_REGARD,
    ),
    "Llama's queries and keys are as wide as its values, and this network's are not": (
        DecoderOnlyConfig(**MODERN, key_width=4),
        TO_CTRANSLATE2,
    ),
    "Qwen2 has no bias after attention with windows, and this network has": (
        DecoderOnlyConfig(**MODERN, attention_bias=True, attention=WindowAttentionConfig()),
        WITH_REGARD,
    ),
    "BERT adds positions to embeddings, and this network's are alibi": (
        EncoderOnlyConfig(**NORMED, positions=AlibiPositionsConfig()),
        WITH_REGARD,
    ),
    "the id of its padding, start or end token is outside of a vocabulary": (
        EncoderDecoderConfig(**SMALL, share_embeddings=False, target_vocab_size=3),
        WITH_REGARD,
    ),
    "GPT-2 normalizes before each sublayer, and this network after": (DecoderOnlyConfig(**SMALL), TO_CTRANSLATE2),
    "GPT-2 does not normalize embeddings, and this network does": (
        DecoderOnlyConfig(**PRE, embedding_norm=True),
        TO_CTRANSLATE2,
    ),
    "GPT-2 has no bias on its logits, and this network has": (
        DecoderOnlyConfig(**PRE, output_bias=True),
        TO_CTRANSLATE2,
    ),
    "GPT-2 has a causal mask, and this network's decoder has none": (
        DecoderOnlyConfig(**PRE, causal_mask=False),
        WITH_REGARD,
    ),
    "MegatronBert does not normalize embeddings, and this network does": (
        EncoderOnlyConfig(**NORMED, norm_order="pre"),
        WITH_REGARD,
    ),
    "BERT normalizes embeddings, and this network does not": (EncoderOnlyConfig(**SMALL), WITH_REGARD),
    "BERT's head has the activation of its layers, relu, and this network's gelu": (
        EncoderOnlyConfig(**NORMED, head=TokenHeadConfig()),
        WITH_REGARD,
    ),
    "BERT's head has the norm_epsilon of its layers, 1e-05, and this network's 0.1": (
        EncoderOnlyConfig(**NORMED, activation="gelu", head=TokenHeadConfig(norm_epsilon=0.1)),
        WITH_REGARD,
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_unsupported_models_are_refused_before_anything_is_written(reason: str, tmp_path: Path) -> None:
    model, remedy = REFUSED[reason]
    saved(tmp_path / "ours", model)
    with pytest.raises(ModelError) as error:
        export_huggingface(tmp_path / "ours", tmp_path / "exported")
    assert str(error.value) == (f"{tmp_path / 'ours'}: cannot be exported to Hugging Face, because {reason}; {remedy}.")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_nothing_is_left_if_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ModelError) as error:
        export_huggingface(tmp_path / "ours", tmp_path / "exported")
    assert str(error.value) == (
        f"{tmp_path / 'exported'}: cannot be written (No space left on device); free some space."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))
    (tmp_path / "exported").mkdir()
    with pytest.raises(ModelError) as error:
        export_huggingface(tmp_path / "ours", tmp_path / "exported")
    assert str(error.value) == f"{tmp_path / 'exported'}: already exists; choose another name or remove it first."


def test_chat_templates_are_exported_and_imported(tmp_path: Path) -> None:
    saved(tmp_path / "ours", DecoderOnlyConfig(**{**SMALL, "norm_order": "pre"}))
    template = "{{ messages }}è"
    (tmp_path / "ours" / "chat_template.jinja").write_text(template, "utf-8")
    export_huggingface(tmp_path / "ours", tmp_path / "exported")
    import_huggingface(tmp_path / "exported", tmp_path / "again")
    for name in ("exported", "again"):
        assert (tmp_path / name / "chat_template.jinja").read_text("utf-8") == template
