"""The networks that are compared over a distance are equally large, as nearly as whole widths allow."""

from regard.config import DecoderOnlyConfig
from regard.labs.distance import TRANSFORMER, equally_large
from regard.labs.trials.fitting import count_parameters
from regard.models.assembly import build_meta


def test_no_recurrent_network_is_larger_than_the_transformer_or_much_smaller() -> None:
    chosen = equally_large(DecoderOnlyConfig(vocab_size=12, width=32, layers=2, heads=2, feed_forward=64))
    sizes = {name: count_parameters(build_meta(settings)) for name, settings in chosen.items()}
    assert len(sizes) == 4
    for size in sizes.values():
        assert 0.95 * sizes[TRANSFORMER] < size <= sizes[TRANSFORMER]
