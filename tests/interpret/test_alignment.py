"""Word alignment by attention and erasure."""

import pytest
import torch

from regard.errors import InputError
from regard.interpret.attribution import Alignment, _agreement, erasure
from regard.interpret.tokens import WordSpan
from traces import ALIGNING_MODELS, make_trace, trace_features


@pytest.mark.parametrize("name", ALIGNING_MODELS)
def test_erasure_cost_equals_decoding_without_the_token(name: str) -> None:
    trace = make_trace(name)
    costs = erasure(trace)
    network, written = trace.model.network, trace.decoded
    assert written.source_ids is not None
    assert written.input_ids is not None
    for left_out in range(len(written.source_ids) - 1):
        source = written.source_ids[:left_out] + written.source_ids[left_out + 1 :]
        with torch.no_grad():
            memory = network.encode(torch.tensor([source]), features=trace_features(trace, without=left_out))
            rows = network.logits(network.decode(torch.tensor([written.input_ids]), memory))[0].log_softmax(-1)
        for step in trace.steps:
            cost = step.log_probability - float(rows[step.step, step.id])
            assert float(costs[step.step, left_out]) == pytest.approx(cost, abs=1e-4)
    assert not costs[:, -1].any()


@pytest.mark.parametrize("name", ALIGNING_MODELS)
def test_head_with_best_agreement_is_chosen_and_merged_weights_sum_to_one(name: str) -> None:
    alignment = make_trace(name).alignment()
    assert alignment.chosen.agreement == max(head.agreement for head in alignment.heads)
    torch.testing.assert_close(alignment.weights.sum(1), torch.ones(len(alignment.target)))
    assert [target for target, _, _ in alignment.pairs] == [
        n for n, word in enumerate(alignment.target) if not word.special
    ]


def test_weights_are_summed_over_source_tokens_and_averaged_over_target_tokens() -> None:
    from regard.interpret.attribution import _merge_weights

    weights = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.4, 0.3]])
    source, target = [WordSpan("a", (0, 1)), WordSpan("b", (2,))], [WordSpan("c", (0, 1))]
    torch.testing.assert_close(_merge_weights(weights, target, source), torch.tensor([[0.5, 0.5]]))


def test_alignment_needs_cross_attention() -> None:
    for name in ("decoder-only", "encoder-only", "recurrent encoder-decoder, bottleneck"):
        with pytest.raises(InputError) as error:
            make_trace(name).alignment()
        assert str(error.value) == "This network has no cross-attention, so there is nothing to align."


def test_erasure_needs_a_source() -> None:
    for name in ("decoder-only", "encoder-only"):
        with pytest.raises(InputError) as error:
            erasure(make_trace(name))
        message = "Erasure needs a source whose tokens can be left out, and this network does not translate."
        assert str(error.value) == message


def test_pairs_exclude_special_tokens() -> None:
    alignment = make_trace("encoder-decoder").alignment()
    assert isinstance(alignment, Alignment)
    assert all(not alignment.source[source].special for _, source, _ in alignment.pairs)


def test_a_source_token_whose_removal_helps_counts_as_unused() -> None:
    """A negative cost must not make a head that ignores the token agree less."""
    weights = torch.tensor([[0.8, 0.2, 0.0]])
    assert _agreement(weights, torch.tensor([[2.0, -3.0, 0.0]])) == pytest.approx(
        _agreement(weights, torch.tensor([[2.0, 0.0, 0.0]]))
    )
