"""What passes the points of a network while it reads one sentence: recorded layer by layer, when someone asks.

A target is read in one pass, as in training, which gives the same numbers as decoding it token by token (the contract
of networks). One layer's taps are open at a time, and what was recorded is kept up to a bound; what was dropped is
recorded anew when it is asked for again. So a trace of a large network does not fill the memory.

S source length · T target length
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from regard.interpret.hooks import Seen, hooked
from regard.interpret.points import Point, points_of
from regard.models.network import EncoderNetwork, Memory, Network
from regard.models.recurrent import BidirectionalLanguageModel
from regard.nn.prediction_heads import BidirectionalLMHead, TextClassificationHead

KEPT = 2**26  # numbers of all layers together that are kept


class Recording:
    """One reading: `source` are the encoder's ids, `read` the decoder's; None where the network has no such stack.

    `facts` are what a parse tells of the source's tokens, by name; nothing where the network reads no parses.
    """

    def __init__(
        self,
        network: Network,
        source: Sequence[int] | None,
        read: Sequence[int] | None,
        facts: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        device = next(network.parameters()).device
        self.network = network
        self._asked = source, read, facts
        self.points = points_of(network)
        self._source = None if source is None else torch.tensor([source], device=device)  # (1, S)
        self._read = None if read is None else torch.tensor([read], device=device)  # (1, T)
        self.facts = {name: torch.tensor([fact], device=device) for name, fact in (facts or {}).items()}  # (1, S) each
        self._memory: Memory | None = None
        self._groups: OrderedDict[str, dict[str, Tensor]] = OrderedDict()
        self._turn = threading.RLock()

    def __call__(self, point: Point) -> Tensor:
        """What passed a point, the batch taken off: its axes are those that the point says."""
        if point.reads == "nothing" and point.restated is not None:
            return point.restated(torch.empty(0))
        with self._turn:  # two that ask at the same time do not record at the same time
            found = self._recorded(point)
        return found if point.restated is None else point.restated(found)

    def _recorded(self, point: Point) -> Tensor:
        if point.group not in self._groups:
            self._groups[point.group] = self._record(point.group)
            while len(self._groups) > 1 and self._size() > KEPT:
                self._groups.popitem(last=False)
        self._groups.move_to_end(point.group)
        return self._groups[point.group][_key(point)]

    @torch.no_grad()
    def logits(self) -> Tensor:
        """The logits of all that is predicted, a row each: what follows each token (T, V), or what a head tells.

        That is (1, L) of a text's label, (S, L) of tags, (S, V) of tokens, and (2 S, V) where they are guessed both
        ways: first forwards, then backwards, from each place.
        """
        return self.differentiable_logits()

    def differentiable_logits(self) -> Tensor:
        """The same for those who want gradients; of a recording that has recorded nothing else."""
        seen = self._read_out() if self._read is None else self._decoded()
        return self.network.logits(seen).float().flatten(0, -2)

    def again(self) -> "Recording":
        """The same reading, with nothing kept of this one: of a network that was changed meanwhile."""
        return Recording(self.network, *self._asked)

    def _size(self) -> int:
        return sum(tensor.numel() for group in self._groups.values() for tensor in group.values())

    @torch.no_grad()
    def _record(self, group: str) -> dict[str, Tensor]:
        members = {_key(point): point for point in self.points.values() if point.group == group}
        members = {key: point for key, point in members.items() if point.reads != "nothing"}
        seen: dict[str, list[Tensor]] = {key: [] for key in members}
        if not group.startswith("encoder"):
            self._encoded()  # before any tap is open
        with hooked([(point.module, _keeper(point, seen[key])) for key, point in members.items()]):
            match group.split(".")[0]:
                case "encoder":
                    self._memory = None
                    self._encoded()
                case "decoder":
                    self._decoded()
                case "output":
                    self.network.logits(self._decoded())
                case "pooling":
                    self._pooled()
                case "head":
                    self.network.logits(self._read_out())
        return {key: _whole(members[key], values) for key, values in seen.items()}

    def _encoded(self) -> Memory | None:
        if self._memory is None and self._source is not None:
            self._memory = self.network.encode(self._source, features=self.facts or None)
        return self._memory

    def _decoded(self) -> Tensor:
        assert self._read is not None
        return self.network.decode(self._read, self._encoded())

    def _pooled(self) -> Tensor:
        memory = self._encoded()
        assert isinstance(self.network, EncoderNetwork)
        assert memory is not None
        return self.network.pool(memory)

    def _read_out(self) -> Tensor:
        """What an encoder's head sees: the text's vector, the tokens', or the last layer of both directions."""
        network, memory = self.network, self._encoded()
        assert memory is not None
        match getattr(network, "head", None):
            case TextClassificationHead():
                return self._pooled()
            case BidirectionalLMHead() if isinstance(network, BidirectionalLanguageModel):
                layers: list[Tensor] = network.encoder(self._source)
                return layers[-1]
        return memory.states


def _key(point: Point) -> str:
    """Points that restate one another's numbers share what was recorded."""
    return f"{point.reads} {id(point.module)}"


def _keeper(point: Point, into: list[Tensor]) -> Seen:
    if point.reads == "input":
        return lambda given, _: into.append(given.detach())
    return lambda _, output: into.append(output.detach())


def _whole(point: Point, values: list[Tensor]) -> Tensor:
    """What passed at once (1, …) -> (…); what passed step by step, (1, W) or (1, …, 1, W) each -> (…, T, W)."""
    if len(values) == 1 and values[0].dim() > 2:
        return values[0][0]
    if point.axes == ("layer",):  # the same for every text: it has no batch
        return values[0]
    if point.stack in ("pooling", "head"):
        return values[0][0]
    if values[0].dim() > 2:  # of a recurrent decoder that attends before each step
        return torch.cat(values, dim=-2)[0]
    steps = torch.cat(values)
    return steps.flip(0) if point.backwards else steps
