"""Imported multilingual translators compute what transformers computes, and one model translates several pairs."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    logging,
)

import regard
from regard.interop import import_huggingface
from regard.models import load_network

logging.set_verbosity_error()
logging.disable_progress_bar()

TOLERANCE = 1e-4
FAMILIES: dict[str, tuple[Any, Any]] = {
    "m2m_100": (M2M100Config, M2M100ForConditionalGeneration),
    "mbart": (MBartConfig, MBartForConditionalGeneration),
}


def random_model(family: str, seed: int, **settings: Any) -> Any:
    draw = random.Random(f"{family} {seed}")
    config_class, model_class = FAMILIES[family]
    heads = draw.choice([1, 2, 3])
    chosen: dict[str, Any] = {
        "vocab_size": draw.randint(11, 40),
        "d_model": heads * draw.choice([4, 6]),
        "encoder_layers": 2,
        "decoder_layers": draw.choice([1, 2]),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": 12,
        "decoder_ffn_dim": 12,
        "max_position_embeddings": 20,
        "scale_embedding": draw.choice([True, False]),
        "activation_function": draw.choice(["relu", "gelu"]),
    }
    torch.manual_seed(seed)
    model = model_class(config_class(**chosen | settings)).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(float("norm.weight" in name) + 0.3 * torch.randn_like(tensor))
        if family == "mbart":
            model.final_logits_bias.normal_()
    return model


def padded(vocab_size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ids (3, 9) with padding (id 1) on the right, and their token mask."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(9) < torch.tensor([[9], [4], [1]])
    return torch.randint(4, vocab_size, (3, 9), generator=generator).masked_fill(~mask, 1), mask


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logits_equal_transformers(family: str, seed: int, tmp_path: Path) -> None:
    model = random_model(family, seed)
    model.save_pretrained(tmp_path / "original")
    report = import_huggingface(tmp_path / "original", tmp_path / "ours")
    assert (report.kind, report.skipped) == (family, ())
    network = load_network(tmp_path / "ours").network
    (source, source_mask), (target, target_mask) = (padded(model.config.vocab_size, seed + n) for n in range(2))
    expected = model(input_ids=source, attention_mask=source_mask.long(), decoder_input_ids=target).logits
    memory = network.encode(source, source_mask)
    actual = network.logits(network.decode(target, memory, mask=target_mask))
    torch.testing.assert_close(actual[target_mask], expected[target_mask], atol=TOLERANCE, rtol=TOLERANCE)
    cache = network.new_cache()
    steps = [network.logits(network.decode(step, memory, cache)) for step in target.split([4, *[1] * 5], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1)[:1], expected[:1], atol=TOLERANCE, rtol=TOLERANCE)


TEXTS = ["The cat sat on the mat.", "Il gatto è  seduto sul tappeto!", "dove, perché — 1987", " x ", "日本 ß", ""]


def train_pieces(folder: Path, kind: str) -> None:
    """Write a SentencePiece model with XLM-RoBERTa's special pieces."""
    import sentencepiece

    with (folder / "sentencepiece.bpe.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*TEXTS[:3], "the cat and the mat", "il gatto e il tappeto", "perché no?"] * 3),
            model_writer=file,
            vocab_size=90,
            model_type=kind,
            unk_id=0,
            bos_id=1,
            eos_id=2,
            minloglevel=2,
            hard_vocab_limit=False,
        )


def test_the_tokenizer_of_m2m100_is_built_from_its_files(tmp_path: Path) -> None:
    import sentencepiece
    from transformers import M2M100Tokenizer

    train_pieces(tmp_path, "bpe")
    pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / "sentencepiece.bpe.model"))
    names = ["<s>", "<pad>", "</s>", "<unk>", *(pieces.id_to_piece(n) for n in range(3, len(pieces)))]
    (tmp_path / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate(names)}), "utf-8")
    theirs = M2M100Tokenizer(
        str(tmp_path / "vocab.json"), str(tmp_path / "sentencepiece.bpe.model"), src_lang="en", tgt_lang="it"
    )
    model = random_model("m2m_100", 0, vocab_size=len(names) + 108)
    model.save_pretrained(tmp_path)
    import_huggingface(tmp_path, tmp_path / "ours")
    loaded = regard.load(tmp_path / "ours")
    languages = loaded.config.languages
    assert len(languages.codes) == 100
    for code in ("en", "it", "zu"):
        assert languages.tokens[languages.codes.index(code)] == theirs.get_lang_id(code)
    for text in TEXTS:
        assert [theirs.get_lang_id("en"), *loaded.tokenizer.encode(text), 2] == theirs(text).input_ids, text
    ids = loaded.tokenizer.encode(TEXTS[1])
    assert loaded.tokenizer.decode([*ids, 2]) == theirs.decode(ids, skip_special_tokens=True)
    assert loaded.translate("The cat", source_language="en", target_language="it", max_tokens=5) is not None


def test_the_tokenizer_of_mbart_is_built_from_its_file(tmp_path: Path) -> None:
    import sentencepiece

    train_pieces(tmp_path, "unigram")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "MBart50Tokenizer"}', "utf-8")
    pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / "sentencepiece.bpe.model"))
    model = random_model("mbart", 0, vocab_size=len(pieces) + 54)
    model.save_pretrained(tmp_path)
    report = import_huggingface(tmp_path, tmp_path / "ours")
    assert not report.notes
    loaded = regard.load(tmp_path / "ours")
    languages = loaded.config.languages
    assert dict(zip(languages.codes, languages.tokens, strict=True))["ar_AR"] == len(pieces) + 1
    assert len(languages.codes) == 52
    for text in TEXTS:  # the id of a piece is its number plus one, and 3 for an unknown character
        assert loaded.tokenizer.encode(text) == [number + 1 if number > 0 else 3 for number in pieces.encode(text)]
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "MBartTokenizer"}', "utf-8")
    report = import_huggingface(tmp_path, tmp_path / "again")
    assert "The folder's tokenizer is a MBartTokenizer, which regard cannot build" in report.notes[0]
