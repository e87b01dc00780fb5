"""A converted network gives the numbers of ours, whatever its settings; CTranslate2 needs nothing of ours to run it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from tokenizers import Tokenizer

from random_models import SMALL, VOCABULARY, greedily, log_probabilities, randomised, saved, sources, words
from regard.config import (
    AlibiPositionsConfig,
    BigBirdAttentionConfig,
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    ModelConfig,
    NoPositionsConfig,
    RecurrentLanguageModelConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
    SpecialTokensConfig,
)
from regard.errors import ModelError
from regard.interop.ctranslate2 import Precision, export_ctranslate2
from regard.interop.ctranslate2_support import unsupported_reason
from regard.models import Network, save
from regard.nn import open_taps

LONGEST = 12
VARIANTS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "pre-norm": {"norm_order": "pre"},
    "RMS norm after": {"norm": "rms"},
    "pre-norm, RMS, SwiGLU": {"norm_order": "pre", "norm": "rms", "activation": "swiglu"},
    "SwiGLU": {"activation": "swiglu"},
    "GELU": {"activation": "gelu"},
    "GELU by tanh": {"activation": "gelu-tanh"},
    "swish": {"activation": "swish"},
    "biases": {"attention_bias": True, "output_bias": True},
    "an output of its own": {"tie_output": False},
    "embeddings not scaled": {"scale_embeddings": False},
    "embeddings normed": {"embedding_norm": True},
    "a large epsilon": {"norm_epsilon": 0.1},
    "RMS and a large epsilon": {"norm_epsilon": 0.1, "norm": "rms", "norm_order": "pre"},
    "learned positions": {"positions": LearnedPositionsConfig(max_length=20)},
    "sinusoids in halves": {"positions": SinusoidalPositionsConfig(layout="halves")},
    "no positions": {"positions": NoPositionsConfig()},
    "scores not divided": {"scale_scores": False, "attention_bias": True},
    "narrow keys": {"key_width": 2, "attention_bias": True},
    "wide keys": {"key_width": 11, "attention_bias": True},
    "narrow keys, scores not divided": {"key_width": 5, "scale_scores": False},
    "relative positions": {"positions": RelativePositionsConfig(max_distance=3)},
    "relative positions, narrow keys": {"positions": RelativePositionsConfig(max_distance=2), "key_width": 3},
    "relative positions, wide keys, scores not divided": {
        "positions": RelativePositionsConfig(max_distance=16),
        "key_width": 11,
        "scale_scores": False,
    },
    "grouped heads": {"kv_heads": 2, "attention_bias": True},
    "grouped heads, narrow keys": {"kv_heads": 2, "key_width": 3},
    "multi-query, relative positions": {"kv_heads": 1, "positions": RelativePositionsConfig(max_distance=3)},
    "odd heads": {"width": 21, "heads": 3},
    "one head": {"heads": 1},
    "odd hidden units": {"feed_forward": 7},
}
TRANSLATORS: dict[str, dict[str, Any]] = VARIANTS | {
    "a shallow decoder": {"layers": 3, "decoder_layers": 1},
    "separate embeddings": {"share_embeddings": False},
    "separate vocabularies": {"share_embeddings": False, "target_vocab_size": VOCABULARY + 6},
    "all of its own": {"share_embeddings": False, "target_vocab_size": 17, "tie_output": False, "output_bias": True},
}

GPTS: dict[str, dict[str, Any]] = VARIANTS | {
    "rotary": {"positions": RotaryPositionsConfig()},
    "rotary in halves": {"positions": RotaryPositionsConfig(layout="halves", base=50.0)},
    "rotary, narrow keys": {"positions": RotaryPositionsConfig(), "key_width": 2},
    "rotary in halves, wide keys": {"positions": RotaryPositionsConfig(layout="halves"), "key_width": 10},
    "rotary, scores not divided": {"positions": RotaryPositionsConfig(), "scale_scores": False, "attention_bias": True},
    "rotary, grouped heads": {"positions": RotaryPositionsConfig(), "kv_heads": 2},
    "rotary in halves, multi-query": {"positions": RotaryPositionsConfig(layout="halves"), "kv_heads": 1},
    "ALiBi, grouped heads": {"positions": AlibiPositionsConfig(), "kv_heads": 2},
    "ALiBi": {"positions": AlibiPositionsConfig()},
    "ALiBi, three heads": {"positions": AlibiPositionsConfig(), "width": 21, "heads": 3},
    "ALiBi, narrow keys, scores not divided": {
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


class Names:
    """The names by which a converted model knows its tokens."""

    def __init__(self, path: Path) -> None:
        self.all: list[str] = json.loads(path.read_text("utf-8"))

    def of(self, ids: list[int]) -> list[str]:
        return [self.all[number] for number in ids]

    def ids(self, names: list[str]) -> list[int]:
        return [self.all.index(name) for name in names]


def vocabularies(out: Path) -> tuple[Names, Names]:
    shared = out / "shared_vocabulary.json"
    source, target = (shared if shared.exists() else out / f"{side}_vocabulary.json" for side in ("source", "target"))
    return Names(source), Names(target)


@pytest.mark.parametrize("settings", TRANSLATORS.values(), ids=TRANSLATORS)
def test_a_converted_translator_scores_and_writes_as_ours(settings: dict[str, Any], tmp_path: Path) -> None:
    model = EncoderDecoderConfig(**{**SMALL, **settings})
    network, config = saved(tmp_path / "ours", model)
    theirs = translator(tmp_path / "ours", tmp_path / "theirs")
    source_names, target_names = vocabularies(tmp_path / "theirs")
    texts, targets = sources(), sources(model.target_vocab_size or VOCABULARY, seed=1)

    scored = theirs.score_batch([source_names.of(text) for text in texts], [target_names.of(one) for one in targets])
    for text, target, result in zip(texts, targets, scored, strict=True):
        given, wanted = [config.tokens.start, *target], [*target, config.tokens.end]
        expected = log_probabilities(network, config, text, given)[range(len(wanted)), wanted]
        assert torch.allclose(torch.tensor(result.log_probs), expected, atol=1e-3)

    written = theirs.translate_batch(
        [source_names.of(text) for text in texts],
        beam_size=1,
        min_decoding_length=0,  # it would be 1, and nothing would never be a translation
        max_decoding_length=LONGEST,
    )
    for text, result in zip(texts, written, strict=True):
        expected_ids = greedily(network, config, text, [config.tokens.start], LONGEST)
        assert target_names.ids(result.hypotheses[0]) == expected_ids


@pytest.mark.parametrize("settings", GPTS.values(), ids=GPTS)
def test_a_converted_gpt_scores_and_writes_as_ours(settings: dict[str, Any], tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", DecoderOnlyConfig(**{**SMALL, **settings}))
    theirs, names = generator(tmp_path / "ours", tmp_path / "theirs"), Names(tmp_path / "theirs" / "vocabulary.json")
    prompts = [[config.tokens.start, *text] for text in sources()]

    for prompt, result in zip(prompts, theirs.score_batch([names.of(prompt) for prompt in prompts]), strict=True):
        expected = log_probabilities(network, config, None, prompt)[range(len(prompt) - 1), prompt[1:]]
        assert torch.allclose(torch.tensor(result.log_probs), expected, atol=1e-3)

    written = theirs.generate_batch(
        [names.of(prompt) for prompt in prompts], max_length=LONGEST - 2, include_prompt_in_result=False
    )
    for prompt, result in zip(prompts, written, strict=True):
        assert result.sequences_ids[0] == greedily(network, config, None, prompt, LONGEST - 2)


@pytest.mark.parametrize("settings", [{}, {"norm_order": "pre", "activation": "swiglu"}, {"width": 21, "heads": 3}])
@pytest.mark.parametrize("kind", [EncoderDecoderConfig, DecoderOnlyConfig])
def test_with_8_bit_matrices_scores_are_close(kind: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    config = Config(model=kind(**{**SMALL, **settings}))
    network = randomised(config.model, noise=0.1)
    save(tmp_path / "ours", network, config)
    text, target = sources()[0], sources(seed=1)[0]
    source = text if network.encodes else None
    given = [config.tokens.start, *target]
    expected = log_probabilities(network, config, source, given)[range(len(target)), target]
    if network.encodes:
        theirs = translator(tmp_path / "ours", tmp_path / "theirs", "int8")
        names, _ = vocabularies(tmp_path / "theirs")
        (result,) = theirs.score_batch([names.of(text)], [names.of(target)])
    else:
        theirs = generator(tmp_path / "ours", tmp_path / "theirs", "int8")
        (result,) = theirs.score_batch([Names(tmp_path / "theirs" / "vocabulary.json").of(given)])
    difference = torch.tensor(result.log_probs)[: len(target)] - expected
    assert 0 < difference.abs().mean() < 0.3


def test_8_bits_take_a_quarter_of_the_room(tmp_path: Path) -> None:
    positions = LearnedPositionsConfig(max_length=16)
    model = DecoderOnlyConfig(vocab_size=2000, width=64, layers=1, heads=4, feed_forward=128, positions=positions)
    save(tmp_path / "ours", randomised(model), Config(model=model))
    sizes = []
    precision: Precision
    for precision in ("int8", "float32"):
        export_ctranslate2(tmp_path / "ours", tmp_path / precision, precision)
        sizes.append((tmp_path / precision / "model.bin").stat().st_size)
    assert 3 * sizes[0] < sizes[1]


def eager(model: ModelConfig, *ids: int) -> Network:
    """A network that wants nothing more than to write these tokens."""
    network = randomised(model)
    with torch.no_grad():
        network.get_parameter("output.bias")[list(ids)] = 50.0
    return network


@pytest.mark.parametrize("kind", [EncoderDecoderConfig, DecoderOnlyConfig])
def test_pads_and_starts_are_never_written(kind: Any, tmp_path: Path) -> None:
    config = Config(model=kind(**SMALL, output_bias=True))
    save(tmp_path / "ours", eager(config.model, config.tokens.pad, config.tokens.start), config)
    export_ctranslate2(tmp_path / "ours", tmp_path / "theirs")
    if kind is EncoderDecoderConfig:
        translate = ctranslate2.Translator(str(tmp_path / "theirs")).translate_batch
        written = translate([["<unnamed 5>"]], beam_size=4, num_hypotheses=4)[0].hypotheses
    else:
        generate = ctranslate2.Generator(str(tmp_path / "theirs")).generate_batch
        options = {
            "max_length": 12,
            "min_length": 12,
            "sampling_topk": 0,
            "num_hypotheses": 4,
            "include_prompt_in_result": False,
        }
        written = generate([["<unnamed 2>"]], **options)[0].sequences
    assert all(written)
    assert not {"<unnamed 0>", "<unnamed 2>"} & {token for one in written for token in one}


def test_a_token_that_is_pad_start_and_end_at_once_still_ends_a_text(tmp_path: Path) -> None:
    config = Config(
        model=DecoderOnlyConfig(**SMALL, output_bias=True), tokens=SpecialTokensConfig(pad=7, unknown=7, start=7, end=7)
    )
    save(tmp_path / "ours", eager(config.model, 7), config)
    theirs = generator(tmp_path / "ours", tmp_path / "theirs")
    (result,) = theirs.generate_batch([["<unnamed 7>", "<unnamed 9>"]], include_prompt_in_result=False)
    assert result.sequences == [[]]


def test_attention_is_the_mean_over_the_heads_of_the_last_layer_without_the_sources_end(tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))
    theirs = translator(tmp_path / "ours", tmp_path / "theirs")
    names, _ = vocabularies(tmp_path / "theirs")
    text = [5, 9, 13, 4]
    (result,) = theirs.translate_batch([names.of(text)], beam_size=1, max_decoding_length=6, return_attention=True)
    written = names.ids(result.hypotheses[0])
    tap = "decoder.layers.1.cross_attention.kernel.weights"
    with open_taps(network, tap) as seen:
        log_probabilities(network, config, text, [config.tokens.start, *written[:-1]])
    expected = seen[tap][0].mean(0)[:, : len(text)]  # (T, S)
    assert torch.allclose(torch.tensor(result.attention[0])[: len(expected)], expected, atol=1e-5)


def test_texts_go_through_with_the_tokenizer_beside_the_model_and_nothing_of_ours(tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))
    export_ctranslate2(tmp_path / "ours", tmp_path / "theirs")
    program = f"""
import sys, ctranslate2, tokenizers
tokenizer = tokenizers.Tokenizer.from_file({str(tmp_path / "theirs" / "tokenizer.json")!r})
translator = ctranslate2.Translator({str(tmp_path / "theirs")!r}, compute_type="float32")
pieces = tokenizer.encode("w5 w9 nonsense w4").tokens
best = translator.translate_batch([pieces], beam_size=1, max_decoding_length={LONGEST})[0].hypotheses[0]
print(" ".join(best))
assert not {{"regard", "torch"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    expected = greedily(network, config, [5, 9, 1, 4], [config.tokens.start], LONGEST)
    assert done.stdout.split() == [words().id_to_token(number) for number in expected]


def test_tokens_have_the_tokenizers_names_and_ids_without_a_token_a_made_up_one(tmp_path: Path) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**{**SMALL, "vocab_size": VOCABULARY + 2}))
    export_ctranslate2(tmp_path / "ours", tmp_path / "theirs")
    names, _ = vocabularies(tmp_path / "theirs")
    assert names.all[:5] == ["[PAD]", "[UNK]", "[SOS]", "[EOS]", "w4"]
    assert names.all[-3:] == [f"w{VOCABULARY - 1}", "<unnamed 29>", "<unnamed 30>"]
    settings = json.loads((tmp_path / "theirs" / "config.json").read_text("utf-8"))
    assert [settings[key] for key in ("unk_token", "bos_token", "eos_token", "decoder_start_token")] == [
        *("[UNK]", "[SOS]", "[EOS]", "[SOS]")
    ]
    assert (settings["add_source_bos"], settings["add_source_eos"]) == (False, True)


def test_two_tokenizers_give_two_vocabularies_that_share_their_special_tokens(tmp_path: Path) -> None:
    model = EncoderDecoderConfig(**SMALL, share_embeddings=False, target_vocab_size=33)
    config = Config(model=model)
    other = Tokenizer.from_str(words(33, prefix="p").to_str().replace("[EOS]", "</s>"))
    files = {"tokenizer.json": words(), "target_tokenizer.json": other}
    contents = {name: tokenizer.to_str().encode() for name, tokenizer in files.items()}
    save(tmp_path / "ours", randomised(model), config, extra_files=contents)
    export_ctranslate2(tmp_path / "ours", tmp_path / "theirs")
    source, target = vocabularies(tmp_path / "theirs")
    assert source.all == ["[PAD]", "[UNK]", "[SOS]", "</s>", *(f"w{n}" for n in range(4, VOCABULARY))]
    assert target.all == ["[PAD]", "[UNK]", "[SOS]", "</s>", *(f"p{n}" for n in range(4, 33))]
    assert Tokenizer.from_file(str(tmp_path / "theirs" / "target_tokenizer.json")).get_vocab() == other.get_vocab()


def test_a_piece_that_is_called_as_the_other_sides_special_token_gives_way(tmp_path: Path) -> None:
    model = EncoderDecoderConfig(**SMALL, share_embeddings=False)
    source, target = (Tokenizer.from_str(words().to_str().replace(*pair)) for pair in (("w6", "p4"), ("[EOS]", "p4")))
    contents = {"tokenizer.json": source.to_str().encode(), "target_tokenizer.json": target.to_str().encode()}
    save(tmp_path / "ours", randomised(model), Config(model=model), extra_files=contents)
    export_ctranslate2(tmp_path / "ours", tmp_path / "theirs")
    names, _ = vocabularies(tmp_path / "theirs")
    assert (names.all[3], names.all[6]) == ("p4", "<unnamed 6>")
    assert len(set(names.all)) == VOCABULARY


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_networks_of_other_precisions_are_converted(dtype: torch.dtype, tmp_path: Path) -> None:
    config = Config(model=EncoderDecoderConfig(**SMALL))
    network = randomised(config.model).to(dtype)
    save(tmp_path / "ours", network, config)
    theirs = translator(tmp_path / "ours", tmp_path / "theirs")
    (result,) = theirs.score_batch([["<unnamed 5>"]], [["<unnamed 6>"]])
    expected = log_probabilities(network.float(), config, [5], [2, 6])[range(2), [6, 3]]
    assert torch.allclose(torch.tensor(result.log_probs), expected, atol=1e-3)


def test_sinusoids_go_on_for_long_texts(tmp_path: Path) -> None:
    network, config = saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))
    theirs = translator(tmp_path / "ours", tmp_path / "theirs")
    names, _ = vocabularies(tmp_path / "theirs")
    text, target = (sources(count=1, longest=2, seed=seed)[0] * 700 for seed in (2, 3))
    (result,) = theirs.score_batch([names.of(text)], [names.of(target)], max_input_length=0)
    given, wanted = [config.tokens.start, *target], [*target, config.tokens.end]
    expected = log_probabilities(network, config, text, given)[range(len(wanted)), wanted]
    assert torch.allclose(torch.tensor(result.log_probs), expected, atol=1e-2)


REFUSED: dict[str, tuple[ModelConfig, dict[str, int]]] = {
    "CTranslate2 is for Transformers, and the network is recurrent": (
        RecurrentLanguageModelConfig(vocab_size=33, width=16),
        {},
    ),
    "CTranslate2 is for networks that write, and this one only reads": (EncoderOnlyConfig(**SMALL), {}),
    "CTranslate2 needs feed-forward layers, and the network has none": (
        EncoderDecoderConfig(**{**SMALL, "feed_forward": 0}),
        {},
    ),
    "CTranslate2 needs norms, and the network has none": (DecoderOnlyConfig(**SMALL, norm="none"), {}),
    "CTranslate2 has full attention, and the network's is bigbird": (
        EncoderDecoderConfig(**SMALL, attention=BigBirdAttentionConfig()),
        {},
    ),
    "CTranslate2 needs residual connections, and the network has none": (
        DecoderOnlyConfig(**SMALL, residual=False),
        {},
    ),
    "CTranslate2 cannot look ahead, and the network's decoder does": (
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
    "CTranslate2 shares relative positions among heads, and this network's heads have their own": (
        DecoderOnlyConfig(**SMALL, positions=RelativePositionsConfig(per_head=True)),
        {},
    ),
    "its start, end or unknown token is past the last token of a vocabulary": (
        EncoderDecoderConfig(**SMALL, share_embeddings=False, target_vocab_size=33),
        {"end": 30},
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_ctranslate2_cannot_hold_is_refused_before_anything_is_written(reason: str, tmp_path: Path) -> None:
    model, tokens = REFUSED[reason]
    _, config = saved(tmp_path / "ours", model, **tokens)
    assert unsupported_reason(config) == reason
    with pytest.raises(ModelError) as refused:
        export_ctranslate2(tmp_path / "ours", tmp_path / "theirs")
    assert str(refused.value) == (
        f"{tmp_path / 'ours'}: cannot be converted, because {reason}; use it with regard itself."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_whether_it_can_hold_a_model_is_said_without_torch_and_ctranslate2() -> None:
    program = """
import sys
from regard.config import Config
from regard.interop.ctranslate2_support import why_not
assert why_not(Config()) is None
assert not {"torch", "ctranslate2"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))
    (tmp_path / "theirs").mkdir()
    with pytest.raises(ModelError) as refused:
        export_ctranslate2(tmp_path / "ours", tmp_path / "theirs")
    assert str(refused.value) == f"{tmp_path / 'theirs'}: already exists; choose another name or remove it first."


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError) as refused:
        export_ctranslate2(tmp_path / "ours", tmp_path / "file" / "theirs")
    assert str(refused.value) == (
        f"{tmp_path / 'file' / 'theirs'}: cannot be written (File exists); choose another place."
    )


def test_nothing_is_left_where_writing_fails_halfway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "ours", EncoderDecoderConfig(**SMALL))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ModelError, match=r"cannot be written \(No space left on device\)"):
        export_ctranslate2(tmp_path / "ours", tmp_path / "theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]
