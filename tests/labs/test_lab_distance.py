"""The networks compared by the lab `distance` have equal size, up to the rounding of widths."""

from regard.config import DecoderOnlyConfig
from regard.labs.distance import TRANSFORMER, equal_size_configs
from regard.labs.trials import count_parameters
from regard.models.assembly import build_meta


def test_recurrent_networks_are_at_most_as_large_as_the_transformer() -> None:
    configs = equal_size_configs(DecoderOnlyConfig(vocab_size=12, width=32, layers=2, heads=2, feed_forward=64))
    sizes = {name: count_parameters(build_meta(config)) for name, config in configs.items()}
    assert len(sizes) == 4
    for size in sizes.values():
        assert 0.95 * sizes[TRANSFORMER] < size <= sizes[TRANSFORMER]
