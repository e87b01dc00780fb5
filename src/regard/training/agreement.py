"""Two readings of each batch that should agree: R-Drop (Liang et al. 2021), against learning by heart.

Dropout makes another network of each reading. With P and Q what two of them predict, the loss of a prediction is

    ½ (loss(P) + loss(Q) + α · D),   D = ½ (KL(P‖Q) + KL(Q‖P)) = ½ Σ over v of (P[v] − Q[v]) (log P[v] − log Q[v]),

which is half of the paper's, so that it compares with that of one reading.

N predictions · V vocabulary
"""

from torch import Tensor

from regard.nn.precision import whole
from regard.training.loss import Loss, smoothed_cross_entropy


def agreeing_cross_entropy(first: Tensor, second: Tensor, targets: Tensor, smoothing: float, weight: float) -> Loss:
    """The loss of two readings' logits (N, V) for the same targets (N,), by the formula; `weight` is α."""
    first, second = whole(first), whole(second)
    one, other = (smoothed_cross_entropy(logits, targets, smoothing) for logits in (first, second))
    smoothed = (one.smoothed + other.smoothed + weight * divergence(first, second)) / 2
    return Loss(smoothed, (one.plain + other.plain) / 2, len(targets))


def divergence(first: Tensor, second: Tensor) -> Tensor:
    """How far what logits (N, V) predict lies apart: D, summed over the predictions."""
    log_p, log_q = first.log_softmax(-1), second.log_softmax(-1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2
