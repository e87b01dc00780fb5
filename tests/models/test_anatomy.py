"""The counts that `regard model` prints are the network's own."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from family import FAMILY, SPARSE, Batch, hidden, make
from regard.config import load_config, preset_names
from regard.models import build
from regard.models.anatomy import anatomy
from regard.models.assembly import build_meta
from regard.nn import open_taps


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("paper-base", 63_045_632),  # the paper's Table 3 says 65 million, with a vocabulary of its own
        ("paper-big", 214_171_648),  # 213 million
        ("gpt-small", 124_439_808),  # GPT-2 small, to the last parameter
        ("tiny", 2_598_912),
        ("small", 7_568_384),
        ("gpt-char", 807_808),
        ("seq2seq", 4_153_344),
        ("bahdanau", 3_263_744),
        ("luong", 4_349_952),
        ("lstm-lm", 3_100_672),
    ],
)
def test_presets_have_the_parameters_they_should(preset: str, parameters: int) -> None:
    assert anatomy(build_meta(load_config(preset).model)).parameters == parameters


def test_presets_have_the_papers_numbers() -> None:
    base, big = load_config("paper-base").model, load_config("paper-big").model
    shape = ("layers", "width", "feed_forward", "heads", "head_width", "dropout", "norm_order", "activation")
    assert [getattr(base, name) for name in shape] == [6, 512, 2048, 8, 64, 0.1, "post", "relu"]
    assert [getattr(big, name) for name in shape] == [6, 1024, 4096, 16, 64, 0.3, "post", "relu"]
    tiny, small = load_config("tiny").model, load_config("small").model
    assert [getattr(tiny, name) for name in shape[:4]] == [4, 128, 256, 4]
    assert [getattr(small, name) for name in shape[:4]] == [3, 256, 1024, 4]


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_is_listed_and_counted(preset: str) -> None:
    found = anatomy(build_meta(load_config(preset).model))
    assert found.memory["optimizer"] == 2 * found.memory["weights"] == 8 * found.parameters
    assert found.as_dict()["training_flops_per_token"] == 3 * found.forward_flops


def test_table_3_key_sizes_cost_what_the_paper_says() -> None:
    """Rows (B): keys of width 16 and 32 save 7 and 5 of 65 million parameters."""
    base = anatomy(build_meta(load_config("paper-base").model)).parameters
    for width, saved in ((16, 7e6), (32, 5e6)):
        smaller = anatomy(build_meta(load_config("paper-base", [f"model.key_width={width}"]).model)).parameters
        assert abs(base - smaller - saved) < 0.5e6


@pytest.mark.parametrize("name", FAMILY)
def test_parameters_are_counted_once_each(name: str) -> None:
    network = make(FAMILY[name])
    assert anatomy(network).parameters == sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("name", [name for name in FAMILY if name not in SPARSE])
def test_flops_are_those_that_torch_counts(name: str) -> None:
    network = make(FAMILY[name]).float()
    length = 12
    ids = torch.randint(0, 23, (1, length))
    batch = Batch(ids, torch.ones_like(ids).bool(), ids, torch.ones_like(ids).bool())
    with open_taps(network), FlopCounterMode(display=False) as counter, torch.no_grad():  # torch cannot count inside
        states = hidden(network, batch)  # its fused kernel; open taps keep it out of the way
        if network.decodes or getattr(FAMILY[name], "task", "") in ("masked", "tagging", "bidirectional"):
            network.logits(states)
    assert anatomy(network, length).forward_flops * length == counter.get_total_flops()


def test_a_sketch_holds_no_numbers() -> None:
    network = build_meta(load_config("paper-big").model)
    assert {parameter.device.type for parameter in network.parameters()} == {"meta"}
    shapes = {name: tuple(p.shape) for name, p in build_meta(load_config("tiny").model).named_parameters()}
    assert shapes == {name: tuple(p.shape) for name, p in build(load_config("tiny").model).named_parameters()}
