"""Import of T5 (also T5 1.1 and Flan-T5): RMS pre-norms, no biases, bucketed relative positions, unscaled scores.

The original T5 has ReLU and one embedding matrix, whose logits are divided by √C; later ones have gates of GELU and an
output projection of their own. Our feed-forward layers with ReLU have biases, which are zero here.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, processors

from regard.config import BucketPositionsConfig, EncoderDecoderConfig, SpecialTokensConfig
from regard.interop.hf_folder import HFConfig, HFWeights, read_weights
from regard.interop.hf_spec import (
    STACKED,
    ImportPlan,
    TensorMapping,
    read_activation,
    same_tensor,
    token_or_default,
    with_prefixes,
)
from regard.interop.hf_tokenizers import ImportedTokenizers, copy_tokenizers, make_tokenizer, no_tokenizers
from regard.interop.marian_tokenizer import unigram_tokenizer
from regard.interop.sentencepiece import SentencePieceModel, read_sentencepiece
from regard.models.folder_files import TOKENIZER_FILE

T5_EMBEDDING, T5_OUTPUT = "shared.weight", "lm_head.weight"
T5_BUFFERS = r"(en|de)coder\.embed_tokens\.weight"
GATED = {"gelu-tanh": "geglu-tanh", "gelu": "geglu", "swish": "swiglu"}
NAMES = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
ADDED_TOKENS = 100  # <extra_id_0> to <extra_id_99>, the last with the lowest id


def t5_mappings(model: EncoderDecoderConfig) -> list[TensorMapping]:
    """Map our tensors to those of a `T5ForConditionalGeneration`.

    >>> [entry.hf_names[0] for entry in t5_mappings(EncoderDecoderConfig(layers=1))[1:3]]
    ['encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight', 'encoder.final_layer_norm.weight']
    """
    stacks = {"encoder": model.layers, "decoder": model.decoder_layers or model.layers}
    entries = [TensorMapping("encoder.embedding.weight", (T5_EMBEDDING,))]
    for stack in stacks:
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        entries.append(TensorMapping(f"{stack}.embedding.positions.weight", (bias,)))
        entries.append(TensorMapping(f"{stack}.norm.weight", (f"{stack}.final_layer_norm.weight",)))
    return [
        *entries,
        *(
            entry
            for stack, layers in stacks.items()
            for n in range(layers)
            for entry in with_prefixes(_layer(stack, model), f"{stack}.layers.{n}.", f"{stack}.block.{n}.layer.")
        ),
        TensorMapping("output.weight", (T5_OUTPUT,)),
    ]


def _layer(stack: str, model: EncoderDecoderConfig) -> Iterator[TensorMapping]:
    own, cross, last = "0.SelfAttention", "1.EncDecAttention", 1 if stack == "encoder" else 2
    yield TensorMapping("attention_residual.norm.weight", ("0.layer_norm.weight",))
    yield TensorMapping("attention.query_key_value.weight", tuple(f"{own}.{name}.weight" for name in "qkv"), STACKED)
    yield TensorMapping("attention.output.weight", (f"{own}.o.weight",))
    if stack == "decoder":
        yield TensorMapping("cross_attention_residual.norm.weight", ("1.layer_norm.weight",))
        yield TensorMapping("cross_attention.query.weight", (f"{cross}.q.weight",))
        yield TensorMapping("cross_attention.key_value.weight", (f"{cross}.k.weight", f"{cross}.v.weight"), STACKED)
        yield TensorMapping("cross_attention.output.weight", (f"{cross}.o.weight",))
    dense = f"{last}.DenseReluDense"
    yield TensorMapping("feed_forward_residual.norm.weight", (f"{last}.layer_norm.weight",))
    if model.activation in GATED.values():
        names = (f"{dense}.wi_0.weight", f"{dense}.wi_1.weight")
        yield TensorMapping("feed_forward.inner.weight", names, STACKED)
    else:
        yield TensorMapping("feed_forward.inner.weight", (f"{dense}.wi.weight",))
        yield TensorMapping("feed_forward.inner.bias", (f"{dense}.wi.bias",))
        yield TensorMapping("feed_forward.output.bias", (f"{dense}.wo.bias",))
    yield TensorMapping("feed_forward.output.weight", (f"{dense}.wo.weight",))


def import_t5(folder: Path, config: HFConfig) -> ImportPlan:
    """Plan the import of a folder of a T5 class."""
    vocab_size, width = config.size("vocab_size", 32128), config.size("d_model", 512)
    layers = config.layers("num_layers", 6)
    decoder_layers = layers if config.get("num_decoder_layers") is None else config.layers("num_decoder_layers", layers)
    weights, notes = read_weights(folder, ""), list[str]()
    model = EncoderDecoderConfig(
        vocab_size=vocab_size,
        width=width,
        layers=layers,
        decoder_layers=None if decoder_layers == layers else decoder_layers,
        value_width=config.size("d_kv", 64),
        heads=config.size("num_heads", 8),
        feed_forward=config.size("d_ff", 2048),
        activation=_activation(config),
        norm="rms",
        norm_order="pre",
        norm_epsilon=config.epsilon("layer_norm_epsilon", 1e-6),
        positions=BucketPositionsConfig(
            buckets=config.size("relative_attention_num_buckets", 32),
            max_distance=config.size("relative_attention_max_distance", 128, maximum=2**16),
        ),
        dropout=config.probability("dropout_rate", 0.1),
        scale_embeddings=False,
        scale_scores=False,
        tie_output=False,
    )
    _complete(weights, model, config)
    tokenizers = _tokenizer(folder)
    pad = token_or_default(config.token("pad_token_id", 0, vocab_size), 0, "the padding token", notes)
    end = token_or_default(config.token("eos_token_id", 1, vocab_size), 1, "the end token", notes)
    unknown, start = tokenizers.id_of("<unk>"), config.token("decoder_start_token_id", None, vocab_size)
    tokens = SpecialTokensConfig(
        pad=pad, unknown=pad if unknown is None else unknown, start=pad if start is None else start, end=end
    )
    return ImportPlan(model, tokens, t5_mappings(model), weights, tokenizers, T5_BUFFERS, {}, notes)


def _activation(config: HFConfig) -> Any:
    gated, _, name = str(config.get("feed_forward_proj", "relu")).rpartition("-")
    name = "gelu_new" if (gated, name) == ("gated", "gelu") else name  # what the class means by it
    activation = read_activation(HFConfig(config.path, {"feed_forward_proj": name}), "feed_forward_proj", "relu")
    if not gated:
        return activation
    if gated != "gated" or activation not in GATED:
        raise config.error("feed_forward_proj", "cannot be imported; regard has gates of gelu and silu")
    return GATED[activation]


def _complete(weights: HFWeights, model: EncoderDecoderConfig, config: HFConfig) -> None:
    """Add the output projection under its name, scaled as the config says, and biases of zeros."""
    tensors = weights.tensors
    shared = tensors.get(T5_EMBEDDING, tensors.get("encoder.embed_tokens.weight"))
    if shared is None:
        return  # the check of tensors names it
    tensors[T5_EMBEDDING] = shared
    output = tensors.get(T5_OUTPUT, shared)
    is_scaled = config.flag("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
    factor = model.width**-0.5 if is_scaled else 1.0
    tensors[T5_OUTPUT] = output.float() * factor if is_scaled or same_tensor(output, shared) else output
    for entry in t5_mappings(model):
        if entry.name.endswith(".bias"):
            rows = model.width if ".output." in entry.name else model.feed_forward
            tensors.setdefault(entry.hf_names[0], torch.zeros(rows))


def _tokenizer(folder: Path) -> ImportedTokenizers:
    existing = copy_tokenizers(folder, TOKENIZER_FILE)
    path = folder / "spiece.model"
    if existing.by_file or not path.exists():
        return existing if existing.by_file else no_tokenizers()
    tokenizer = make_tokenizer(path, partial(t5_tokenizer, read_sentencepiece(path)))
    return ImportedTokenizers({TOKENIZER_FILE: tokenizer})


def t5_tokenizer(model: SentencePieceModel) -> Tokenizer:
    """Return the tokenizer of a unigram model: ids are the numbers of pieces, and those of masked spans follow."""
    if model.algorithm != "unigram":
        raise ValueError(f"it is a {model.algorithm} model, and T5 has a unigram model")
    tokenizer = unigram_tokenizer(model, {piece.text: number for number, piece in enumerate(model.pieces)}, NAMES)
    spans = [f"<extra_id_{number}>" for number in reversed(range(ADDED_TOKENS))]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in spans])
    end = tokenizer.token_to_id("</s>")
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", None, [("</s>", end)])
    return tokenizer
