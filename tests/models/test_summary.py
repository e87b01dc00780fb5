"""Counts of parameters and FLOPs equal those of PyTorch."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from family import DECODERS, ENCODERS, FAMILY, SPARSE, Batch, features_of, hidden, make
from regard.config import load_config, preset_names
from regard.models import EncoderOnlyTransformer, build
from regard.models.assembly import build_meta
from regard.models.summary import FlopCounter, summarize
from regard.nn import open_taps
from regard.nn.prediction_heads import TextClassificationHead


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("paper-base", 63_045_632),  # Table 3 of the paper: 65 million, with another vocabulary
        ("paper-big", 214_171_648),  # 213 million
        ("gpt-small", 124_439_808),  # GPT-2 small, to the last parameter
        ("tiny", 2_598_912),
        ("small", 7_568_384),
        ("gpt-char", 807_808),
        ("llama-tiny", 1_750_144),
        ("modern-small", 121_193_472),
        ("seq2seq", 4_153_344),
        ("bahdanau", 3_263_744),
        ("luong", 4_349_952),
        ("lstm-lm", 3_100_672),
    ],
)
def test_presets_have_the_expected_number_of_parameters(preset: str, parameters: int) -> None:
    assert summarize(build_meta(load_config(preset).model)).parameters == parameters


def test_presets_have_the_sizes_of_the_paper() -> None:
    base, big = load_config("paper-base").model, load_config("paper-big").model
    shape = ("layers", "width", "feed_forward", "heads", "head_width", "dropout", "norm_order", "activation")
    assert [getattr(base, name) for name in shape] == [6, 512, 2048, 8, 64, 0.1, "post", "relu"]
    assert [getattr(big, name) for name in shape] == [6, 1024, 4096, 16, 64, 0.3, "post", "relu"]
    tiny, small = load_config("tiny").model, load_config("small").model
    assert [getattr(tiny, name) for name in shape[:4]] == [4, 128, 256, 4]
    assert [getattr(small, name) for name in shape[:4]] == [3, 256, 1024, 4]


@pytest.mark.slow
@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_can_be_counted(preset: str) -> None:
    counts = summarize(build_meta(load_config(preset).model))
    assert counts.memory["optimizer"] == 2 * counts.memory["weights"] == 8 * counts.parameters
    assert counts.as_dict()["training_flops_per_token"] == 3 * counts.forward_flops


def test_narrow_keys_save_the_parameters_of_table_3() -> None:
    """Rows (B): keys of width 16 and 32 save 7 and 5 of 65 million parameters."""
    base = summarize(build_meta(load_config("paper-base").model)).parameters
    for width, saved in ((16, 7e6), (32, 5e6)):
        smaller = summarize(build_meta(load_config("paper-base", [f"model.key_width={width}"]).model)).parameters
        assert abs(base - smaller - saved) < 0.5e6


@pytest.mark.parametrize("name", FAMILY)
def test_parameters_are_counted_once_each(name: str) -> None:
    network = make(FAMILY[name])
    assert summarize(network).parameters == sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("name", [name for name in FAMILY if name not in SPARSE])
def test_forward_flops_equal_torchs_count(name: str) -> None:
    network = make(FAMILY[name]).float()
    length = 12
    ids = torch.randint(0, 23, (1, length))
    batch = Batch(ids, torch.ones_like(ids).bool(), ids, torch.ones_like(ids).bool())
    with open_taps(network), FlopCounterMode(display=False) as counter, torch.no_grad():
        states = hidden(network, batch)  # torch cannot count inside its fused kernel, which open taps replace
        head = getattr(network, "head", None)
        if network.decodes or (head is not None and not isinstance(head, TextClassificationHead)):
            network.logits(states)
    assert summarize(network, length).forward_flops * length == counter.get_total_flops()


def test_build_meta_allocates_no_memory() -> None:
    network = build_meta(load_config("paper-big").model)
    assert {parameter.device.type for parameter in network.parameters()} == {"meta"}
    shapes = {name: tuple(p.shape) for name, p in build_meta(load_config("tiny").model).named_parameters()}
    assert shapes == {name: tuple(p.shape) for name, p in build(load_config("tiny").model).named_parameters()}


@pytest.mark.parametrize("name", [name for name in DECODERS if name not in SPARSE])
def test_training_flops_equal_torchs_count(name: str) -> None:
    network = make(DECODERS[name])
    sources, targets = torch.randint(4, 20, (3, 6)), torch.randint(4, 20, (3, 5))
    with open_taps(network), FlopCounterMode(display=False) as counter:  # it cannot count inside fused kernels
        features = features_of(torch.ones_like(sources).bool())
        logits = network(sources, targets, source_features=features) if network.encodes else network(targets)
    lengths = torch.full((3,), 5), torch.full((3,), 6) if network.encodes else None
    assert FlopCounter(network).training_flops(*lengths) == 3 * counter.get_total_flops()
    assert logits.size(1) == 5


def test_training_flops_of_a_masked_lm_equal_torchs_count() -> None:
    config = ENCODERS["encoder-only, hidden tokens"].model_copy(update={"pooling": "first-dense"})
    network = make(config)
    assert isinstance(network, EncoderOnlyTransformer)
    with open_taps(network), FlopCounterMode(display=False) as counter:
        states = network.encode(torch.randint(4, 20, (3, 6))).states
        network.logits(states[:, :2])  # two masked tokens in each text
    flops = FlopCounter(network, exclude=network.pooling)
    assert flops.training_flops(torch.full((3,), 2), torch.full((3,), 6)) == 3 * counter.get_total_flops()


def test_padding_costs_nothing() -> None:
    flops = FlopCounter(make(DECODERS["encoder-decoder"]))
    batch = flops.training_flops(torch.tensor([4, 4, 4]), torch.tensor([3, 3, 3]))
    assert batch == pytest.approx(3 * flops.training_flops(torch.tensor([4]), torch.tensor([3])))


def test_fewer_kv_heads_save_parameters() -> None:
    base = summarize(build_meta(load_config("paper-base").model)).parameters
    grouped = summarize(build_meta(load_config("paper-base", ["model.kv_heads=2"]).model)).parameters
    attentions, width = 6 + 2 * 6, 512
    assert base - grouped == attentions * 2 * width * (width - 2 * 64)  # keys and values of 2 instead of 8 heads
