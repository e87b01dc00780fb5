"""A training step on the meta device: no value is read but the loss and the gradient norm, and no tensor is astray."""

from dataclasses import replace

import pytest
import torch

from device_checks import LENGTHS, META, DeviceSpy, objective_and_batch, reads, right_padded
from family import DECODERS, ENCODERS, FAMILY, MIXTURES
from regard.config import AdamWConfig, EncoderConfig, NoHeadConfig
from regard.errors import InputError
from regard.models.assembly import build_meta
from regard.nn import MixtureOfExperts, cpu
from regard.nn.attention import scaled_dot_product_attention
from regard.nn.layout import PaddingMask, find_padding, make_layout
from regard.training.batches import TokenBatch
from regard.training.distributed import ProcessGroup
from regard.training.load_balancing import LoadBalancing
from regard.training.losses import CausalLMObjective, RDrop
from regard.training.optimizers import build_optimizer, update

ON_META = ProcessGroup(device=META)
TRAINED = [
    name
    for name, config in FAMILY.items()
    if not (isinstance(config, EncoderConfig) and isinstance(config.head, NoHeadConfig)) and name not in MIXTURES
]


@pytest.mark.parametrize("name", TRAINED)
def test_a_step_reads_one_tensor(name: str) -> None:
    objective, batch = objective_and_batch(FAMILY[name], meta=True)
    optimizer = build_optimizer(objective.network, AdamWConfig())
    with reads([30.0, 20.0, 1.5]) as sizes, DeviceSpy() as spy:
        result = update(objective, optimizer, [batch, batch], 0.1, max_grad_norm=1.0, process_group=ON_META)
    assert sizes == [3]
    assert spy.mixed == []
    assert (result.loss, result.cross_entropy, result.grad_norm) == (30.0, 20.0, 1.5)
    assert result.targets == 2 * batch.targets
    trained = [p for p in objective.network.parameters() if p.requires_grad]
    assert all(p.grad is not None and p.grad.device == META for p in trained)


@pytest.mark.parametrize("name", MIXTURES)
def test_experts_also_read_how_many_tokens_they_have(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    objective, batch = objective_and_batch(FAMILY[name], meta=True)
    network, shapes = objective.network, []

    def loads(mixture: MixtureOfExperts, chosen: torch.Tensor) -> list[int]:
        shapes.append(tuple(chosen.shape))
        return [chosen.numel(), *[0] * (len(mixture.experts) - 1)]

    monkeypatch.setattr(MixtureOfExperts, "loads", loads)
    balancing, optimizer = LoadBalancing.of(network, 1.0), build_optimizer(network, AdamWConfig())
    with reads([30.0, 20.0, 1.1, 1.5]) as sizes, DeviceSpy() as spy:
        result = update(objective, optimizer, [batch], 0.1, process_group=ON_META, balancing=balancing)
    assert (sizes, spy.mixed, result.balance) == ([4], [], 1.1)
    assert len(shapes) == sum(isinstance(module, MixtureOfExperts) for module in network.modules())


@pytest.mark.parametrize("name", ["encoder-decoder", "decoder-only, rotary in halves"])
def test_rdrop_reads_one_tensor(name: str) -> None:
    objective, batch = objective_and_batch(DECODERS[name], meta=True)
    optimizer = build_optimizer(objective.network, AdamWConfig())
    with reads([30.0, 20.0, 1.5]) as sizes:
        update(RDrop(objective, 0.5), optimizer, [batch], 0.1, process_group=ON_META)
    assert sizes == [3]


@pytest.mark.parametrize("name", [name for name in ENCODERS if name not in MIXTURES])
def test_encoders_read_nothing(name: str) -> None:
    network, (ids, mask) = build_meta(ENCODERS[name]), right_padded(LENGTHS)
    with torch.no_grad(), DeviceSpy() as spy:
        vectors = network(ids.to(META), PaddingMask(mask.to(META), mask))
    assert vectors.shape == (len(LENGTHS), ENCODERS[name].width)
    assert spy.mixed == []


def test_a_mask_without_its_copy_is_read() -> None:
    network, (ids, mask) = build_meta(ENCODERS["encoder-only"]), right_padded(LENGTHS)
    with pytest.raises(NotImplementedError, match="meta"):  # so the tests above would notice it
        network(ids.to(META), mask.to(META))


@pytest.mark.parametrize("name", ["decoder-only", "recurrent language model, LSTM"])
@pytest.mark.parametrize("padded", [True, False])
def test_documents_in_one_row_read_nothing(name: str, padded: bool) -> None:
    network, (ids, mask) = build_meta(DECODERS[name]), right_padded(LENGTHS if padded else [7, 7, 7])
    documents = {"document_ids": torch.where(mask, 1 + (torch.arange(7) > 2).long(), 0)}
    batch = TokenBatch(ids, ids.roll(-1, 1), mask, features=documents)
    with reads([30.0, 20.0, 1.5]) as sizes:
        optimizer = build_optimizer(network, AdamWConfig())
        update(CausalLMObjective(network, 0.0), optimizer, [batch], 0.1, process_group=ON_META)
    assert sizes == [3]


def test_the_spy_sees_a_tensor_of_the_cpu() -> None:
    with DeviceSpy() as spy:
        torch.ones(2, device=META)[torch.tensor([0])]  # a GPU would wait for a copy of the index
    assert spy.mixed == ["aten.index.Tensor"]


@pytest.mark.parametrize(
    "name", ["encoder-decoder, relative", "encoder-decoder, BigBird", "encoder-decoder, Linformer"]
)
def test_a_mask_with_its_copy_gives_the_same_numbers(name: str) -> None:
    objective, batch = objective_and_batch(DECODERS[name], meta=False)
    assert isinstance(batch, TokenBatch)
    network, ids = objective.network.eval(), (batch.source, batch.target)
    masks = [mask for mask in (batch.source_mask, batch.target_mask) if mask is not None]
    assert torch.equal(network(*ids, *(PaddingMask(mask, mask.clone()) for mask in masks)), network(*ids, *masks))


def test_full_masks_are_no_masks_and_wrong_ones_are_errors() -> None:
    full = torch.ones(2, 3, dtype=torch.bool)
    assert find_padding(PaddingMask(full, full), full.shape) is None
    with pytest.raises(InputError, match=r"torch.bool of shape \(2, 4\)"):
        find_padding(PaddingMask(full, full), torch.Size([2, 4]))


def test_batches_keep_their_copy_on_the_cpu() -> None:
    ids, mask = right_padded(LENGTHS)
    batch = TokenBatch(ids, ids, mask)
    moved = batch.to(META)
    assert moved.target.device == META
    assert moved.host is batch
    assert moved.repeated().host.target.tolist() == [*ids.tolist(), *ids.tolist()]
    assert moved.shard(1, 2).host.target.tolist() == ids[1::2].tolist()
    assert moved.mask_of("target_mask").slots.device == META  # type: ignore[union-attr]
    assert batch.to(torch.device("cpu")) is batch
    assert batch.local(0, 1, META) is batch.local(0, 1, META)


@pytest.mark.parametrize("loss", ["cross entropy", "R-Drop"])
def test_the_loss_in_chunks_equals_the_whole(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.nn.embedding import OutputProjection
    from regard.training import losses

    torch.manual_seed(1)
    output = OutputProjection(torch.nn.Parameter(torch.randn(23, 8)), bias=True)
    first, second, targets = torch.randn(10, 8), torch.randn(10, 8), torch.randint(0, 23, (10,))
    results = []
    for chunk in (2**20, 3 * 23, 1):
        monkeypatch.setattr(losses, "CHUNK_LOGITS", chunk)
        states = [x.clone().requires_grad_() for x in (first, second)]
        with cpu.disabled():
            if loss == "R-Drop":
                result = losses.projected_rdrop(states[0], states[1], output, targets, 0.1, 0.7)
            else:
                result = losses.projected_cross_entropy(states[0], output, targets, 0.1)
            inputs = [*states[: 2 if loss == "R-Drop" else 1], output.weight, output.bias]
            gradients = torch.autograd.grad(result.loss, inputs)  # type: ignore[arg-type]
        results.append([result.loss, result.cross_entropy, *gradients])
        assert result.targets == 10
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("starts", "features", "fused"),
    [
        ([0, 0, 0], None, True),
        ([0, 2, 0], None, False),  # padding comes first in a row
        ([0, 0, 0], {"document_ids": torch.ones(3, 7, dtype=torch.long)}, False),
    ],
)
def test_gpus_use_the_causal_kernel_if_padding_comes_last(
    starts: list[int], features: dict[str, torch.Tensor] | None, fused: bool
) -> None:
    place, first = torch.arange(7), torch.tensor(starts)[:, None]
    mask = (place >= first) & (place < first + torch.tensor([[7], [4], [5]]))
    layout = make_layout(mask.long(), mask, causal=True, pack=False, features=features)
    assert not layout.mask.is_square_causal  # on CPUs the mask is used
    on_gpu = replace(layout.mask, device=META)
    assert on_gpu.is_square_causal == fused
    if not fused:
        return
    q, k, v = torch.randn(3, 3, 2, 7, 4).unbind(0)
    with cpu.disabled():
        masked, out = (
            scaled_dot_product_attention(q, k, v, one, None, scale=0.5, dropout=0.0) for one in (layout.mask, on_gpu)
        )
    torch.testing.assert_close(out.transpose(1, 2)[mask], masked.transpose(1, 2)[mask])
