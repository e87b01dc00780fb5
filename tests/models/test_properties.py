"""What must hold for every network of the family, whatever its parts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from family import DECODERS, ENCODERS, FAMILY, TOLERANCE, VOCABULARY, Batch, batches, hidden, make
from regard.config import DecoderOnly, EncoderOnly, NoPositions
from regard.models import Memory, Network
from regard.nn import open_taps


def memory_of(network: Network, batch: Batch) -> Memory | None:
    return network.encode(batch.source, batch.source_real) if hasattr(network, "encoder") else None


@pytest.mark.parametrize("name", FAMILY)
@given(batch=batches())
def test_a_batch_equals_its_rows_one_by_one_whatever_the_padding(name: str, batch: Batch) -> None:
    network = make(FAMILY[name])
    together = hidden(network, batch)
    for i in range(len(batch.target)):
        alone = hidden(network, batch.row(i))
        torch.testing.assert_close(together[i][batch.target_real[i]], alone[0], atol=TOLERANCE, rtol=0)
    assert (together[~batch.target_real] == 0).all()


@pytest.mark.parametrize("name", FAMILY)
@given(batch=batches(), seed=st.integers(0, 2**31))
def test_what_stands_at_a_pad_does_not_matter(name: str, batch: Batch, seed: int) -> None:
    network = make(FAMILY[name])
    other = torch.randint(0, VOCABULARY, batch.target.shape, generator=torch.Generator().manual_seed(seed))
    replaced = Batch(batch.source, batch.source_real, batch.target.where(batch.target_real, other), batch.target_real)
    torch.testing.assert_close(hidden(network, batch), hidden(network, replaced), atol=0, rtol=0)


@pytest.mark.parametrize("name", DECODERS)
@given(batch=batches(), data=st.data())
def test_cached_decoding_equals_uncached_for_any_split_of_the_prefix(
    name: str, batch: Batch, data: st.DataObject
) -> None:
    network = make(DECODERS[name])
    memory = memory_of(network, batch)
    whole = network.decode(batch.target, memory, real=batch.target_real)
    length = batch.target.size(1)
    cuts = sorted(data.draw(st.sets(st.integers(1, length - 1)))) if length > 1 else []
    cache, pieces = network.new_cache(), []
    for start, end in zip([0, *cuts], [*cuts, length], strict=True):
        piece = slice(start, end)
        pieces.append(network.decode(batch.target[:, piece], memory, cache, real=batch.target_real[:, piece]))
        assert cache.length == end
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", DECODERS)
@given(batch=batches(rows=3, longest=5), data=st.data())
def test_a_cache_of_selected_rows_is_the_cache_of_those_rows(name: str, batch: Batch, data: st.DataObject) -> None:
    network = make(DECODERS[name])
    rows = torch.tensor(data.draw(st.lists(st.integers(0, len(batch.target) - 1), min_size=1, max_size=5)))
    memory = memory_of(network, batch)
    cache = network.new_cache()
    network.decode(batch.target, memory, cache, real=batch.target_real)
    following = torch.randint(0, VOCABULARY, (len(rows), 2))
    chosen = None if memory is None else memory.select(rows)
    step = network.decode(following, chosen, cache.select(rows))
    whole = torch.cat([batch.target[rows], following], dim=1)
    real = torch.cat([batch.target_real[rows], torch.ones_like(following).bool()], dim=1)
    expected = network.decode(whole, chosen, real=real)[:, -2:]
    torch.testing.assert_close(step, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", DECODERS)
@given(batch=batches(rows=2, longest=6), data=st.data())
def test_no_position_depends_on_a_later_one(name: str, batch: Batch, data: st.DataObject) -> None:
    network = make(DECODERS[name])
    position = data.draw(st.integers(0, batch.target.size(1) - 1))
    seen: list[Tensor] = []

    def watch(_module: object, _arguments: object, x: Tensor) -> Tensor:
        seen.append(x.detach().requires_grad_())
        return seen[-1]

    hook = network.taps["decoder.embedding.sum"].register_forward_hook(watch)
    states = network.decode(batch.target, memory_of(network, batch), real=batch.target_real)
    hook.remove()
    weights = torch.randn_like(states[:, position])
    (states[:, position] * weights).sum().backward()
    gradient = seen[0].grad
    assert gradient is not None
    assert (gradient[:, position + 1 :] == 0).all()
    assert (gradient[:, position][batch.target_real[:, position]] != 0).any(-1).all()


@pytest.mark.parametrize("name", DECODERS)
@given(batch=batches(), data=st.data())
def test_changing_a_later_token_changes_no_earlier_output(name: str, batch: Batch, data: st.DataObject) -> None:
    network = make(DECODERS[name])
    position = data.draw(st.integers(0, batch.target.size(1) - 1))
    changed = batch.target.clone()
    changed[:, position] = (changed[:, position] + 1) % VOCABULARY
    memory = memory_of(network, batch)
    before = network.decode(batch.target, memory, real=batch.target_real)
    after = network.decode(changed, memory, real=batch.target_real)
    assert torch.equal(before[:, :position], after[:, :position])


def test_without_the_look_ahead_mask_a_decoder_does_see_the_future() -> None:
    network = make(DecoderOnly(vocabulary=VOCABULARY, width=16, heads=2, layers=1, look_ahead_mask=False))
    ids = torch.tensor([[1, 2, 3]])
    changed = torch.tensor([[1, 2, 4]])
    assert (network.decode(ids)[:, 0] - network.decode(changed)[:, 0]).abs().max() > 1e-3


@given(seed=st.integers(0, 2**31), length=st.integers(2, 8))
def test_permuting_inputs_permutes_outputs_when_positions_are_off(seed: int, length: int) -> None:
    network = make(EncoderOnly(vocabulary=VOCABULARY, width=16, heads=4, layers=2, positions=NoPositions()))
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCABULARY, (2, length), generator=generator)
    order = torch.randperm(length, generator=generator)
    states, permuted = network.encode(ids).states, network.encode(ids[:, order]).states
    torch.testing.assert_close(permuted, states[:, order], atol=TOLERANCE, rtol=0)


def test_permuting_inputs_changes_outputs_when_positions_are_on() -> None:
    network = make(ENCODERS["encoder-only"])
    ids = torch.tensor([[1, 2, 3, 4]])
    states, reversed_ = network.encode(ids).states, network.encode(ids.flip(1)).states
    assert (states - reversed_.flip(1)).abs().max() > 1e-2


@pytest.mark.parametrize("name", FAMILY)
@given(batch=batches())
def test_masked_keys_weigh_exactly_zero(name: str, batch: Batch) -> None:
    network = make(FAMILY[name])
    with open_taps(network) as seen:
        hidden(network, batch)
    for tap, weights in seen.items():
        if tap.endswith("kernel.weights"):
            of_source = "cross_attention" in tap or (tap.startswith("encoder") and hasattr(network, "decoder"))
            real = batch.source_real if of_source else batch.target_real
            assert (weights.masked_select(~real[:, None, None, :]) == 0).all()
            if tap.startswith("decoder") and "cross" not in tap:
                assert (weights.triu(1) == 0).all()
            total = weights.sum(-1)
            assert ((total - 1).abs() < TOLERANCE).logical_or(total == 0).all()


@pytest.mark.parametrize("name", FAMILY)
def test_gradients_agree_with_finite_differences(name: str) -> None:
    network = make(FAMILY[name])
    source, target = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([[6, 7, 8], [9, 0, 0]])
    batch = Batch(
        source, torch.tensor([[1, 1, 1], [1, 1, 0]]).bool(), target, torch.tensor([[1, 1, 1], [1, 0, 0]]).bool()
    )

    def loss() -> Tensor:
        states = hidden(network, batch)[batch.target_real]
        if name in ENCODERS:
            return states.sin().sum()
        return F.cross_entropy(network.logits(states), batch.target[batch.target_real].roll(-1))

    loss().backward()
    for parameter_name, parameter in network.named_parameters():
        if parameter.grad is None:
            assert parameter_name.startswith("pooling")
            continue
        # a random direction through all entries, and the single entry with the steepest slope
        steepest = torch.zeros_like(parameter)
        steepest.view(-1)[parameter.grad.abs().argmax()] = 1
        for direction in (torch.randn_like(parameter), steepest):
            step = 1e-6
            with torch.no_grad():
                parameter.add_(step * direction)
                above = loss()
                parameter.sub_(2 * step * direction)
                below = loss()
                parameter.add_(step * direction)
            slope = (parameter.grad * direction).sum()
            torch.testing.assert_close((above - below) / (2 * step), slope, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", FAMILY)
@given(batch=batches())
def test_open_taps_change_nothing(name: str, batch: Batch) -> None:
    network = make(FAMILY[name])
    closed = hidden(network, batch)
    with open_taps(network):
        watched = hidden(network, batch)
    torch.testing.assert_close(watched, closed, atol=TOLERANCE, rtol=0)
