"""An exported network gives our numbers in Hugging Face's classes, whatever its settings, and comes back the same."""

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

from random_models import SMALL, VOCABULARY, greedily, randomised, saved, sources, words
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
from regard.interop.hf_export import export_huggingface
from regard.models import EncoderOnlyTransformer, load, save

logging.set_verbosity_error()
logging.disable_progress_bar()

TOLERANCE = 1e-4
COMMON: dict[str, dict[str, Any]] = {
    "GELU": {"activation": "gelu"},
    "GELU by tanh": {"activation": "gelu-tanh"},
    "swish": {"activation": "swish"},
    "attention with biases": {"attention_bias": True},
    "embeddings not scaled": {"scale_embeddings": False},
    "scores not divided": {"scale_scores": False},
    "narrow keys": {"key_width": 2, "attention_bias": True},
    "grouped heads": {"kv_heads": 2, "attention_bias": True},
    "multi-query, narrow keys": {"kv_heads": 1, "key_width": 2},
    "odd heads": {"width": 21, "heads": 3},
    "odd hidden units": {"feed_forward": 7},
}
MARIAN: dict[str, dict[str, Any]] = COMMON | {
    "the paper's": {},
    "sinusoids in halves": {"positions": SinusoidalPositionsConfig(layout="halves")},
    "a bias on the logits": {"output_bias": True},
    "a shallow decoder": {"layers": 3, "decoder_layers": 1},
    "an output of its own": {"tie_output": False},
    "separate embeddings": {"share_embeddings": False},
    "separate vocabularies": {"share_embeddings": False, "target_vocab_size": VOCABULARY + 6},
    "all of its own": {"share_embeddings": False, "target_vocab_size": 17, "tie_output": False, "output_bias": True},
}
GPT2: dict[str, dict[str, Any]] = COMMON | {
    "sinusoids": {},
    "learned positions": {"positions": LearnedPositionsConfig(max_length=24)},
    "no positions": {"positions": NoPositionsConfig()},
    "an output of its own": {"tie_output": False},
    "a tied output": {"scale_embeddings": False, "tie_output": True},
    "a large epsilon": {"norm_epsilon": 0.1},
}
BERT: dict[str, dict[str, Any]] = COMMON | {
    "segments": {"segments": 2},
    "learned positions": {"positions": LearnedPositionsConfig(max_length=24)},
    "a large epsilon": {"norm_epsilon": 0.1},
    "the first token": {"pooling": "first"},
    "the first token through a dense layer": {"pooling": "first-dense"},
}


def padded(texts: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Texts as a batch (B, T) padded on the right, and True where they are real."""
    longest = max(map(len, texts))
    ids = torch.tensor([[*text, *[pad] * (longest - len(text))] for text in texts])
    return ids, torch.arange(longest) < torch.tensor([[len(text)] for text in texts])


@pytest.mark.parametrize("settings", MARIAN.values(), ids=MARIAN)
@torch.no_grad()
def test_a_translator_is_a_marian_and_comes_back(settings: dict[str, Any], tmp_path: Path) -> None:
    model = EncoderDecoderConfig(**{**SMALL, **settings})
    network, config = saved(tmp_path / "ours", model)
    assert export_huggingface(tmp_path / "ours", tmp_path / "theirs").kind == "MarianMTModel"
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs").eval().double()  # no rounding to allow for
    network.double()
    assert isinstance(theirs, MarianMTModel)
    texts = [[*text, config.tokens.end] for text in sources()]
    source, source_real = padded(texts, config.tokens.pad)
    target, target_real = padded(sources(model.target_vocab_size or VOCABULARY, seed=1), config.tokens.pad)
    expected = network(source, target, source_real, target_real)
    given = {"input_ids": source, "attention_mask": source_real.long()}
    logits = theirs(**given, decoder_input_ids=target, decoder_attention_mask=target_real.long()).logits
    assert float((logits - expected)[target_real].abs().max()) < TOLERANCE

    written = theirs.generate(**given, num_beams=1, max_new_tokens=12)[:, 1:].tolist()
    for text, ids in zip(texts, written, strict=True):
        ended = ids[: ids.index(config.tokens.end)] if config.tokens.end in ids else ids
        assert ended == greedily(network, config, text[:-1], [config.tokens.start], 12)

    import_huggingface(tmp_path / "theirs", tmp_path / "again")
    again = load(tmp_path / "again")
    found = again.network.double()(source, target, source_real, target_real)
    assert float((found - expected)[target_real].abs().max()) < TOLERANCE
    assert again.config.tokens == config.tokens


@pytest.mark.parametrize("settings", GPT2.values(), ids=GPT2)
@torch.no_grad()
def test_a_language_model_is_a_gpt2_and_comes_back(settings: dict[str, Any], tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", DecoderOnlyConfig(**{**SMALL, "norm_order": "pre", **settings}))
    assert export_huggingface(tmp_path / "ours", tmp_path / "theirs").kind == "GPT2LMHeadModel"
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "theirs").eval()
    assert isinstance(theirs, GPT2LMHeadModel)
    ids, real = padded([[config.tokens.start, *text] for text in sources()], config.tokens.pad)
    expected = network(ids, real)
    logits = theirs(input_ids=ids, attention_mask=real.long()).logits
    assert float((logits - expected)[real].abs().max()) < TOLERANCE

    for text in sources(count=3):
        prompt = [config.tokens.start, *text]
        whole = theirs.generate(torch.tensor([prompt]), max_new_tokens=10)[0].tolist()
        written = whole[len(prompt) :]
        ended = written[: written.index(config.tokens.end)] if config.tokens.end in written else written
        assert ended == greedily(network, config, None, prompt, 10)

    import_huggingface(tmp_path / "theirs", tmp_path / "again")
    again = load(tmp_path / "again")
    assert float((again.network(ids, real) - expected)[real].abs().max()) < TOLERANCE


@pytest.mark.parametrize("settings", BERT.values(), ids=BERT)
@torch.no_grad()
def test_a_text_encoder_is_a_bert_and_comes_back(settings: dict[str, Any], tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", EncoderOnlyConfig(**{**SMALL, "embedding_norm": True, **settings}))
    assert isinstance(network, EncoderOnlyTransformer)
    assert export_huggingface(tmp_path / "ours", tmp_path / "theirs").kind == "BertModel"
    theirs = AutoModel.from_pretrained(tmp_path / "theirs").eval()
    assert isinstance(theirs, BertModel)
    ids, real = padded(sources(), config.tokens.pad)
    memory = network.encode(ids, real)
    found = theirs(input_ids=ids, attention_mask=real.long())
    assert float((found.last_hidden_state - memory.states)[real].abs().max()) < TOLERANCE
    if settings.get("pooling") == "first-dense":
        assert torch.allclose(found.pooler_output, network.pool(memory), atol=TOLERANCE)

    import_huggingface(tmp_path / "theirs", tmp_path / "again")
    again = load(tmp_path / "again").network
    assert isinstance(again, EncoderOnlyTransformer)
    assert torch.allclose(again.pool(again.encode(ids, real)), network.pool(memory), atol=TOLERANCE)


GUESSING: dict[str, dict[str, Any]] = {
    "GELU": {"activation": "gelu"},
    "embeddings not scaled": {"activation": "gelu", "scale_embeddings": False},
    "another activation": {"activation": "relu", "head": TokenHeadConfig(activation="relu")},
    "a large epsilon": {"activation": "gelu", "norm_epsilon": 0.1, "head": TokenHeadConfig(norm_epsilon=0.1)},
    "the first token through a dense layer": {"activation": "gelu", "pooling": "first-dense"},
}


@pytest.mark.parametrize("settings", GUESSING.values(), ids=GUESSING)
@torch.no_grad()
def test_an_encoder_that_guesses_words_is_a_bert_and_comes_back(settings: dict[str, Any], tmp_path: Path) -> None:
    model = EncoderOnlyConfig(**{**SMALL, "embedding_norm": True, "head": TokenHeadConfig(), **settings})
    network, config = saved(tmp_path / "ours", model, mask=4)
    assert export_huggingface(tmp_path / "ours", tmp_path / "theirs").kind == "BertForMaskedLM"
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path / "theirs").eval()
    ids, real = padded(sources(), config.tokens.pad)
    expected = network.logits(network.encode(ids, real).states)
    logits = theirs(input_ids=ids, attention_mask=real.long()).logits
    assert float((logits - expected)[real].abs().max()) < TOLERANCE
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    assert tokenizer.mask_token_id == 4

    import_huggingface(tmp_path / "theirs", tmp_path / "again")
    again = load(tmp_path / "again")
    assert (
        float((again.network.logits(again.network.encode(ids, real).states) - expected)[real].abs().max()) < TOLERANCE
    )
    assert again.config.tokens == config.tokens


@torch.no_grad()
def test_sentence_transformers_makes_the_vector_that_ours_makes(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    network, config = saved(tmp_path / "ours", EncoderOnlyConfig(**SMALL, embedding_norm=True))
    assert isinstance(network, EncoderOnlyTransformer)
    export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    theirs = SentenceTransformer(str(tmp_path / "theirs"), device="cpu")
    ids = torch.tensor([[config.tokens.start, 5, 9, 4, config.tokens.end]])
    vector = torch.tensor(theirs.encode("w5 w9 w4"))
    assert torch.allclose(vector, network.pool(network.encode(ids))[0], atol=TOLERANCE)


TEXTS = ["I love you very much", "  two  spaces ", "è così, perché no?", "[EOS] is [PAD] text", "emoji 🙂 and ß", "a"]
KINDS = ["bpe", "unigram", "byte-level", "character", "word"]


def with_tokenizer(folder: Path, model: ModelConfig, kind: Any) -> Any:
    """A model folder with a trained tokenizer, which is returned."""
    tokenizer = train_tokenizer(TEXTS * 3, TokenizerConfig(kind=kind), vocab_size=330)
    config = Config(model=model.model_copy(update={"vocab_size": len(tokenizer)}))
    save(folder, randomised(config.model), config, extra_files={"tokenizer.json": tokenizer.to_json()})
    return tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_autotokenizer_cuts_a_source_into_our_ids_and_ends_it(kind: str, tmp_path: Path) -> None:
    ours = with_tokenizer(tmp_path / "ours", EncoderDecoderConfig(**SMALL), kind)
    export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    for text in TEXTS:
        given = theirs(text)
        assert given["input_ids"] == [*ours.encode(text), 3]
        assert set(given) == {"input_ids", "attention_mask"}
        assert theirs.decode(given["input_ids"], skip_special_tokens=True) == ours.decode(given["input_ids"])
    batch = theirs(TEXTS, padding=True, return_tensors="pt")
    assert batch["input_ids"][-1, -1] == theirs.pad_token_id == 0
    assert (theirs.unk_token, theirs.bos_token, theirs.eos_token) == ("[UNK]", "[SOS]", "[EOS]")


@pytest.mark.parametrize("kind", KINDS)
def test_autotokenizer_cuts_a_prompt_into_our_ids_and_starts_it(kind: str, tmp_path: Path) -> None:
    ours = with_tokenizer(tmp_path / "ours", DecoderOnlyConfig(**SMALL, norm_order="pre"), kind)
    export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    assert [theirs(text)["input_ids"] for text in TEXTS] == [[2, *ours.encode(text)] for text in TEXTS]


@torch.no_grad()
def test_prompts_of_unequal_length_are_continued_in_one_batch(tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", DecoderOnlyConfig(**SMALL, norm_order="pre"))
    export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    theirs, tokenizer = (kind.from_pretrained(tmp_path / "theirs") for kind in (AutoModelForCausalLM, AutoTokenizer))
    prompts = ["w5 w9 w4 w17", "w20"]
    given = tokenizer(prompts, padding=True, return_tensors="pt")
    written = theirs.generate(**given, max_new_tokens=6)[:, given["input_ids"].size(1) :]
    for prompt, ids in zip(prompts, written.tolist(), strict=True):
        ended = ids[: ids.index(config.tokens.end)] if config.tokens.end in ids else ids
        assert ended == greedily(network, config, None, tokenizer(prompt)["input_ids"], 6)


def test_a_text_that_ends_where_it_starts_is_given_no_start(tmp_path: Path) -> None:
    saved(tmp_path / "ours", DecoderOnlyConfig(**SMALL, norm_order="pre"), pad=3, unknown=3, start=3, end=3)
    export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    assert AutoTokenizer.from_pretrained(tmp_path / "theirs")("w5 w6")["input_ids"] == [5, 6]
    generation = json.loads((tmp_path / "theirs" / "generation_config.json").read_text())
    assert generation["bad_words_ids"] is None


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("kind", ["translator", "gpt"])
@torch.no_grad()
def test_pads_and_starts_are_never_generated(kind: str, beams: int, tmp_path: Path) -> None:
    config = Config(
        model=EncoderDecoderConfig(**SMALL) if kind == "translator" else DecoderOnlyConfig(**SMALL, norm_order="pre")
    )
    network = randomised(config.model)
    direction = torch.randn(SMALL["width"])
    norm = "decoder.layers.1.feed_forward_residual.norm.bias" if kind == "translator" else "decoder.norm.bias"
    network.get_parameter(norm).add_(direction * 5)
    network.get_parameter("output.weight")[[0, 2]] = direction  # nothing is as probable as a pad or a start
    save(tmp_path / "ours", network, config)
    export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    kinds = {"translator": AutoModelForSeq2SeqLM, "gpt": AutoModelForCausalLM}
    theirs = kinds[kind].from_pretrained(tmp_path / "theirs")
    ids = torch.tensor([[2, 5, 6]])
    assert int(network(*([ids, ids[:, :1]] if kind == "translator" else [ids]))[0, -1].argmax()) in (0, 2)
    written = theirs.generate(ids, num_beams=beams, max_new_tokens=8)[0].tolist()
    assert not {0, 2} & set(written[1 if kind == "translator" else 3 :])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_networks_of_other_precisions_become_single(dtype: torch.dtype, tmp_path: Path) -> None:
    config = Config(model=DecoderOnlyConfig(**SMALL, norm_order="pre"))
    network = randomised(config.model).to(dtype)
    save(tmp_path / "ours", network, config)
    export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "theirs")
    assert theirs.dtype == torch.float32
    ids = torch.tensor([[2, 5, 6]])
    with torch.no_grad():
        assert torch.allclose(theirs(ids).logits, network.float()(ids), atol=TOLERANCE)


def test_what_a_model_has_of_two_tokenizers_is_said_and_kept(tmp_path: Path) -> None:
    model = EncoderDecoderConfig(**SMALL, share_embeddings=False)
    files = {"tokenizer.json": words(), "target_tokenizer.json": words(prefix="p")}
    contents = {name: tokenizer.to_str().encode() for name, tokenizer in files.items()}
    save(tmp_path / "ours", randomised(model), Config(model=model), extra_files=contents)
    exported = export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    assert exported.notes == (
        "AutoTokenizer reads tokenizer.json, for sources; target_tokenizer.json is the targets'.",
    )
    import_huggingface(tmp_path / "theirs", tmp_path / "again")
    for folder in ("theirs", "again"):
        kept = Tokenizer.from_file(str(tmp_path / folder / "target_tokenizer.json"))
        assert kept.id_to_token(4) == "p4"


def test_a_special_token_that_is_meant_to_stand_in_texts_is_found_there(tmp_path: Path) -> None:
    tokenizer = words()
    tokenizer.add_special_tokens(["w28"])  # as a language code would be
    config = Config(model=EncoderDecoderConfig(**SMALL))
    files = {"tokenizer.json": tokenizer.to_str().encode()}
    save(tmp_path / "ours", randomised(config.model), config, extra_files=files)
    export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    assert AutoTokenizer.from_pretrained(tmp_path / "theirs")("w28w5")["input_ids"] == [28, 5, 3]


def test_that_a_model_has_no_tokenizer_is_said(tmp_path: Path) -> None:
    config = Config(model=EncoderDecoderConfig(**SMALL))
    save(tmp_path / "ours", randomised(config.model), config)
    exported = export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    assert exported.notes == ("The model has no tokenizer, so neither has the exported one: it is used with ids.",)
    assert {path.name for path in (tmp_path / "theirs").iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors")
    }


def test_that_a_tokenizer_cannot_end_a_text_is_said(tmp_path: Path) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**{**SMALL, "vocab_size": 40}), end=35)
    exported = export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    assert exported.notes == ("The tokenizer lacks a special token of the model, so it puts none around a text.",)


@torch.no_grad()
def test_a_marian_with_a_tokenizer_for_each_language_goes_on_to_ctranslate2_and_back(tmp_path: Path) -> None:
    source, target = (Tokenizer.from_str(words(prefix=prefix).to_str()) for prefix in "ab")
    model = EncoderDecoderConfig(**SMALL, positions=SinusoidalPositionsConfig(layout="halves"), attention_bias=True)
    files = {"tokenizer.json": source.to_str().encode(), "target_tokenizer.json": target.to_str().encode()}
    network, config = randomised(model), Config(model=model)
    save(tmp_path / "ours", network, config, extra_files=files)
    export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    import_huggingface(tmp_path / "theirs", tmp_path / "again")
    export_ctranslate2(tmp_path / "again", tmp_path / "ct2")
    pieces = Tokenizer.from_file(str(tmp_path / "ct2" / "tokenizer.json")).encode("a5 a9", add_special_tokens=False)
    theirs = Translator(str(tmp_path / "ct2"), intra_threads=1)
    (result,) = theirs.translate_batch([pieces.tokens], beam_size=1, min_decoding_length=0, max_decoding_length=9)
    expected = greedily(network, config, [5, 9], [config.tokens.start], 9)
    assert result.hypotheses[0] == [target.id_to_token(number) for number in expected]


PRE: dict[str, Any] = {**SMALL, "norm_order": "pre"}
NORMED: dict[str, Any] = {**SMALL, "embedding_norm": True}
TO_CTRANSLATE2, NOWHERE = "export it to ctranslate2", "use it with regard itself"
REFUSED: dict[str, tuple[ModelConfig, str]] = {
    "Marian normalises after each sub-layer, and this network before": (EncoderDecoderConfig(**PRE), TO_CTRANSLATE2),
    "Marian has layer norms, and this network has RMS norms": (
        EncoderDecoderConfig(**SMALL, norm="rms"),
        TO_CTRANSLATE2,
    ),
    "Marian has layer norms, and this network has none": (EncoderDecoderConfig(**SMALL, norm="none"), NOWHERE),
    "Marian has feed-forward layers, and this network has none": (
        EncoderDecoderConfig(**{**SMALL, "feed_forward": 0}),
        NOWHERE,
    ),
    "Marian has no gates, and this network's activation is swiglu": (
        EncoderDecoderConfig(**SMALL, activation="swiglu"),
        TO_CTRANSLATE2,
    ),
    "Marian has full attention, and this network's is linformer": (
        EncoderDecoderConfig(**SMALL, attention=LinformerAttentionConfig()),
        NOWHERE,
    ),
    "GPT-2 has full attention, and this network's is window": (
        DecoderOnlyConfig(**PRE, attention=WindowAttentionConfig()),
        NOWHERE,
    ),
    "Marian has residual connections, and this network has none": (
        EncoderDecoderConfig(**SMALL, residual=False),
        NOWHERE,
    ),
    "Marian cannot look ahead, and this network's decoder does": (
        EncoderDecoderConfig(**SMALL, causal_mask=False),
        NOWHERE,
    ),
    "Marian has no keys that are wider than values, as this network's are": (
        EncoderDecoderConfig(**SMALL, key_width=7),
        TO_CTRANSLATE2,
    ),
    "the epsilon of Marian's norms is 1e-05, and of this network's 0.1": (
        EncoderDecoderConfig(**SMALL, norm_epsilon=0.1),
        TO_CTRANSLATE2,
    ),
    "Marian does not normalise embeddings, and this network does": (EncoderDecoderConfig(**NORMED), TO_CTRANSLATE2),
    "Marian's positions are sinusoidal, and this network's are learned": (
        EncoderDecoderConfig(**SMALL, positions=LearnedPositionsConfig()),
        TO_CTRANSLATE2,
    ),
    "Marian adds positions to embeddings, and this network's are relative": (
        EncoderDecoderConfig(**SMALL, positions=RelativePositionsConfig()),
        TO_CTRANSLATE2,
    ),
    "GPT-2 adds positions to embeddings, and this network's are rotary": (
        DecoderOnlyConfig(**PRE, positions=RotaryPositionsConfig()),
        TO_CTRANSLATE2,
    ),
    "BERT adds positions to embeddings, and this network's are alibi": (
        EncoderOnlyConfig(**NORMED, positions=AlibiPositionsConfig()),
        NOWHERE,
    ),
    "its pad, start or end token is past the last token of a vocabulary": (
        EncoderDecoderConfig(**SMALL, share_embeddings=False, target_vocab_size=3),
        NOWHERE,
    ),
    "GPT-2 normalises before each sub-layer, and this network after": (DecoderOnlyConfig(**SMALL), TO_CTRANSLATE2),
    "GPT-2 does not normalise embeddings, and this network does": (
        DecoderOnlyConfig(**PRE, embedding_norm=True),
        TO_CTRANSLATE2,
    ),
    "GPT-2 has no bias on its logits, and this network has": (
        DecoderOnlyConfig(**PRE, output_bias=True),
        TO_CTRANSLATE2,
    ),
    "GPT-2 cannot look ahead, and this network's decoder does": (DecoderOnlyConfig(**PRE, causal_mask=False), NOWHERE),
    "BERT normalises after each sub-layer, and this network before": (
        EncoderOnlyConfig(**NORMED, norm_order="pre"),
        NOWHERE,
    ),
    "BERT normalises embeddings, and this network does not": (EncoderOnlyConfig(**SMALL), NOWHERE),
    "BERT's head has the activation of its layers, relu, and this network's gelu": (
        EncoderOnlyConfig(**NORMED, head=TokenHeadConfig()),
        NOWHERE,
    ),
    "BERT's head has the norm_epsilon of its layers, 1e-05, and this network's 0.1": (
        EncoderOnlyConfig(**NORMED, activation="gelu", head=TokenHeadConfig(norm_epsilon=0.1)),
        NOWHERE,
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_their_classes_cannot_hold_is_refused_before_anything_is_written(reason: str, tmp_path: Path) -> None:
    model, instead = REFUSED[reason]
    saved(tmp_path / "ours", model)
    with pytest.raises(ModelError) as refused:
        export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    assert str(refused.value) == (
        f"{tmp_path / 'ours'}: cannot be exported to Hugging Face, because {reason}; {instead}."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_nothing_is_left_where_writing_fails_halfway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ModelError) as failed:
        export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    assert str(failed.value) == (
        f"{tmp_path / 'theirs'}: cannot be written (No space left on device); free some space."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))
    (tmp_path / "theirs").mkdir()
    with pytest.raises(ModelError) as refused:
        export_huggingface(tmp_path / "ours", tmp_path / "theirs")
    assert str(refused.value) == f"{tmp_path / 'theirs'}: already exists; choose another name or remove it first."
