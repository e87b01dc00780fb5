"""The numbers behind the figures of positions, masks, patterns, soft lookup and recurrent networks."""

import math

import pytest
import torch

from family import FAMILY, make
from regard.config import (
    AlibiPositionsConfig,
    AttentionConfig,
    BigBirdAttentionConfig,
    EncoderDecoderConfig,
    FullAttentionConfig,
    LinformerAttentionConfig,
    PositionsConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
    SinusoidalPositionsConfig,
    TransformerConfig,
    WindowAttentionConfig,
)
from regard.interpret.render.attention_diagrams import (
    GRID_SCORES,
    MASK_SCALED_SCORES,
    attention_pattern,
    attention_steps,
    build_kernel,
    example_patterns,
    kernel_mask,
    length_projection,
    soft_lookup,
)
from regard.interpret.render.plots import build_positions, network_positions, position_effects
from regard.interpret.render.recurrent_diagrams import lstm_values, seeded_language_model, unrolled_network
from regard.interpret.trace import Trace, look
from regard.nn import causal_mask, make_layout, sinusoidal_table
from regard.nn.positions import alibi_slopes
from traces import make_trace

# --- positions --------------------------------------------------------------------------------------------------------


SINUSOIDAL = SinusoidalPositionsConfig()


def transformer(positions: PositionsConfig = SINUSOIDAL, width: int = 16) -> TransformerConfig:
    return EncoderDecoderConfig(width=width, heads=4, positions=positions)


def test_heat_map_is_the_table_of_sinusoids() -> None:
    model = transformer(width=20)
    effects = position_effects(*build_positions(model), model, length=33)
    assert effects.vectors is not None
    torch.testing.assert_close(effects.vectors, sinusoidal_table(33, 20).float())
    assert (effects.products, effects.biases) == (None, None)


def test_learned_positions_of_a_network_are_its_weights() -> None:
    config = FAMILY["decoder-only, learned positions"]
    assert isinstance(config, TransformerConfig)
    network = make(config).float()
    positions, layer = network_positions(network)
    vectors = position_effects(positions, layer, config, length=7).vectors
    assert vectors is not None
    weight = dict(network.named_parameters())["decoder.embedding.positions.weight"]
    torch.testing.assert_close(vectors, weight[:7])


def test_rotated_products_depend_on_the_distance() -> None:
    model = transformer(RotaryPositionsConfig())
    effects = position_effects(*build_positions(model), model, length=6)
    assert (effects.vectors, effects.biases) == (None, None)
    assert effects.products is not None
    size = model.head_width
    angles = 10_000.0 ** (-torch.arange(0, size, 2) / size)
    for i in range(6):
        for j in range(6):
            expected = float(((j - i) * angles).cos().mean())
            assert float(effects.products[i, j]) == pytest.approx(expected, abs=1e-6)


def test_biases_of_alibi_are_slopes_times_distances() -> None:
    model = transformer(AlibiPositionsConfig())
    biases = position_effects(*build_positions(model), model, length=5).biases
    assert biases is not None
    for head, slope in enumerate(alibi_slopes(4)):
        assert biases[head].tolist() == [[-slope * abs(i - j) for j in range(5)] for i in range(5)]


def test_relative_biases_are_clipped() -> None:
    model = transformer(RelativePositionsConfig(max_distance=2))
    biases = position_effects(*build_positions(model), model, length=9).biases
    assert biases is not None
    row = biases[0, 4].tolist()
    assert row[:3] == [row[0]] * 3
    assert row[6:] == [row[8]] * 3
    assert len(set(row)) == 5


def test_seeded_positions_do_not_change_the_random_state() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    build_positions(transformer(RelativePositionsConfig()))
    build_kernel(LinformerAttentionConfig())
    seeded_language_model("a b", "lstm")
    assert torch.equal(torch.rand(1), expected)


# --- mask -------------------------------------------------------------------------------------------------------------


def test_look_ahead_table_of_the_classroom_example() -> None:
    weights = attention_steps(MASK_SCALED_SCORES, causal=True)["weights"]
    expected = [
        [1, 0, 0, 0],
        [0.3775, 0.6225, 0, 0],
        [0.2584, 0.3156, 0.4260, 0],
        [0.2144, 0.2619, 0.2619, 0.2619],
    ]
    torch.testing.assert_close(weights, torch.tensor(expected), atol=5e-5, rtol=0)


def test_grid_of_scores_becomes_weights_by_one_softmax() -> None:
    steps = attention_steps(GRID_SCORES, scale=1 / 8)
    scores = torch.tensor(GRID_SCORES, dtype=torch.float32)
    assert torch.equal(steps["scores"], scores)
    torch.testing.assert_close(steps["scaled"], scores / 8)
    torch.testing.assert_close(steps["weights"], (scores / 8).softmax(-1))
    masked = attention_steps(GRID_SCORES, scale=1 / 8, causal=True)
    assert torch.equal(masked["masked"] == -math.inf, ~causal_mask(4))
    torch.testing.assert_close(masked["weights"].sum(-1), torch.ones(4))


# --- patterns ---------------------------------------------------------------------------------------------------------

KERNELS: dict[str, AttentionConfig] = {
    "full": FullAttentionConfig(),
    "window": WindowAttentionConfig(window=3),
    "bigbird": BigBirdAttentionConfig(block_size=2, window_blocks=1, global_blocks=1, random_blocks=1),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("causal", [False, True])
def test_plotted_pattern_is_what_the_kernel_attends_to(name: str, causal: bool) -> None:
    """A value that a query may not attend to must not change its output, in the fast path without taps."""
    length, attention = 80, KERNELS[name]
    kernel = build_kernel(attention, encoder=not causal)
    allowed = attention_pattern("", attention, length, causal=causal).allowed
    q, k = torch.randn(2, 1, 1, length, 8)
    values = torch.eye(length)[None, None]  # the output of the kernel is then its weights
    weights = kernel(q, k, values, make_layout(torch.zeros(1, length, dtype=torch.long), causal=causal))[0, 0]
    assert torch.equal(weights > 0, allowed)


def test_patterns_of_the_example() -> None:
    full, causal, window, decoder_window, random, globals_, bigbird = (
        pattern.allowed for pattern in example_patterns(12)
    )
    assert bool(full.all())
    assert torch.equal(causal, causal_mask(12))
    distance = (torch.arange(12)[:, None] - torch.arange(12)).abs()
    assert torch.equal(window, distance <= 2)
    assert torch.equal(decoder_window, window & causal)
    assert random.sum(1).tolist() == [3] * 12  # itself and two others
    assert bool(random.diagonal().all())
    first_or_last = torch.zeros(12, 12, dtype=torch.bool)
    first_or_last[[0, -1]] = first_or_last[:, [0, -1]] = True
    assert torch.equal(globals_, first_or_last | torch.eye(12, dtype=torch.bool))
    assert torch.equal(bigbird & (first_or_last | (distance <= 1)), first_or_last | (distance <= 1))


def test_parts_of_a_pattern_are_disjoint_and_complete() -> None:
    for pattern in example_patterns(16):
        assert torch.equal(torch.stack([*pattern.parts.values()]).sum(0), pattern.allowed.long())
    bigbird = example_patterns(16)[-1]
    assert list(bigbird.parts) == ["window", "global", "random"]
    assert all(bool(part.any()) for part in bigbird.parts.values())
    assert bigbird.share == f"{int(bigbird.allowed.sum())} of 256 pairs"


def test_projection_of_linformer_is_that_of_its_kernel() -> None:
    attention = LinformerAttentionConfig(projected_length=3, max_length=10)
    weight = dict(build_kernel(attention).named_parameters())["keys.weight"]
    assert torch.equal(length_projection(attention, 8), weight[:, :8])
    assert kernel_mask(build_kernel(attention), 8).shape == (8, 3)


# --- lookup -----------------------------------------------------------------------------------------------------------


def test_attention_is_a_soft_lookup() -> None:
    lookup = soft_lookup()
    assert torch.equal(lookup.keys[lookup.match], lookup.query)
    weights = (lookup.keys @ lookup.query / math.sqrt(2)).softmax(0)
    torch.testing.assert_close(lookup.weights, weights)
    torch.testing.assert_close(lookup.output, weights @ lookup.values)
    assert int(weights.argmax()) == lookup.match


# --- recurrent networks -----------------------------------------------------------------------------------------------


def seeded_trace(cell: str, text: str = "the cat sat down") -> Trace:
    return look(seeded_language_model(text, cell), text, None, target="")


def traces(cell: str) -> dict[str, Trace]:
    return {"seeded": seeded_trace(cell), "model": make_trace("recurrent language model, LSTM")}


@pytest.mark.parametrize("which", ["seeded", "model"])
def test_numbers_of_the_cell_satisfy_its_equations(which: str) -> None:
    values = lstm_values(traces("lstm")[which])
    forget, enter, leave = values.gates.values()
    torch.testing.assert_close(values.cell, forget * values.cell_before + enter * values.candidate)
    torch.testing.assert_close(values.hidden, leave * values.cell.tanh())
    assert not values.cell_before[0].any()
    assert torch.equal(values.hidden_before[1:], values.hidden[:-1])


def test_gates_of_the_cell_follow_from_input_and_state() -> None:
    trace = seeded_trace("lstm")
    values, weights = lstm_values(trace), dict(trace.model.network.named_parameters())
    prefix = next(name.removesuffix("weight_ih_l0") for name in weights if name.endswith("weight_ih_l0"))
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    w_x, w_h, b_x, b_h = (weights[prefix + name].detach() for name in names)
    i, f, g, o = (values.x @ w_x.mT + values.hidden_before @ w_h.mT + b_x + b_h).chunk(4, dim=-1)
    for name, gate in (("input_gate", i), ("forget_gate", f), ("output_gate", o)):
        torch.testing.assert_close(values.gates[name], gate.sigmoid())
    torch.testing.assert_close(values.candidate, g.tanh())


def test_backward_cell_starts_at_the_end() -> None:
    trace = make_trace("recurrent encoder-decoder, Bahdanau, LSTM, deeper decoder")
    values = lstm_values(trace, "encoder.0.backwards")
    assert not values.cell_before[-1].any()
    forget, enter, _ = values.gates.values()
    torch.testing.assert_close(values.cell, forget * values.cell_before + enter * values.candidate)


def test_decoder_of_a_translator_starts_from_the_encoder() -> None:
    values = lstm_values(make_trace("recurrent encoder-decoder, dot"), "decoder.0.forwards")
    assert bool(values.cell_before[0].isnan().all())
    assert not bool(values.cell_before[1:].isnan().any())


def test_input_of_an_upper_layer_is_the_state_of_both_directions_below() -> None:
    trace = make_trace("recurrent encoder-decoder, dot")
    below = [trace.activation(f"encoder.0.{direction}.hidden") for direction in ("forwards", "backwards")]
    torch.testing.assert_close(lstm_values(trace, "encoder.1.forwards").x, torch.cat(below, -1).float())


def test_unrolled_network_has_the_states_and_losses_of_the_text() -> None:
    trace = seeded_trace("rnn")
    network, weights = unrolled_network(trace), dict(trace.model.network.named_parameters())
    assert [step.input_token.strip("▁") for step in network.steps] == ["[SOS]", "the", "cat", "sat", "down"]
    assert network.steps[-1].token == "[EOS]"
    prefix = next(name.removesuffix("weight_ih_l0") for name in weights if name.endswith("weight_ih_l0"))
    x, h = trace.activation("decoder.embedding.sum"), torch.zeros(4)
    for n in range(5):
        from_x = weights[f"{prefix}weight_ih_l0"] @ x[n] + weights[f"{prefix}bias_ih_l0"]
        h = (from_x + weights[f"{prefix}weight_hh_l0"] @ h + weights[f"{prefix}bias_hh_l0"]).tanh().detach()
        torch.testing.assert_close(network.hidden[n], h)
    mean = sum(network.losses) / len(network.losses)
    assert mean == pytest.approx(trace.training_step().cross_entropy)
