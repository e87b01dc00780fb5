"""Properties that hold for every network of tests/family.py."""

from contextlib import nullcontext
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from family import DECODERS, ENCODERS, FAMILY, GROUPED, MIXTURES, TOLERANCE, VOCABULARY, Batch, batches, hidden, make
from regard.config import DecoderOnlyConfig, EncoderOnlyConfig, NoPositionsConfig, TransformerConfig, load_config
from regard.errors import ConfigError, InputError
from regard.interop.hf_spec import to_tensors
from regard.interop.weight_transforms import repeat_kv_heads
from regard.models import Memory, Network
from regard.models.folder import assign_tensors, named_tensors
from regard.models.network import EncoderNetwork
from regard.nn import DecoderCache, LinformerAttention, cpu, open_taps

few_examples = settings(max_examples=min(10, settings().max_examples))  # of each of many networks


def network_of(name: str) -> Network:
    """Return a network for tests that do not change it; it is built once, since that takes longer than most tests."""
    torch.manual_seed(0)  # repeated examples draw the same numbers
    return _made(name)


@cache
def _made(name: str) -> Network:
    return make(FAMILY[name])


def memory_of(network: Network, batch: Batch) -> Memory | None:
    return network.encode(batch.source, batch.source_mask, batch.features) if network.encodes else None


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
@few_examples
@given(batch=batches())
def test_a_batch_equals_its_rows_for_any_padding(name: str, batch: Batch) -> None:
    network = network_of(name)
    together = hidden(network, batch)
    for i in range(len(batch.target)):
        alone = hidden(network, batch.row(i))
        torch.testing.assert_close(together[i][batch.target_mask[i]], alone[0], atol=TOLERANCE, rtol=0)
    assert (together[~batch.target_mask] == 0).all()


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("name", FAMILY)
@few_examples
@given(batch=batches(), seed=st.integers(0, 2**31))
def test_token_ids_at_padding_do_not_matter(name: str, watched: bool, batch: Batch, seed: int) -> None:
    network = network_of(name)
    generator = torch.Generator().manual_seed(seed)

    def replaced(ids: Tensor, mask: Tensor) -> Tensor:
        return ids.where(mask, torch.randint(0, VOCABULARY, ids.shape, generator=generator))

    source, target = replaced(batch.source, batch.source_mask), replaced(batch.target, batch.target_mask)
    with open_taps(network) if watched else nullcontext():  # with open taps, padding is computed
        before = hidden(network, batch)
        after = hidden(network, Batch(source, batch.source_mask, target, batch.target_mask))
    torch.testing.assert_close(before, after, atol=0, rtol=0)


@pytest.mark.parametrize("name", ENCODERS)
@few_examples
@given(batch=batches())
def test_pooled_vectors_do_not_depend_on_padding(name: str, batch: Batch) -> None:
    network = network_of(name)
    together = network(batch.target, batch.target_mask)
    for i in range(len(batch.target)):
        alone = network(batch.row(i).target)
        torch.testing.assert_close(together[i], alone[0], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", [name for name, config in DECODERS.items() if config.generates])
@few_examples
@given(seed=st.integers(0, 2**31), lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5), padded=st.booleans())
def test_documents_in_one_row_are_independent(name: str, seed: int, lengths: list[int], padded: bool) -> None:
    network = network_of(name)
    generator = torch.Generator().manual_seed(seed)
    texts = [torch.randint(0, VOCABULARY, (length,), generator=generator) for length in lengths]
    pads = torch.zeros(3 if padded else 0).long()
    row = torch.cat([*texts, pads])[None]
    numbers = torch.cat([torch.full((length,), n) for n, length in enumerate(lengths)] + [pads])[None]
    mask = torch.arange(row.size(1))[None] < sum(lengths)
    together = network.decode(row, mask=mask, features={"document_ids": numbers})
    alone = torch.cat([network.decode(text[None]) for text in texts], dim=1)
    torch.testing.assert_close(together[mask], alone[0], atol=TOLERANCE, rtol=0)


def test_padding_is_skipped_on_cpus() -> None:
    network = make(DECODERS["encoder-decoder"])
    shapes: list[tuple[int, ...]] = []
    linear = network.get_submodule("encoder.layers.0.feed_forward.inner")
    linear.register_forward_hook(lambda _module, arguments, _output: shapes.append(tuple(arguments[0].shape)))
    network.encode(torch.ones(2, 5).long(), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool())
    assert shapes == [(7, 16)]


def test_keys_of_the_memory_are_computed_once() -> None:
    network = make(DECODERS["encoder-decoder"])
    calls: list[int] = []
    linear = network.get_submodule("decoder.layers.0.cross_attention.key_value")
    linear.register_forward_hook(lambda *_: calls.append(1))
    memory, cache = network.encode(torch.ones(1, 4).long()), network.new_cache()
    for _ in range(3):
        network.decode(torch.ones(1, 1).long(), memory, cache)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "mask", [torch.ones(2, 3), torch.ones(2, 3).long(), torch.ones(1, 3).bool(), torch.ones(2, 2).bool()]
)
def test_a_padding_mask_of_another_dtype_or_shape_is_an_error(mask: Tensor) -> None:
    network = make(DECODERS["encoder-decoder"])
    ids = torch.ones(2, 3).long()
    message = (
        f"The padding mask is {mask.dtype} of shape {tuple(mask.shape)}; for these tokens it should be torch.bool "
        "of shape (2, 3), True at tokens and False at padding."
    )
    memory = network.encode(ids)
    for call in (
        lambda: network.encode(ids, mask),
        lambda: network.decode(ids, memory, mask=mask),
        lambda: network.decode(ids, Memory(memory.states, mask)),
    ):
        with pytest.raises(InputError) as error:
            call()
        assert str(error.value) == message


def test_unsupported_calls_are_errors() -> None:
    ids = torch.ones(1, 2).long()
    encoder, decoder = make(ENCODERS["encoder-only"]), make(DECODERS["decoder-only"])
    assert (encoder.encodes, encoder.decodes) == (True, False)
    assert (decoder.encodes, decoder.decodes) == (False, True)
    with pytest.raises(InputError, match=r"DecoderOnlyTransformer has no encoder\."):
        decoder.encode(ids)
    with pytest.raises(InputError, match=r"EncoderOnlyTransformer has no decoder\."):
        encoder.decode(ids)
    with pytest.raises(InputError, match=r"EncoderOnlyTransformer has no decoder\."):
        encoder.new_cache()
    with pytest.raises(InputError, match=r"EncoderOnlyTransformer predicts no tokens\."):
        encoder.logits(torch.zeros(1, 16))


@pytest.mark.parametrize("name", DECODERS)
@few_examples
@given(batch=batches(), data=st.data())
def test_cached_decoding_equals_uncached_decoding_for_any_split(name: str, batch: Batch, data: st.DataObject) -> None:
    network = network_of(name)
    memory = memory_of(network, batch)
    whole = network.decode(batch.target, memory, mask=batch.target_mask)
    length = batch.target.size(1)
    cuts = sorted(data.draw(st.sets(st.integers(1, length - 1)))) if length > 1 else []
    cache, pieces = network.new_cache(), []
    for start, end in zip([0, *cuts], [*cuts, length], strict=True):
        piece = slice(start, end)
        pieces.append(network.decode(batch.target[:, piece], memory, cache, mask=batch.target_mask[:, piece]))
        assert cache.length == end
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", DECODERS)
@few_examples
@given(batch=batches(rows=3, longest=5), data=st.data())
def test_a_selected_cache_equals_the_cache_of_the_selected_rows(name: str, batch: Batch, data: st.DataObject) -> None:
    network = network_of(name)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, len(batch.target) - 1), min_size=1, max_size=5)))
    memory = memory_of(network, batch)
    cache = network.new_cache()
    network.decode(batch.target, memory, cache, mask=batch.target_mask)
    following = torch.randint(0, VOCABULARY, (len(rows), 2))
    selected = None if memory is None else memory.select(rows)
    step = network.decode(following, selected, cache.select(rows))
    whole = torch.cat([batch.target[rows], following], dim=1)
    mask = torch.cat([batch.target_mask[rows], torch.ones_like(following).bool()], dim=1)
    expected = network.decode(whole, selected, mask=mask)[:, -2:]
    torch.testing.assert_close(step, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", DECODERS)
@few_examples
@given(batch=batches(rows=2, longest=6), data=st.data())
def test_gradients_of_later_positions_are_zero(name: str, batch: Batch, data: st.DataObject) -> None:
    network = network_of(name)
    position = data.draw(st.integers(0, batch.target.size(1) - 1))
    recorded: list[Tensor] = []

    def watch(_module: object, _arguments: object, x: Tensor) -> Tensor:
        recorded.append(x.detach().requires_grad_())
        return recorded[-1]

    hook = network.taps["decoder.embedding.sum"].register_forward_hook(watch)
    states = network.decode(batch.target, memory_of(network, batch), mask=batch.target_mask)
    hook.remove()
    weights = torch.randn_like(states[:, position])
    (states[:, position] * weights).sum().backward()
    gradient = recorded[0].grad
    assert gradient is not None
    assert (gradient[:, position + 1 :] == 0).all()
    assert (gradient[:, position][batch.target_mask[:, position]] != 0).any(-1).all()


@pytest.mark.parametrize("name", DECODERS)
@few_examples
@given(batch=batches(), data=st.data())
def test_changing_a_token_changes_no_earlier_output(name: str, batch: Batch, data: st.DataObject) -> None:
    network = network_of(name)
    position = data.draw(st.integers(0, batch.target.size(1) - 1))
    changed = batch.target.clone()
    changed[:, position] = (changed[:, position] + 1) % VOCABULARY
    memory = memory_of(network, batch)
    before = network.decode(batch.target, memory, mask=batch.target_mask)
    after = network.decode(changed, memory, mask=batch.target_mask)
    rounding = TOLERANCE if name in MIXTURES else 0.0  # products of an expert have as many rows as it has tokens
    torch.testing.assert_close(after[:, :position], before[:, :position], atol=rounding, rtol=0)


def test_without_causal_mask_a_decoder_attends_to_later_tokens() -> None:
    network = make(DecoderOnlyConfig(vocab_size=VOCABULARY, width=16, heads=2, layers=1, causal_mask=False))
    ids = torch.tensor([[1, 2, 3]])
    changed = torch.tensor([[1, 2, 4]])
    assert (network.decode(ids)[:, 0] - network.decode(changed)[:, 0]).abs().max() > 1e-3


@given(seed=st.integers(0, 2**31), length=st.integers(2, 8))
def test_permuting_inputs_permutes_outputs_without_positions(seed: int, length: int) -> None:
    network = make(EncoderOnlyConfig(vocab_size=VOCABULARY, width=16, heads=4, layers=2, positions=NoPositionsConfig()))
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCABULARY, (2, length), generator=generator)
    order = torch.randperm(length, generator=generator)
    states, permuted = network.encode(ids).states, network.encode(ids[:, order]).states
    torch.testing.assert_close(permuted, states[:, order], atol=TOLERANCE, rtol=0)


def test_permuting_inputs_changes_outputs_with_positions() -> None:
    network = make(ENCODERS["encoder-only"])
    ids = torch.tensor([[1, 2, 3, 4]])
    states, reversed_ = network.encode(ids).states, network.encode(ids.flip(1)).states
    assert (states - reversed_.flip(1)).abs().max() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
@few_examples
@given(batch=batches())
def test_masked_keys_have_weight_zero(name: str, batch: Batch) -> None:
    network = network_of(name)
    with open_taps(network) as values:
        hidden(network, batch)
    for tap, weights in values.items():
        linformer = isinstance(network.get_submodule(tap.removesuffix(".weights")), LinformerAttention)
        if tap.endswith(("kernel.weights", "cross_attention.weights")) and not linformer:  # its weights are of mixtures
            of_source = "cross_attention" in tap or (tap.startswith("encoder") and network.decodes)
            mask = batch.source_mask if of_source else batch.target_mask
            assert (weights.masked_select(~mask[:, None, None, :]) == 0).all()
            if tap.startswith("decoder") and "cross" not in tap:
                assert (weights.triu(1) == 0).all()
            total = weights.sum(-1)
            assert ((total - 1).abs() < TOLERANCE).logical_or(total == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
def test_gradients_agree_with_finite_differences(name: str) -> None:
    network = make(FAMILY[name])
    source, target = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([[6, 7, 8], [9, 0, 0]])
    batch = Batch(
        source, torch.tensor([[1, 1, 1], [1, 1, 0]]).bool(), target, torch.tensor([[1, 1, 1], [1, 0, 0]]).bool()
    )

    def loss() -> Tensor:
        states = hidden(network, batch)[batch.target_mask]
        if isinstance(network, EncoderNetwork):
            return states.sin().sum() + (network.logits(states).sin().sum() if network.head is not None else 0)
        return F.cross_entropy(network.logits(states), batch.target[batch.target_mask].roll(-1))

    loss().backward()
    for parameter_name, parameter in network.named_parameters():
        if parameter.grad is None:
            assert parameter_name.startswith("pooling")
            continue
        direction = torch.randn_like(parameter)
        direction.view(-1)[parameter.grad.abs().argmax()] += 3  # the entry with the steepest slope counts most
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
@few_examples
@given(batch=batches())
def test_open_taps_do_not_change_the_output(name: str, batch: Batch) -> None:
    network = network_of(name)
    closed = hidden(network, batch)
    with open_taps(network):
        watched = hidden(network, batch)
    torch.testing.assert_close(watched, closed, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", FAMILY)
@few_examples
@given(batch=batches())
def test_cpu_paths_equal_plain_paths(name: str, batch: Batch) -> None:
    network = network_of(name)
    fast = hidden(network, batch)
    with cpu.disabled():
        plain = hidden(network, batch)
    torch.testing.assert_close(fast, plain, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", FAMILY)
def test_cpu_paths_have_the_gradients_of_plain_paths(name: str) -> None:
    network = make(FAMILY[name])
    ids, mask = torch.randint(1, VOCABULARY, (3, 6)), torch.arange(6) < torch.tensor([[6], [4], [1]])
    parameters = [p for n, p in network.named_parameters() if not n.startswith(("pooling", "head", "output"))]

    def gradients() -> tuple[Tensor, ...]:
        total = hidden(network, Batch(ids, mask, ids, mask)).sin().sum()
        return torch.autograd.grad(total, parameters, allow_unused=True)

    fast = gradients()
    with cpu.disabled():
        plain = gradients()
    for ours, reference in zip(fast, plain, strict=True):
        torch.testing.assert_close(ours, reference, atol=TOLERANCE, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPED)
@given(batch=batches())
def test_grouped_heads_equal_a_network_with_repeated_heads(name: str, batch: Batch) -> None:
    network, config = network_of(name), FAMILY[name]
    assert isinstance(config, TransformerConfig)
    repeated = make(config.model_copy(update={"kv_heads": None}))
    arrays = {name: tensor.numpy() for name, tensor in named_tensors(network).items()}
    assign_tensors(repeated, to_tensors(repeat_kv_heads(arrays, config)))
    torch.testing.assert_close(hidden(repeated, batch), hidden(network, batch), atol=TOLERANCE, rtol=0)


def test_the_cache_keeps_only_grouped_heads() -> None:
    network = make(FAMILY["encoder-decoder, grouped-query"])
    memory, cache = network.encode(torch.ones(1, 5).long()), network.new_cache()
    assert isinstance(cache, DecoderCache)
    network.decode(torch.ones(1, 3).long(), memory, cache)
    for part in (cache.layers[0].own, cache.layers[0].cross):
        assert part.keys is not None
        assert part.values is not None
        assert part.keys.shape[:2] == part.values.shape[:2] == (1, 2)


def test_all_heads_grouped_by_one_are_ordinary_heads() -> None:
    config = DecoderOnlyConfig(vocab_size=VOCABULARY, width=16, heads=4, layers=1, feed_forward=8)
    ids = torch.randint(0, VOCABULARY, (2, 5))
    ordinary, grouped = (make(config.model_copy(update={"kv_heads": count})) for count in (None, 4))
    assert torch.equal(ordinary.decode(ids), grouped.decode(ids))


@pytest.mark.parametrize(("kv_heads", "nearest"), [(3, "2 or 4"), (5, "4 or 8"), (9, "8")])
def test_kv_heads_must_divide_heads(kv_heads: int, nearest: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, ["model.heads=8", f"model.kv_heads={kv_heads}"])
    assert str(error.value) == (
        f"--set model.kv_heads={kv_heads}: model.kv_heads = {kv_heads} does not divide model.heads = 8: use {nearest}."
    )
