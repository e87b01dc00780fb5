"""The bidirectional language model: neither direction sees what it predicts, and layers are mixed as the paper says."""

import pytest
import torch
from torch import Tensor

from family import TOLERANCE, VOCABULARY, make
from regard.config import BidirectionalLanguageModelConfig, ClassHeadConfig
from regard.config.sources import load_config
from regard.errors import ConfigError, InputError
from regard.models.recurrent import BidirectionalLanguageModel as Network
from regard.nn import open_taps
from regard.nn.bidirectional_stack import LayerMixing

WIDTH, LAYERS = 16, 2


def network_of(**settings: object) -> Network:
    shape = {"vocab_size": VOCABULARY, "width": WIDTH, "layers": LAYERS, **settings}
    network = make(BidirectionalLanguageModelConfig.model_validate(shape))
    assert isinstance(network, Network)
    return network


def watched(network: Network, text: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The logits (T, 2, V) of a text (T + 1), and the embeddings of what each direction read, to ask for gradients."""
    read: list[Tensor] = []

    def leaf(_module: object, _arguments: object, x: Tensor) -> Tensor:
        read.append(x.detach().requires_grad_())
        return read[-1]

    hook = network.encoder.embedding.lookup.register_forward_hook(leaf)
    hidden = network.bidirectional_states(text[None, :-1], text[None, 1:])
    hook.remove()
    return network.logits(hidden)[0], read


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_neither_direction_sees_the_token_it_predicts_or_what_lies_beyond(cell: str) -> None:
    text = torch.randint(0, VOCABULARY, (7,))
    for place in range(6):  # between tokens `place` and `place + 1`
        for direction in (0, 1):
            logits, (ahead, back) = watched(network_of(cell=cell), text)
            ahead_felt, back_felt = torch.autograd.grad(
                logits[place, direction].sin().sum(), [ahead, back], allow_unused=True, materialize_grads=True
            )
            felt_ahead = ahead_felt[0].abs().sum(-1).nonzero().flatten().tolist()  # of tokens 0 … 5
            felt_back = (back_felt[0].abs().sum(-1).nonzero().flatten() + 1).tolist()  # of tokens 1 … 6
            if direction == 0:  # says what token `place + 1` is
                assert (felt_ahead, felt_back) == (list(range(place + 1)), [])
            else:  # says what token `place` is
                assert (felt_ahead, felt_back) == ([], list(range(place + 1, 7)))


def test_backwards_begins_at_each_rows_end_and_at_each_documents() -> None:
    network = network_of()
    text = torch.randint(0, VOCABULARY, (6,))
    ids, following = text[:-1], text[1:]
    alone = network.bidirectional_states(ids[None], following[None])[0]
    mask = torch.tensor([[True] * 5 + [False] * 3, [False, False] + [True] * 5 + [False]])
    rows = torch.zeros(2, 8).long()
    rows[mask], later = ids.repeat(2), torch.ones(2, 8).long()
    later[mask] = following.repeat(2)
    together = network.bidirectional_states(rows, later, mask)
    torch.testing.assert_close(together[mask], alone.repeat(2, 1), atol=TOLERANCE, rtol=0)
    documents = torch.tensor([[1] * 5 + [2] * 5])
    shared = network.bidirectional_states(
        ids.repeat(2)[None], following.repeat(2)[None], features={"document_ids": documents}
    )
    torch.testing.assert_close(shared[0], alone.repeat(2, 1), atol=TOLERANCE, rtol=0)


def test_a_tokens_vector_is_the_weighted_sum_of_its_layers() -> None:
    network = network_of()
    ids = torch.randint(0, VOCABULARY, (2, 5))
    with open_taps(network) as seen:
        states = network.encode(ids).states
    scalars = network.mixing.scalars
    s = scalars.exp() / scalars.exp().sum()
    h = [seen[f"encoder.states.{layer}"] for layer in range(LAYERS + 1)]
    expected = network.mixing.scale * (s[0] * h[0] + s[1] * h[1] + s[2] * h[2])
    torch.testing.assert_close(states, expected, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(seen["mixing.weights"], s.detach())
    once, again = h[0].chunk(2, dim=-1)
    assert torch.equal(once, again)  # the embedding has no direction
    assert states.shape == (2, 5, WIDTH)


def test_at_first_all_layers_weigh_the_same() -> None:
    mixing = LayerMixing(3)
    layers = [torch.full((1, 1, 2), value) for value in (1.0, 2.0, 6.0)]
    assert mixing(layers).tolist() == [[[3.0, 3.0]]]


def test_a_task_learns_how_to_mix() -> None:
    network = network_of(head=ClassHeadConfig(labels=("bad", "good")))
    network.logits(network(torch.randint(0, VOCABULARY, (2, 5)))).sin().sum().backward()
    for parameter in (network.mixing.scalars, network.mixing.scale):
        assert parameter.grad is not None
        assert parameter.grad.abs().min() > 0


def test_what_it_cannot_take_gets_a_sentence() -> None:
    with pytest.raises(InputError) as refused:
        network_of().encode(torch.zeros(2, 0).long())
    assert str(refused.value) == "The ids have shape (2, 0); they should be (rows, length), with at least one token."
    with pytest.raises(ConfigError) as error:
        load_config(None, ["model.kind=bidirectional-language-model", "model.width=31"])
    message = "--set model.width=31: model.width = 31 should be even, with half of it per direction: use 32."
    assert str(error.value) == message
