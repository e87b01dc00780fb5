"""The bidirectional language model: no direction sees the token it predicts, and layers are mixed as in the paper."""

import pytest
import torch
from torch import Tensor

from family import TOLERANCE, VOCABULARY, make
from regard.config import BidirectionalLanguageModelConfig, ClassHeadConfig
from regard.config.sources import load_config
from regard.errors import ConfigError, InputError
from regard.models.recurrent import BidirectionalLanguageModel as Network
from regard.nn import open_taps
from regard.nn.recurrent_stack import LayerMixing

WIDTH, LAYERS = 16, 2


def network_of(**settings: object) -> Network:
    shape = {"vocab_size": VOCABULARY, "width": WIDTH, "layers": LAYERS, **settings}
    network = make(BidirectionalLanguageModelConfig.model_validate(shape))
    assert isinstance(network, Network)
    return network


def logits_and_inputs(network: Network, text: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the logits (T, 2, V) of a text (T + 1), and the embeddings of both directions' inputs, for gradients."""
    inputs: list[Tensor] = []

    def leaf(_module: object, _arguments: object, x: Tensor) -> Tensor:
        inputs.append(x.detach().requires_grad_())
        return inputs[-1]

    hook = network.encoder.embedding.lookup.register_forward_hook(leaf)
    hidden = network.bidirectional_states(text[None, :-1], text[None, 1:])
    hook.remove()
    return network.logits(hidden)[0], inputs


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_no_direction_depends_on_the_token_it_predicts_or_later_ones(cell: str) -> None:
    text = torch.randint(0, VOCABULARY, (7,))
    for place in range(6):  # between the tokens `place` and `place + 1`
        for direction in (0, 1):
            logits, (ahead, back) = logits_and_inputs(network_of(cell=cell), text)
            ahead_gradient, back_gradient = torch.autograd.grad(
                logits[place, direction].sin().sum(), [ahead, back], allow_unused=True, materialize_grads=True
            )
            ahead_tokens = ahead_gradient[0].abs().sum(-1).nonzero().flatten().tolist()  # of tokens 0 … 5
            back_tokens = (back_gradient[0].abs().sum(-1).nonzero().flatten() + 1).tolist()  # of tokens 1 … 6
            if direction == 0:  # predicts token `place + 1`
                assert (ahead_tokens, back_tokens) == (list(range(place + 1)), [])
            else:  # predicts token `place`
                assert (ahead_tokens, back_tokens) == ([], list(range(place + 1, 7)))


def test_the_backward_direction_starts_at_the_end_of_each_row_or_document() -> None:
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


def test_token_states_are_the_weighted_sum_of_the_layers() -> None:
    network = network_of()
    ids = torch.randint(0, VOCABULARY, (2, 5))
    with open_taps(network) as values:
        states = network.encode(ids).states
    scalars = network.mixing.scalars
    s = scalars.exp() / scalars.exp().sum()
    h = [values[f"encoder.states.{layer}"] for layer in range(LAYERS + 1)]
    expected = network.mixing.scale * (s[0] * h[0] + s[1] * h[1] + s[2] * h[2])
    torch.testing.assert_close(states, expected, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(values["mixing.weights"], s.detach())
    first, second = h[0].chunk(2, dim=-1)
    assert torch.equal(first, second)  # the embedding has no direction
    assert states.shape == (2, 5, WIDTH)


def test_layers_have_equal_weights_at_initialization() -> None:
    mixing = LayerMixing(3)
    layers = [torch.full((1, 1, 2), value) for value in (1.0, 2.0, 6.0)]
    assert mixing(layers).tolist() == [[[3.0, 3.0]]]


def test_mixing_weights_get_gradients() -> None:
    network = network_of(head=ClassHeadConfig(labels=("bad", "good")))
    network.logits(network(torch.randint(0, VOCABULARY, (2, 5)))).sin().sum().backward()
    for parameter in (network.mixing.scalars, network.mixing.scale):
        assert parameter.grad is not None
        assert parameter.grad.abs().min() > 0


def test_empty_inputs_and_odd_widths_are_errors() -> None:
    with pytest.raises(InputError) as input_error:
        network_of().encode(torch.zeros(2, 0).long())
    assert (
        str(input_error.value) == "The ids have shape (2, 0); they should be (rows, length), with at least one token."
    )
    with pytest.raises(ConfigError) as error:
        load_config(None, ["model.kind=bidirectional-language-model", "model.width=31"])
    message = "--set model.width=31: model.width = 31 should be even, with half of it per direction: use 32."
    assert str(error.value) == message
