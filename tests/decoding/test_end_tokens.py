"""A generated text ends at any of the model's end tokens, with both engines."""

from pathlib import Path

import pytest

import regard
from random_models import SMALL, greedy_decode, random_network, words
from regard.config import Config, DecoderOnlyConfig, SpecialTokensConfig
from regard.decoding.results import Generation
from regard.errors import ConfigError
from regard.models import save
from regard.registry import EngineName


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_every_end_token_ends_a_text(engine: EngineName, tmp_path: Path) -> None:
    model = DecoderOnlyConfig(**SMALL, norm_order="pre")
    network, config = random_network(model, seed=7), Config(model=model)
    written = greedy_decode(network, config, None, [config.tokens.start, 5, 9, 12], 12)
    end = next(token for token in written if token != written[0])
    config = Config(model=model, tokens=SpecialTokensConfig(other_ends=(end,)))
    save(tmp_path / "model", network, config, extra_files={"tokenizer.json": words().to_str().encode()})
    loaded = regard.load(tmp_path / "model")

    def generate(min_tokens: int) -> Generation:
        return loaded.generate_detailed(
            "w5 w9 w12", temperature=0, max_tokens=12, min_tokens=min_tokens, engine=engine, precision="float32"
        )[0]

    assert generate(0).tokens == written[: written.index(end)]
    assert generate(0).ended
    assert len(generate(written.index(end) + 1).tokens) > written.index(end)


def test_an_end_token_outside_of_the_vocabulary_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tokens.other_ends = 99 is past the last token of model.vocab_size = 23"):
        regard.load_config("tiny", ["model.vocab_size=23", "tokens.other_ends=[99]"])
