"""The size of a network for a time and an amount of text: `regard train gpt --minutes`, `--size`.

The rules were measured by `benchmarks/scaling.py`; docs/explanation/scaling-rules.md has the tables behind them.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from regard.errors import ConfigError
from regard.training.automatic_settings import NetworkSize

NAMED_WIDTHS = {"tiny": 128, "small": 256, "medium": 384, "large": 512, "xlarge": 768}
WIDTHS = (32, 64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 2048)  # that a time is divided among
EXACT_WIDTHS = range(32, 4097, 32)  # for a number of parameters
HEAD_WIDTH = 32
TOKENS_PER_PARAMETER = 10  # that a network is trained on at least, of parameters of its layers
MAX_PASSES = 20  # over the same text, if a larger network can be trained instead
MAX_PARAMETERS_PER_TOKEN = 10  # of the text: a larger network would overfit
EPOCHS_LIMIT = 40  # of a run with a time budget, whatever the network
DROPOUT = ((20, 0.0), (math.inf, 0.1))  # up to so many passes over the text
PEAK = 4e-3  # learning rate of a network of width 128
TRAINING_SHARE = 0.95  # of the time, the rest is for validations
UNITS = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}
COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMB]?)", re.IGNORECASE)
MEASUREMENTS = 4  # at most


def network_of_width(width: int, layers: int | None = None, name: str = "") -> NetworkSize:
    """A GPT of this width, with the depth that learns most in a time.

    >>> network_of_width(256).layers
    6
    """
    heads = width // (2 * HEAD_WIDTH if width > 256 and width % (2 * HEAD_WIDTH) == 0 else HEAD_WIDTH)
    return NetworkSize(math.inf, name, width, layers or layers_of_width(width), heads, 4 * width, 0.0)


def layers_of_width(width: int) -> int:
    """Layers of a network of this width."""
    return 2 + round(width / 64)


def layer_parameters(size: NetworkSize) -> int:
    """Parameters of the layers, without embeddings: 12 · width² for each.

    >>> layer_parameters(network_of_width(128))
    786432
    """
    return 12 * size.width**2 * size.layers


def parse_size(text: str, vocab_size: int) -> NetworkSize:
    """The network of a name or of a number of parameters, those of the embeddings included.

    >>> parse_size("10M", vocab_size=8000).width, parse_size("small", vocab_size=8000).width
    (320, 256)
    """
    if text.lower() in NAMED_WIDTHS:
        return network_of_width(NAMED_WIDTHS[text.lower()], name=f"--size {text}")
    match = COUNT.fullmatch(text.strip())
    if match is None or not (parameters := float(match[1]) * UNITS[match[2].upper()]):
        raise ConfigError(
            f"--size {text}: is neither {', '.join(NAMED_WIDTHS)} nor a number of parameters; write it as in 10M."
        )

    def distance(shape: tuple[int, int]) -> float:
        width, difference = shape
        size = network_of_width(width, max(1, layers_of_width(width) + difference))
        total = layer_parameters(size) + vocab_size * width
        return abs(math.log(total / parameters)) + 0.05 * abs(difference)

    width, difference = min(((width, more) for width in EXACT_WIDTHS for more in (-1, 0, 1)), key=distance)
    return network_of_width(width, max(1, layers_of_width(width) + difference), f"--size {text}")


def peak_of_gpt(width: int) -> float:
    """The peak learning rate: lower for wider networks.

    >>> peak_of_gpt(128), peak_of_gpt(512)
    (0.004, 0.002)
    """
    return float(f"{PEAK * math.sqrt(128 / width):.1e}")


def with_dropout(size: NetworkSize, passes: float) -> NetworkSize:
    """The network with dropout, where it sees the same text often."""
    return replace(size, dropout=next(dropout for most, dropout in DROPOUT if passes <= most))


@dataclass(frozen=True)
class Fit:
    """A network, and what was measured to choose it."""

    size: NetworkSize
    tokens: float
    """Tokens that it is trained on in the time."""
    seconds_per_token: float


def fit_size(seconds: float, text_tokens: float, measure: Callable[[NetworkSize], float]) -> Fit:
    """The network that learns most from a text in a time.

    Args:
        seconds: the time of training.
        text_tokens: tokens of the training text.
        measure: the seconds that a network takes for a token.
    """
    sizes = [network_of_width(width) for width in WIDTHS]
    measured: dict[int, float] = {}
    chosen = sizes[1]
    for _ in range(MEASUREMENTS):
        if chosen.width in measured:
            break
        measured[chosen.width] = measure(chosen)
        fits = [_fit(size, seconds, measured) for size in sizes]
        chosen = _choose(fits, text_tokens).size
    fit = _fit(chosen, seconds, measured)
    return replace(fit, size=with_dropout(fit.size, fit.tokens / text_tokens))


def _fit(size: NetworkSize, seconds: float, measured: dict[int, float]) -> Fit:
    """The tokens of a network by its own speed, or that of the network of the most similar width."""
    width = min(measured, key=lambda other: abs(math.log(other / size.width)))
    ratio = layer_parameters(size) / layer_parameters(network_of_width(width))
    seconds_per_token = measured[width] * ratio
    return Fit(size, seconds / seconds_per_token, seconds_per_token)


def _choose(fits: Sequence[Fit], text_tokens: float) -> Fit:
    """The largest network that sees enough tokens, or a larger one that does not see the text too often."""
    enough = [fit for fit in fits if fit.tokens >= TOKENS_PER_PARAMETER * layer_parameters(fit.size)] or fits[:1]
    chosen = enough[-1]
    for fit in fits:
        if fit.size.width > chosen.size.width and chosen.tokens > MAX_PASSES * text_tokens:
            if layer_parameters(fit.size) > MAX_PARAMETERS_PER_TOKEN * text_tokens:
                break
            chosen = fit
    return chosen
