"""Import of multilingual translators: M2M100, NLLB (both `m2m_100`) and mBART.

They are the paper's encoder-decoder with pre-norms, biases and a final norm. M2M100 adds sinusoids whose wavelengths
grow in one step fewer than the paper's, so that they are stored as a table; mBART adds learned positions and normalizes
the embeddings.

The tokenizer is `tokenizer.json`, or built from a SentencePiece model. M2M100 has its ids in `vocab.json` and splits
texts by a BPE model, whose merges follow from its pieces: two neighbors are merged if their concatenation is a piece,
the most probable piece first. mBART has the unigram model of XLM-RoBERTa, where the id of a piece is its number plus
one, and language tokens after all pieces.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, processors
from tokenizers.models import BPE
from torch import Tensor

from regard.config import EncoderDecoderConfig, LanguagesConfig, LearnedPositionsConfig, SpecialTokensConfig
from regard.errors import ModelError
from regard.interop.hf_folder import HFConfig, HFWeights, read_weights
from regard.interop.hf_spec import (
    SINGLE_ROW,
    ImportPlan,
    TensorMapping,
    map_module,
    read_activation,
    token_or_default,
)
from regard.interop.hf_tokenizers import (
    TOKENIZER_CONFIG_FILE,
    ImportedTokenizers,
    copy_tokenizers,
    make_tokenizer,
    no_tokenizers,
    read_vocabulary,
)
from regard.interop.marian import (
    MARIAN_BIAS,
    MARIAN_DECODER_LAYER,
    MARIAN_ENCODER_LAYER,
    MARIAN_OUTPUT,
    MARIAN_SHARED,
    MARIAN_SOURCE,
    MARIAN_TARGET,
    layer_mappings,
    require_equal_stacks,
    resolve_embeddings,
)
from regard.interop.marian_tokenizer import make_normalizer, unigram_tokenizer
from regard.interop.sentencepiece import SentencePieceModel, bpe_merges, is_matchable, read_sentencepiece
from regard.models.folder_files import TOKENIZER_FILE, read_optional_json

POSITION_OFFSET = 2  # of the first position id, after those of padding
STACKS = ("encoder", "decoder")
BUFFERS = r"model\.(en|de)coder\.embed_positions\.weights?"
PIECES_FILE = "sentencepiece.bpe.model"
LANGUAGE_PATTERNS = (
    r"([a-z]{3}_[A-Z][a-z]{3})",
    r"([a-z]{2,3}_[A-Z]{2,3})",
    r"__([a-z]{2,3})__",
)  # NLLB, mBART, M2M100
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
M2M100_LANGUAGES = (
    "af", "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca", "ceb", "cs", "cy", "da", "de", "el",
    "en", "es", "et", "fa", "ff", "fi", "fr", "fy", "ga", "gd", "gl", "gu", "ha", "he", "hi", "hr", "ht", "hu",
    "hy", "id", "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk", "km", "kn", "ko", "lb", "lg", "ln", "lo", "lt",
    "lv", "mg", "mk", "ml", "mn", "mr", "ms", "my", "ne", "nl", "no", "ns", "oc", "or", "pa", "pl", "ps", "pt",
    "ro", "ru", "sd", "si", "sk", "sl", "so", "sq", "sr", "ss", "su", "sv", "sw", "ta", "th", "tl", "tn", "tr",
    "uk", "ur", "uz", "vi", "wo", "xh", "yi", "yo", "zh", "zu",
)  # fmt: skip
MBART50_LANGUAGES = (
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX",
    "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN",
    "zh_CN", "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK", "ml_IN",
    "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN", "th_TH", "tl_XX", "uk_UA",
    "ur_PK", "xh_ZA", "gl_ES", "sl_SI",
)  # fmt: skip


def m2m100_mappings(model: EncoderDecoderConfig) -> list[TensorMapping]:
    """Map our tensors to those of an `M2M100ForConditionalGeneration` or `MBartForConditionalGeneration`.

    >>> [entry.hf_names for entry in m2m100_mappings(EncoderDecoderConfig(layers=1))[:2]]
    [('model.shared.weight',), ('model.encoder.embed_positions.weight',)]
    """
    shared = [TensorMapping("encoder.embedding.weight", (MARIAN_SHARED,))]
    separate = [
        TensorMapping("encoder.embedding.weight", (MARIAN_SOURCE,)),
        TensorMapping("decoder.embedding.weight", (MARIAN_TARGET,)),
    ]
    return [
        *(shared if model.share_embeddings else separate),
        *(
            TensorMapping(f"{stack}.embedding.positions.weight", (f"model.{stack}.embed_positions.weight",))
            for stack in STACKS
        ),
        *(
            entry
            for stack in STACKS
            if model.embedding_norm
            for entry in map_module(f"{stack}.embedding.norm", f"model.{stack}.layernorm_embedding")
        ),
        *layer_mappings("encoder", MARIAN_ENCODER_LAYER, model.layers),
        *layer_mappings("decoder", MARIAN_DECODER_LAYER, model.decoder_layers or model.layers),
        *(entry for stack in STACKS for entry in map_module(f"{stack}.norm", f"model.{stack}.layer_norm")),
        *([] if model.tie_output else [TensorMapping("output.weight", (MARIAN_OUTPUT,))]),
        *([TensorMapping("output.bias", (MARIAN_BIAS,), SINGLE_ROW)] if model.output_bias else []),
    ]


def import_m2m100(folder: Path, config: HFConfig) -> ImportPlan:
    """Plan the import of a folder of a class with language tokens."""
    is_mbart = config.get("model_type") == "mbart"
    config.require("is_encoder_decoder", True, "translator has an encoder and a decoder")
    require_equal_stacks(config)
    vocab_size, width = config.size("vocab_size", 50265 if is_mbart else 128112), config.size("d_model", 1024)
    layers, decoder_layers = config.layers("encoder_layers", 12), config.layers("decoder_layers", 12)
    weights, notes = read_weights(folder, "model.", (MARIAN_OUTPUT, MARIAN_BIAS)), list[str]()
    share_embeddings, tie_output = resolve_embeddings(config, weights, notes)
    length = config.size("max_position_embeddings", 1024)
    _add_positions(weights, None if is_mbart else m2m100_positions(length, width))
    model = EncoderDecoderConfig(
        vocab_size=vocab_size,
        width=width,
        layers=layers,
        heads=config.heads("encoder_attention_heads", 16, "d_model", width),
        feed_forward=config.size("encoder_ffn_dim", 4096),
        activation=read_activation(config, "activation_function", "gelu" if is_mbart else "relu"),
        norm_order="pre",
        embedding_norm=is_mbart,
        positions=LearnedPositionsConfig(max_length=length),
        dropout=config.probability("dropout", 0.1),
        attention_dropout=config.probability("attention_dropout", 0.0 if is_mbart else 0.1),
        activation_dropout=config.probability("activation_dropout", 0.0),
        attention_bias=True,
        scale_embeddings=config.flag("scale_embedding", not is_mbart),
        tie_output=tie_output,
        output_bias=_has_output_bias(weights),
        decoder_layers=None if decoder_layers == layers else decoder_layers,
        share_embeddings=share_embeddings,
    )
    tokenizers = multilingual_tokenizer(folder, vocab_size)
    pad = token_or_default(config.token("pad_token_id", 1, vocab_size), 1, "the padding token", notes)
    end = token_or_default(config.token("eos_token_id", 2, vocab_size), 2, "the end token", notes)
    unknown, start = tokenizers.id_of("<unk>"), config.token("decoder_start_token_id", 2, vocab_size)
    tokens = SpecialTokensConfig(
        pad=pad, unknown=pad if unknown is None else unknown, start=end if start is None else start, end=end
    )
    languages = LanguagesConfig()
    if (tokenizer := tokenizers.by_file.get(TOKENIZER_FILE)) is not None:
        languages = find_languages(tokenizer.get_vocab(), vocab_size)
        if not languages.codes:
            notes.append("The tokenizer has no language tokens; the model translates without them.")
    unused = {MARIAN_SHARED: "encoder and decoder have separate embeddings"}
    return ImportPlan(
        model, tokens, m2m100_mappings(model), weights, tokenizers, BUFFERS, unused, notes, languages=languages
    )


def find_languages(vocabulary: dict[str, int], vocab_size: int) -> LanguagesConfig:
    """Return the language tokens of a vocabulary, by their codes.

    >>> find_languages({"hello": 5, "__en__": 7, "__it__": 6}, 8)
    LanguagesConfig(codes=('it', 'en'), tokens=(6, 7))
    """
    for pattern in LANGUAGE_PATTERNS:
        found = {
            number: match[1]
            for token, number in vocabulary.items()
            if (match := re.fullmatch(pattern, token)) is not None
        }
        if len(found) > 1:
            ordered = {number: found[number] for number in sorted(found) if number < vocab_size}
            return LanguagesConfig(codes=tuple(ordered.values()), tokens=tuple(ordered))
    return LanguagesConfig()


def _add_positions(weights: HFWeights, table: Tensor | None) -> None:
    """Store the table of each stack under its name: a computed one, or the learned one without unused rows."""
    for stack in STACKS:
        name = f"model.{stack}.embed_positions.weight"
        if table is not None:
            weights.tensors[name] = table
        elif name in weights.tensors:
            weights.tensors[name] = weights.tensors[name][POSITION_OFFSET:].clone()


def _has_output_bias(weights: HFWeights) -> bool:
    """Return whether the logits have a bias, and remove one of zeros."""
    bias = weights.tensors.get(MARIAN_BIAS)
    if bias is not None and not bias.any():
        del weights.tensors[MARIAN_BIAS]
        return False
    return bias is not None


def m2m100_positions(length: int, width: int) -> Tensor:
    """Return M2M100's sinusoids (length, width): all sines, then all cosines, with wavelengths 10000^(i / (C/2 − 1)).

    >>> m2m100_positions(1, 4)[0, 0].item() == math.sin(2)  # the first position has the number 2
    True
    """
    half = width // 2
    frequency = torch.exp(torch.arange(half, dtype=torch.float64) * -(math.log(10_000) / max(1, half - 1)))
    angle = torch.arange(POSITION_OFFSET, POSITION_OFFSET + length, dtype=torch.float64)[:, None] * frequency
    table = torch.cat([angle.sin(), angle.cos()], dim=1)
    return torch.cat([table, table.new_zeros(length, width - 2 * half)], dim=1)


def multilingual_tokenizer(folder: Path, vocab_size: int) -> ImportedTokenizers:
    """Return the tokenizer of a folder, with language tokens."""
    existing = copy_tokenizers(folder, TOKENIZER_FILE)
    if existing.by_file:
        return existing
    path = folder / PIECES_FILE
    if not path.exists():
        return no_tokenizers()
    kind = read_optional_json(folder / TOKENIZER_CONFIG_FILE).get("tokenizer_class")
    model = read_sentencepiece(path)
    if (folder / "vocab.json").exists():
        ids = read_vocabulary(folder / "vocab.json")
        tokenizer = make_tokenizer(path, lambda: _m2m100(model, ids, path))
    elif kind in ("MBart50Tokenizer", "MBart50TokenizerFast"):
        tokenizer = make_tokenizer(path, lambda: _mbart50(model, path))
    else:
        return no_tokenizers(f"The folder's tokenizer is a {kind}, which regard cannot build")
    return ImportedTokenizers({TOKENIZER_FILE: tokenizer})


def _m2m100(model: SentencePieceModel, ids: Mapping[str, int], path: Path) -> Tokenizer:
    if model.algorithm != "bpe":
        raise ModelError(f"{path}: is a {model.algorithm} model, and M2M100 has a bpe model; copy it again.")
    scores = {piece.text: piece.score for piece in model.pieces if is_matchable(piece) and piece.text in ids}
    tokenizer = Tokenizer(BPE(dict(ids), list(bpe_merges(scores)), unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = make_normalizer(model, {character for text in scores for character in text}, set())
    tokenizer.decoder = decoders.Metaspace()
    start = max(ids.values()) + 1
    return _with_special_tokens(tokenizer, {f"__{code}__": start + n for n, code in enumerate(M2M100_LANGUAGES)})


def _mbart50(model: SentencePieceModel, path: Path) -> Tokenizer:
    if model.algorithm != "unigram":
        raise ModelError(f"{path}: is a {model.algorithm} model, and mBART has a unigram model; copy it again.")
    ids = {text: number for number, text in enumerate(SPECIAL_TOKENS)}
    ids |= {piece.text: number + 1 for number, piece in enumerate(model.pieces) if number >= 3}
    tokenizer = unigram_tokenizer(model, ids, NAMES)
    start = len(model.pieces) + 1
    return _with_special_tokens(tokenizer, {code: start + n for n, code in enumerate(MBART50_LANGUAGES)})


def _with_special_tokens(tokenizer: Tokenizer, languages: Mapping[str, int]) -> Tokenizer:
    """Add special tokens and then languages, which have these ids; a text ends with the end token."""
    names = [*SPECIAL_TOKENS, *sorted(languages, key=languages.__getitem__)]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names])
    wrong = next((name for name, number in languages.items() if tokenizer.token_to_id(name) != number), None)
    if wrong is not None:
        raise ValueError(f"the id {languages[wrong]} of the language token {wrong} is not free")
    end = tokenizer.token_to_id("</s>")
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", None, [("</s>", end)])
    return tokenizer
