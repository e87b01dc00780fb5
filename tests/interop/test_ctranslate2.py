"""Converted networks compute the same in CTranslate2, for all settings, and run without regard."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from tokenizers import Tokenizer

from random_models import SMALL, VOCABULARY, greedy_decode, log_probabilities, random_network, saved, sources, words
from regard.config import (
    AlibiPositionsConfig,
    BigBirdAttentionConfig,
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    ModelConfig,
    NoPositionsConfig,
    RecurrentLanguageModelConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
    SpecialTokensConfig,
    YarnScalingConfig,
)
from regard.decoding.engines import choose_engine
from regard.errors import ModelError
from regard.interop.ctranslate2 import export_ctranslate2
from regard.interop.exporters import unsupported_reason
from regard.models import Network, save
from regard.nn import open_taps
from regard.registry import Precision

MAX_LENGTH = 12
VARIANTS: dict[str, dict[str, Any]] = {
    "the paper": {},
    "pre-norm": {"norm_order": "pre"},
    "RMS post-norm": {"norm": "rms"},
    "pre-norm, RMS, SwiGLU": {"norm_order": "pre", "norm": "rms", "activation": "swiglu"},
    "SwiGLU": {"activation": "swiglu"},
    "GELU": {"activation": "gelu"},
    "GELU with tanh": {"activation": "gelu-tanh"},
    "swish": {"activation": "swish"},
    "biases": {"attention_bias": True, "output_bias": True},
    "untied output": {"tie_output": False},
    "unscaled embeddings": {"scale_embeddings": False},
    "normalized embeddings": {"embedding_norm": True},
    "large epsilon": {"norm_epsilon": 0.1},
    "RMS and large epsilon": {"norm_epsilon": 0.1, "norm": "rms", "norm_order": "pre"},
    "learned positions": {"positions": LearnedPositionsConfig(max_length=20)},
    "sinusoids in halves": {"positions": SinusoidalPositionsConfig(layout="halves")},
    "no positions": {"positions": NoPositionsConfig()},
    "unscaled scores": {"scale_scores": False, "attention_bias": True},
    "narrow keys": {"key_width": 2, "attention_bias": True},
    "wide keys": {"key_width": 11, "attention_bias": True},
    "narrow keys, unscaled scores": {"key_width": 5, "scale_scores": False},
    "relative positions": {"positions": RelativePositionsConfig(max_distance=3)},
    "relative positions, narrow keys": {"positions": RelativePositionsConfig(max_distance=2), "key_width": 3},
    "relative positions, wide keys, unscaled scores": {
        "positions": RelativePositionsConfig(max_distance=16),
        "key_width": 11,
        "scale_scores": False,
    },
    "grouped heads": {"kv_heads": 2, "attention_bias": True},
    "grouped heads, narrow keys": {"kv_heads": 2, "key_width": 3},
    "multi-query, relative positions": {"kv_heads": 1, "positions": RelativePositionsConfig(max_distance=3)},
    "norms without gain and bias": {"norm_affine": False},
    "RMS pre-norms without gain": {"norm_affine": False, "norm": "rms", "norm_order": "pre", "embedding_norm": True},
    "concatenated sinusoids": {
        "positions": SinusoidalPositionsConfig(combine="concatenate", width=5),
        "tie_output": False,
    },
    "concatenated learned positions, unscaled embeddings": {
        "positions": LearnedPositionsConfig(max_length=40, combine="concatenate"),
        "tie_output": False,
        "scale_embeddings": False,
    },
    "odd heads": {"width": 21, "heads": 3},
    "one head": {"heads": 1},
    "odd hidden units": {"feed_forward": 7},
}
TRANSLATORS: dict[str, dict[str, Any]] = VARIANTS | {
    "shallow decoder": {"layers": 3, "decoder_layers": 1},
    "separate embeddings": {"share_embeddings": False},
    "separate vocabularies": {"share_embeddings": False, "target_vocab_size": VOCABULARY + 6},
    "everything separate": {
        "share_embeddings": False,
        "target_vocab_size": 17,
        "tie_output": False,
        "output_bias": True,
    },
}

GPTS: dict[str, dict[str, Any]] = VARIANTS | {
    "rotary": {"positions": RotaryPositionsConfig()},
    "rotary in halves": {"positions": RotaryPositionsConfig(layout="halves", base=50.0)},
    "rotary, narrow keys": {"positions": RotaryPositionsConfig(), "key_width": 2},
    "rotary in halves, wide keys": {"positions": RotaryPositionsConfig(layout="halves"), "key_width": 10},
    "rotary, unscaled scores": {"positions": RotaryPositionsConfig(), "scale_scores": False, "attention_bias": True},
    "rotary, grouped heads": {"positions": RotaryPositionsConfig(), "kv_heads": 2},
    "rotary in halves, multi-query": {"positions": RotaryPositionsConfig(layout="halves"), "kv_heads": 1},
    "rotary, linear scaling": {"positions": RotaryPositionsConfig(scaling=LinearScalingConfig(factor=3.0))},
    "rotary, Llama 3 scaling": {
        "positions": RotaryPositionsConfig(
            layout="halves", base=20.0, scaling=Llama3ScalingConfig(factor=3.0, original_length=24, high_turns=2.0)
        ),
        "value_width": 10,
    },
    "wide heads, grouped, no output bias": {
        "positions": RotaryPositionsConfig(layout="halves"),
        "value_width": 8,
        "kv_heads": 2,
        "attention_bias": "qkv",
    },
    "normalized queries and keys": {
        "positions": RotaryPositionsConfig(layout="halves"),
        "qk_norm": True,
        "value_width": 8,
        "kv_heads": 1,
        "norm": "rms",
        "norm_order": "pre",
    },
    "ALiBi, grouped heads": {"positions": AlibiPositionsConfig(), "kv_heads": 2},
    "ALiBi": {"positions": AlibiPositionsConfig()},
    "ALiBi, three heads": {"positions": AlibiPositionsConfig(), "width": 21, "heads": 3},
    "ALiBi, narrow keys, unscaled scores": {
        "positions": AlibiPositionsConfig(),
        "key_width": 2,
        "scale_scores": False,
    },
}


def translator(folder: Path, out: Path, precision: Precision = "float32") -> Any:
    export_ctranslate2(folder, out, precision)
    return ctranslate2.Translator(str(out), intra_threads=1, compute_type=precision)


def generator(folder: Path, out: Path, precision: Precision = "float32") -> Any:
    export_ctranslate2(folder, out, precision)
    return ctranslate2.Generator(str(out), intra_threads=1, compute_type=precision)


class TokenNames:
    """The token names of a converted model."""

    def __init__(self, path: Path) -> None:
        self.all: list[str] = json.loads(path.read_text("utf-8"))

    def tokens(self, ids: list[int]) -> list[str]:
        return [self.all[number] for number in ids]

    def ids(self, names: list[str]) -> list[int]:
        return [self.all.index(name) for name in names]


def vocabularies(out: Path) -> tuple[TokenNames, TokenNames]:
    shared = out / "shared_vocabulary.json"
    source, target = (shared if shared.exists() else out / f"{side}_vocabulary.json" for side in ("source", "target"))
    return TokenNames(source), TokenNames(target)


@pytest.mark.parametrize("settings", TRANSLATORS.values(), ids=TRANSLATORS)
@pytest.mark.slow
def test_converted_translators_give_the_same_scores_and_translations(settings: dict[str, Any], tmp_path: Path) -> None:
    model = EncoderDecoderConfig(**{**SMALL, **settings})
    network, config = saved(tmp_path / "ours", model)
    theirs = translator(tmp_path / "ours", tmp_path / "exported")
    source_names, target_names = vocabularies(tmp_path / "exported")
    texts, targets = sources(), sources(model.target_vocab_size or VOCABULARY, seed=1)

    scored = theirs.score_batch(
        [source_names.tokens(text) for text in texts], [target_names.tokens(target) for target in targets]
    )
    for text, target, result in zip(texts, targets, scored, strict=True):
        inputs, labels = [config.tokens.start, *target], [*target, config.tokens.end]
        expected = log_probabilities(network, config, text, inputs)[range(len(labels)), labels]
        assert torch.allclose(torch.tensor(result.log_probs), expected, atol=1e-3)

    translated = theirs.translate_batch(
        [source_names.tokens(text) for text in texts],
        beam_size=1,
        min_decoding_length=0,  # the default is 1
        max_decoding_length=MAX_LENGTH,
    )
    for text, result in zip(texts, translated, strict=True):
        expected_ids = greedy_decode(network, config, text, [config.tokens.start], MAX_LENGTH)
        assert target_names.ids(result.hypotheses[0]) == expected_ids


@pytest.mark.parametrize("settings", GPTS.values(), ids=GPTS)
def test_converted_language_models_give_the_same_scores_and_texts(settings: dict[str, Any], tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", DecoderOnlyConfig(**{**SMALL, **settings}))
    theirs, names = (
        generator(tmp_path / "ours", tmp_path / "exported"),
        TokenNames(tmp_path / "exported" / "vocabulary.json"),
    )
    prompts = [[config.tokens.start, *text] for text in sources()]

    for prompt, result in zip(prompts, theirs.score_batch([names.tokens(prompt) for prompt in prompts]), strict=True):
        expected = log_probabilities(network, config, None, prompt)[range(len(prompt) - 1), prompt[1:]]
        assert torch.allclose(torch.tensor(result.log_probs), expected, atol=1e-3)

    generated = theirs.generate_batch(
        [names.tokens(prompt) for prompt in prompts], max_length=MAX_LENGTH - 2, include_prompt_in_result=False
    )
    for prompt, result in zip(prompts, generated, strict=True):
        assert result.sequences_ids[0] == greedy_decode(network, config, None, prompt, MAX_LENGTH - 2)


@pytest.mark.parametrize("settings", [{}, {"norm_order": "pre", "activation": "swiglu"}, {"width": 21, "heads": 3}])
@pytest.mark.parametrize("kind", [EncoderDecoderConfig, DecoderOnlyConfig])
def test_int8_scores_are_close(kind: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    config = Config(model=kind(**{**SMALL, **settings}))
    network = random_network(config.model, noise=0.1)
    save(tmp_path / "ours", network, config)
    text, target = sources()[0], sources(seed=1)[0]
    source = text if network.encodes else None
    inputs = [config.tokens.start, *target]
    expected = log_probabilities(network, config, source, inputs)[range(len(target)), target]
    if network.encodes:
        theirs = translator(tmp_path / "ours", tmp_path / "exported", "int8")
        names, _ = vocabularies(tmp_path / "exported")
        (result,) = theirs.score_batch([names.tokens(text)], [names.tokens(target)])
    else:
        theirs = generator(tmp_path / "ours", tmp_path / "exported", "int8")
        (result,) = theirs.score_batch([TokenNames(tmp_path / "exported" / "vocabulary.json").tokens(inputs)])
    difference = torch.tensor(result.log_probs)[: len(target)] - expected
    assert 0 < difference.abs().mean() < 0.3


def test_int8_takes_a_quarter_of_the_space(tmp_path: Path) -> None:
    positions = LearnedPositionsConfig(max_length=16)
    model = DecoderOnlyConfig(vocab_size=2000, width=64, layers=1, heads=4, feed_forward=128, positions=positions)
    save(tmp_path / "ours", random_network(model), Config(model=model))
    sizes = []
    precision: Precision
    for precision in ("int8", "float32"):
        export_ctranslate2(tmp_path / "ours", tmp_path / precision, precision)
        sizes.append((tmp_path / precision / "model.bin").stat().st_size)
    assert 3 * sizes[0] < sizes[1]


def biased_network(model: ModelConfig, *ids: int) -> Network:
    """A network for which these tokens are always the most probable."""
    network = random_network(model)
    with torch.no_grad():
        network.get_parameter("output.bias")[list(ids)] = 50.0
    return network


@pytest.mark.parametrize("kind", [EncoderDecoderConfig, DecoderOnlyConfig])
def test_padding_and_start_tokens_are_never_generated(kind: Any, tmp_path: Path) -> None:
    config = Config(model=kind(**SMALL, output_bias=True))
    save(tmp_path / "ours", biased_network(config.model, config.tokens.pad, config.tokens.start), config)
    export_ctranslate2(tmp_path / "ours", tmp_path / "exported", "float32")
    if kind is EncoderDecoderConfig:
        translate = ctranslate2.Translator(str(tmp_path / "exported")).translate_batch
        outputs = translate([["<unnamed 5>"]], beam_size=4, num_hypotheses=4)[0].hypotheses
    else:
        generate = ctranslate2.Generator(str(tmp_path / "exported")).generate_batch
        options = {
            "max_length": 12,
            "min_length": 12,
            "sampling_topk": 0,
            "num_hypotheses": 4,
            "include_prompt_in_result": False,
        }
        outputs = generate([["<unnamed 2>"]], **options)[0].sequences
    assert all(outputs)
    assert not {"<unnamed 0>", "<unnamed 2>"} & {token for output in outputs for token in output}


def test_an_end_token_that_is_also_padding_and_start_is_not_suppressed(tmp_path: Path) -> None:
    config = Config(
        model=DecoderOnlyConfig(**SMALL, output_bias=True), tokens=SpecialTokensConfig(pad=7, unknown=7, start=7, end=7)
    )
    save(tmp_path / "ours", biased_network(config.model, 7), config)
    theirs = generator(tmp_path / "ours", tmp_path / "exported")
    (result,) = theirs.generate_batch([["<unnamed 7>", "<unnamed 9>"]], include_prompt_in_result=False)
    assert result.sequences == [[]]


def test_attention_is_the_mean_over_heads_of_the_last_layer_without_the_end_of_the_source(tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))
    theirs = translator(tmp_path / "ours", tmp_path / "exported")
    names, _ = vocabularies(tmp_path / "exported")
    text = [5, 9, 13, 4]
    (result,) = theirs.translate_batch([names.tokens(text)], beam_size=1, max_decoding_length=6, return_attention=True)
    output = names.ids(result.hypotheses[0])
    tap = "decoder.layers.1.cross_attention.kernel.weights"
    with open_taps(network, tap) as seen:
        log_probabilities(network, config, text, [config.tokens.start, *output[:-1]])
    expected = seen[tap][0].mean(0)[:, : len(text)]  # (T, S)
    assert torch.allclose(torch.tensor(result.attention[0])[: len(expected)], expected, atol=1e-5)


def test_an_exported_folder_works_without_regard(tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))
    export_ctranslate2(tmp_path / "ours", tmp_path / "exported", "float32")
    program = f"""
import sys, ctranslate2, tokenizers
tokenizer = tokenizers.Tokenizer.from_file({str(tmp_path / "exported" / "tokenizer.json")!r})
translator = ctranslate2.Translator({str(tmp_path / "exported")!r}, compute_type="float32")
tokens = tokenizer.encode("w5 w9 nonsense w4").tokens
best = translator.translate_batch([tokens], beam_size=1, max_decoding_length={MAX_LENGTH})[0].hypotheses[0]
print(" ".join(best))
assert not {{"regard", "torch"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    expected = greedy_decode(network, config, [5, 9, 1, 4], [config.tokens.start], MAX_LENGTH)
    assert done.stdout.split() == [words().id_to_token(number) for number in expected]


def test_tokens_have_the_names_of_the_tokenizer_or_made_up_ones(tmp_path: Path) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**{**SMALL, "vocab_size": VOCABULARY + 2}))
    export_ctranslate2(tmp_path / "ours", tmp_path / "exported", "float32")
    names, _ = vocabularies(tmp_path / "exported")
    assert names.all[:5] == ["[PAD]", "[UNK]", "[SOS]", "[EOS]", "w4"]
    assert names.all[-3:] == [f"w{VOCABULARY - 1}", "<unnamed 29>", "<unnamed 30>"]
    settings = json.loads((tmp_path / "exported" / "config.json").read_text("utf-8"))
    assert [settings[key] for key in ("unk_token", "bos_token", "eos_token", "decoder_start_token")] == [
        *("[UNK]", "[SOS]", "[EOS]", "[SOS]")
    ]
    assert (settings["add_source_bos"], settings["add_source_eos"]) == (False, True)


def test_two_tokenizers_give_two_vocabularies_with_the_same_special_tokens(tmp_path: Path) -> None:
    model = EncoderDecoderConfig(**SMALL, share_embeddings=False, target_vocab_size=33)
    config = Config(model=model)
    other = Tokenizer.from_str(words(33, prefix="p").to_str().replace("[EOS]", "</s>"))
    files = {"tokenizer.json": words(), "target_tokenizer.json": other}
    contents = {name: tokenizer.to_str().encode() for name, tokenizer in files.items()}
    save(tmp_path / "ours", random_network(model), config, extra_files=contents)
    export_ctranslate2(tmp_path / "ours", tmp_path / "exported", "float32")
    source, target = vocabularies(tmp_path / "exported")
    assert source.all == ["[PAD]", "[UNK]", "[SOS]", "</s>", *(f"w{n}" for n in range(4, VOCABULARY))]
    assert target.all == ["[PAD]", "[UNK]", "[SOS]", "</s>", *(f"p{n}" for n in range(4, 33))]
    assert Tokenizer.from_file(str(tmp_path / "exported" / "target_tokenizer.json")).get_vocab() == other.get_vocab()


def test_a_token_with_the_name_of_a_special_token_of_the_target_is_renamed(tmp_path: Path) -> None:
    model = EncoderDecoderConfig(**SMALL, share_embeddings=False)
    source, target = (Tokenizer.from_str(words().to_str().replace(*pair)) for pair in (("w6", "p4"), ("[EOS]", "p4")))
    contents = {"tokenizer.json": source.to_str().encode(), "target_tokenizer.json": target.to_str().encode()}
    save(tmp_path / "ours", random_network(model), Config(model=model), extra_files=contents)
    export_ctranslate2(tmp_path / "ours", tmp_path / "exported", "float32")
    names, _ = vocabularies(tmp_path / "exported")
    assert (names.all[3], names.all[6]) == ("p4", "<unnamed 6>")
    assert len(set(names.all)) == VOCABULARY


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_networks_of_other_precisions_are_converted(dtype: torch.dtype, tmp_path: Path) -> None:
    config = Config(model=EncoderDecoderConfig(**SMALL))
    network = random_network(config.model).to(dtype)
    save(tmp_path / "ours", network, config)
    theirs = translator(tmp_path / "ours", tmp_path / "exported")
    (result,) = theirs.score_batch([["<unnamed 5>"]], [["<unnamed 6>"]])
    expected = log_probabilities(network.float(), config, [5], [2, 6])[range(2), [6, 3]]
    assert torch.allclose(torch.tensor(result.log_probs), expected, atol=1e-3)


def test_long_texts_have_sinusoidal_positions(tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))
    theirs = translator(tmp_path / "ours", tmp_path / "exported")
    names, _ = vocabularies(tmp_path / "exported")
    text, target = (sources(count=1, longest=2, seed=seed)[0] * 700 for seed in (2, 3))
    (result,) = theirs.score_batch([names.tokens(text)], [names.tokens(target)], max_input_length=0)
    inputs, labels = [config.tokens.start, *target], [*target, config.tokens.end]
    expected = log_probabilities(network, config, text, inputs)[range(len(labels)), labels]
    assert torch.allclose(torch.tensor(result.log_probs), expected, atol=1e-2)


REFUSED: dict[str, tuple[ModelConfig, dict[str, int]]] = {
    "CTranslate2 is for Transformers, and the network is recurrent": (
        RecurrentLanguageModelConfig(vocab_size=33, width=16),
        {},
    ),
    "CTranslate2 is for networks that generate text, and this one is an encoder": (EncoderOnlyConfig(**SMALL), {}),
    "CTranslate2 needs feed-forward layers, and the network has none": (
        EncoderDecoderConfig(**{**SMALL, "feed_forward": 0}),
        {},
    ),
    "CTranslate2 needs norms, and the network has none": (DecoderOnlyConfig(**SMALL, norm="none"), {}),
    "CTranslate2 has full attention, and the network's is bigbird": (
        EncoderDecoderConfig(**SMALL, attention=BigBirdAttentionConfig()),
        {},
    ),
    "CTranslate2 has one feed-forward layer, and this network a mixture of experts": (
        DecoderOnlyConfig(**SMALL, experts=3),
        {},
    ),
    "CTranslate2 has no activation relu2, and the network has": (DecoderOnlyConfig(**SMALL, activation="relu2"), {}),
    "CTranslate2 normalizes queries and keys in decoder-only networks with equal head sizes, and this one is not": (
        EncoderDecoderConfig(**SMALL, qk_norm=True),
        {},
    ),
    "CTranslate2 has no rotary scaling yarn, and the network has": (
        DecoderOnlyConfig(
            **SMALL, positions=RotaryPositionsConfig(scaling=YarnScalingConfig(factor=2.0, original_length=64))
        ),
        {},
    ),
    "CTranslate2 does not cap logits, and the network does": (DecoderOnlyConfig(**SMALL, logit_soft_cap=15.0), {}),
    "CTranslate2 needs residual connections, and the network has none": (
        DecoderOnlyConfig(**SMALL, residual=False),
        {},
    ),
    "CTranslate2 needs a causal mask, and the network's decoder has none": (
        DecoderOnlyConfig(**SMALL, causal_mask=False),
        {},
    ),
    "CTranslate2 has rotary positions in decoder-only networks, and this one has an encoder": (
        EncoderDecoderConfig(**SMALL, positions=RotaryPositionsConfig()),
        {},
    ),
    "CTranslate2 has ALiBi in decoder-only networks, and this one has an encoder": (
        EncoderDecoderConfig(**SMALL, positions=AlibiPositionsConfig()),
        {},
    ),
    "CTranslate2 shares relative positions among heads, and this network has them per head": (
        DecoderOnlyConfig(**SMALL, positions=RelativePositionsConfig(per_head=True)),
        {},
    ),
    "the id of its start, end or unknown token is outside of a vocabulary": (
        EncoderDecoderConfig(**SMALL, share_embeddings=False, target_vocab_size=33),
        {"end": 30},
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_unsupported_models_are_refused_before_anything_is_written(reason: str, tmp_path: Path) -> None:
    model, tokens = REFUSED[reason]
    _, config = saved(tmp_path / "ours", model, **tokens)
    assert unsupported_reason(config) == reason
    assert choose_engine("auto", config) == "torch"
    with pytest.raises(ModelError) as error:
        export_ctranslate2(tmp_path / "ours", tmp_path / "exported", "float32")
    assert str(error.value) == (f"{tmp_path / 'ours'}: cannot be converted, because {reason}; use it with regard.")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_the_support_check_imports_neither_torch_nor_ctranslate2() -> None:
    program = """
import sys
from regard.config import Config
from regard.interop.exporters import unsupported_reason
assert unsupported_reason(Config()) is None
assert not {"torch", "ctranslate2"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))
    (tmp_path / "exported").mkdir()
    with pytest.raises(ModelError) as error:
        export_ctranslate2(tmp_path / "ours", tmp_path / "exported", "float32")
    assert str(error.value) == f"{tmp_path / 'exported'}: already exists; choose another name or remove it first."


def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError) as error:
        export_ctranslate2(tmp_path / "ours", tmp_path / "file" / "theirs")
    assert str(error.value) == (
        f"{tmp_path / 'file' / 'theirs'}: cannot be written (File exists); choose another place."
    )


def test_nothing_is_left_if_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ModelError, match=r"cannot be written \(No space left on device\)"):
        export_ctranslate2(tmp_path / "ours", tmp_path / "exported", "float32")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]
