"""Mixture of experts: several feed-forward layers, of which a router selects a few for each token.

    p(x) = softmax(x W_r),   g_e(x) = p_e(x) / Σ p over the K largest, 0 for the other experts
    MoE(x) = Σ_e g_e(x) FFN_e(x)

The probabilities of the chosen experts are renormalized so that their sum is 1, as in Mixtral (Jiang et al. 2024).
`dense` is this formula: it computes every expert for every token. `sparse` computes an expert for its own tokens only,
however many they are: none is dropped. Router and gates are float32 also where other products are in 16 bits, because a
small error could select another expert (Fedus et al. 2022, §2.4).

Routers favor experts that are ahead, so training adds a load-balancing loss, for which a `RoutingLog` keeps the sums.

N tokens · C model width · E experts · K experts per token
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from regard.nn.functional import at_least_float32, autocast
from regard.nn.layout import Layout
from regard.nn.taps import (
    ExposedModule,
    Matrix,
    MatrixProduct,
    Point,
    Tap,
    child_matrices,
    child_points,
    linear_matrices,
    tap_point,
    under,
)

Experts = Sequence[Callable[[Tensor], Tensor]]


@dataclass(frozen=True)
class Routing:
    """Sums over the tokens of a batch, padding not counted."""

    probabilities: Tensor  # (E,) of each expert
    choices: Tensor  # (E,) how often each was chosen; no gradient
    tokens: Tensor  # ()


@dataclass
class RoutingLog:
    """What the router of a layer does while the log is open."""

    is_open: bool = False
    entries: list[Routing] = field(default_factory=list)

    def __deepcopy__(self, _memo: object) -> None:
        """Return None: a copy of a network has no log."""


def load_balancing_loss(probabilities: Tensor, choices: Tensor, tokens: Tensor) -> Tensor:
    """E Σ_e f_e P_e of sums over tokens (…, E), (…, E) and (…, 1): 1 if all experts have equally many tokens, up to E.

    f_e is the fraction of the choices that are expert e, P_e the mean of its probability (Fedus et al. 2022, §2.2).

    >>> even = torch.full((4,), 2.0)
    >>> load_balancing_loss(even, even, torch.tensor([8.0]))
    tensor(1.)
    """
    fractions = choices / choices.sum(-1, keepdim=True).clamp(min=1)
    means = probabilities / tokens.clamp(min=1)
    return probabilities.size(-1) * (fractions * means).sum(-1)


def count_tokens(chosen: Tensor, experts: int) -> Tensor:
    """Return how often each expert is chosen (E,), of choices of any shape."""
    return (chosen.flatten()[:, None] == torch.arange(experts, device=chosen.device)).sum(0)


class MixtureOfExperts(ExposedModule):
    """A router and its experts, in the place of one feed-forward layer."""

    needs_layout = True  # of `forward`, besides x

    def __init__(self, width: int, experts: Sequence[nn.Module], per_token: int) -> None:
        super().__init__()
        self.per_token = per_token
        self.router = nn.Linear(width, len(experts), bias=False)
        self.probabilities = Tap("token", "expert", description="softmax of the logits: probability of each expert")
        self.gates = Tap("token", "expert", description="probabilities of the chosen experts, divided by their sum")
        self.experts = nn.ModuleList(experts)
        self.expert_outputs = Tap("expert", "token", "unit", description="output of each expert, before its gate")
        self.log: RoutingLog | None = None
        self._eager: Callable[..., Tensor] | None = None
        self._taps = [part for part in self.modules() if isinstance(part, Tap)]

    def forward(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        """x (…, C) -> (…, C). `layout` tells where padding is, which the log leaves out; None: there is none."""
        if self._eager is not None:
            return self._eager(self, x, layout)
        return self._compute(x, layout)

    def _compute(self, x: Tensor, layout: Layout | None) -> Tensor:
        probabilities = self.probabilities(self.route(x))  # (…, E)
        weights, chosen = self.choose(probabilities)  # (…, K)
        if self.training and self.log is not None:
            routing = _routing(probabilities, chosen, layout)  # gradient checkpointing must compute it again
            if self.log.is_open:
                self.log.entries.append(routing)
        if any(tap.is_open for tap in self._taps):
            return self.dense(x, self.gates(torch.zeros_like(probabilities).scatter(-1, chosen, weights)))
        return self.sparse(x, weights, chosen)

    def route(self, x: Tensor) -> Tensor:
        """Return the probability of each expert (…, E) for x (…, C)."""
        with autocast(torch.float32, x.device):
            logits: Tensor = self.router(x.to(self.router.weight.dtype))
        return at_least_float32(logits).softmax(-1)

    def choose(self, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gates of the chosen experts (…, K) and their numbers (…, K), most probable first."""
        weights, chosen = probabilities.topk(self.per_token, dim=-1)
        return weights / weights.sum(-1, keepdim=True), chosen

    def dense(self, x: Tensor, gates: Tensor) -> Tensor:
        """Compute every expert for every token, and add their outputs multiplied by their gates (…, E).

        This is the formula, and what runs while a tap is open: all experts then have values for all tokens.
        """
        outputs = self.expert_outputs(torch.stack([expert(x) for expert in self.experts], dim=-3))  # (…, E, T, C)
        return (outputs * gates.transpose(-1, -2)[..., None]).sum(-3).to(outputs.dtype)

    def sparse(self, x: Tensor, weights: Tensor, chosen: Tensor, experts: Experts | None = None) -> Tensor:
        """Compute each expert for the tokens that chose it.

        `experts` compute the same as those of the module. In training an expert without tokens computes an empty
        product, so that all processes have all gradients.
        """
        experts = experts or list(self.experts)
        tokens, per_token = x.reshape(-1, x.size(-1)), self.per_token
        if len(tokens) == 1 and not torch.is_grad_enabled():  # a step of generation: nothing to sort
            outputs = torch.cat([experts[n](tokens) for n in chosen.flatten().tolist()])  # (K, C)
            return (weights.flatten() @ outputs.to(weights.dtype)).to(outputs.dtype).view(*x.shape[:-1], -1)
        order = chosen.flatten().argsort(stable=True)  # (N·K,) by expert
        parts = tokens.index_select(0, order // per_token).split(self.loads(chosen))
        used = [n for n, part in enumerate(parts) if len(part) or torch.is_grad_enabled()]
        outputs = torch.cat([experts[n](parts[n]) for n in used])  # (N·K, C)
        outputs = outputs.index_select(0, order.argsort()).unflatten(0, (-1, per_token))  # (N, K, C)
        return (outputs * weights.reshape(-1, per_token, 1)).sum(1).to(outputs.dtype).view(*x.shape[:-1], -1)

    def loads(self, chosen: Tensor) -> list[int]:
        """Return the number of tokens of each expert, for which the program waits on a GPU."""
        loads: list[int] = count_tokens(chosen, len(self.experts)).tolist()
        return loads

    def leave_graphs(self) -> None:
        """Stay outside of compiled graphs, whose shapes cannot depend on the number of tokens of an expert."""
        self._eager = cast(Callable[..., Tensor], torch.compiler.disable(MixtureOfExperts._compute))

    @property
    def idle_experts(self) -> list[nn.Module]:
        """As many experts as a token does not use."""
        return list(self.experts[self.per_token :])

    def points(self) -> Iterator[Point]:
        yield Point("input", ("token", "unit"), "x: input of the router and of the experts", self.router, "input")
        product = MatrixProduct("input", "W_r")
        yield Point("logits", ("token", "expert"), "x · W_r", self.router, product=product)
        yield tap_point("probabilities", self.probabilities)
        yield Point(
            "chosen",
            ("token", "choice"),
            "numbers of the chosen experts, most probable first",
            self.gates,
            transform=lambda gates: gates.topk(self.per_token, dim=-1).indices.to(gates.dtype),
        )
        yield tap_point("gates", self.gates)
        yield from under("experts", child_points(self.experts))
        yield tap_point("expert_outputs", self.expert_outputs)

    def matrices(self) -> Iterator[Matrix]:
        yield from linear_matrices(self.router, "r", "expert")
        yield from under("experts", child_matrices(self.experts))


def _routing(probabilities: Tensor, chosen: Tensor, layout: Layout | None) -> Routing:
    """Return the sums of a batch, without padding unless it was left out already."""
    experts, tokens = probabilities.size(-1), probabilities.shape[:-1].numel()
    mask = None if layout is None or layout.queries.packing is not None else layout.mask.key_mask
    if mask is None:
        choices = count_tokens(chosen, experts)
        return Routing(probabilities.flatten(0, -2).sum(0), choices, torch.tensor(tokens, device=chosen.device))
    mask = mask[:, -probabilities.size(-2) :]
    choices = count_tokens(chosen.masked_fill(~mask[..., None], experts), experts)
    return Routing((probabilities * mask[..., None]).flatten(0, -2).sum(0), choices, mask.sum())
