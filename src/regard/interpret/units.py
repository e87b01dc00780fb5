"""Hidden units that are on: how many of a feed-forward layer are above zero, token by token."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.interpret.trace import Trace


@dataclass(frozen=True)
class UnitsOn:
    """Those of one layer."""

    layer: str  # encoder.0
    units: int  # that there are
    on: list[int]  # at each token

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def units_on(trace: "Trace", layer: str) -> UnitsOn | None:
    """Those of a layer, as `encoder.0`; None where it has no hidden units."""
    name = f"{layer}.feed_forward.hidden"
    if name not in trace.points:
        return None
    hidden = trace.whole(name)  # (T, units)
    return UnitsOn(layer, hidden.size(-1), (hidden > 0).sum(-1).tolist())


def all_units_on(trace: "Trace") -> list[UnitsOn]:
    """Those of every layer that has some."""
    layers = dict.fromkeys(point.group for point in trace.points.values() if point.layer is not None)
    return [found for layer in layers if (found := units_on(trace, layer)) is not None]
