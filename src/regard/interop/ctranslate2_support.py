"""What CTranslate2 can hold. Knows neither torch nor CTranslate2, so that asking costs nothing."""

from regard.config import (
    AlibiPositionsConfig,
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    RecurrentConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
)

MAX_POSITIONS = 4096  # that an exported network has, where ours goes on for ever: others keep them in a table
SUPPORTED_POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")


def unsupported_reason(config: Config) -> str | None:
    """Why CTranslate2 cannot hold a model, as the part of a sentence that follows "because"; None if it can.

    >>> unsupported_reason(Config(model=EncoderDecoderConfig(feed_forward=0)))
    'CTranslate2 needs feed-forward layers, and the network has none'
    """
    model, tokens = config.model, config.tokens
    if isinstance(model, RecurrentConfig):
        return "CTranslate2 is for Transformers, and the network is recurrent"
    if not isinstance(model, EncoderDecoderConfig | DecoderOnlyConfig):
        return "CTranslate2 is for networks that write, and this one only reads"
    written = (model.target_vocab_size if isinstance(model, EncoderDecoderConfig) else None) or model.vocab_size
    unnamed = max(tokens.start, tokens.unknown, tokens.end) >= written or tokens.end >= model.vocab_size
    scheme, reads = model.positions, isinstance(model, EncoderDecoderConfig)
    hindrances = {
        "CTranslate2 needs feed-forward layers, and the network has none": model.feed_forward == 0,
        "CTranslate2 needs norms, and the network has none": model.norm == "none",
        "CTranslate2 needs residual connections, and the network has none": not model.residual,
        "CTranslate2 cannot look ahead, and the network's decoder does": not model.causal_mask,
        "CTranslate2 has rotary positions in decoder-only networks, and this one has an encoder": (
            reads and isinstance(scheme, RotaryPositionsConfig)
        ),
        "CTranslate2 has ALiBi in decoder-only networks, and this one has an encoder": (
            reads and isinstance(scheme, AlibiPositionsConfig)
        ),
        "CTranslate2 shares relative positions among heads, and this network's heads have their own": (
            isinstance(scheme, RelativePositionsConfig) and scheme.per_head
        ),
        f"CTranslate2 has no {scheme.kind} positions": scheme.kind not in SUPPORTED_POSITIONS,
        f"CTranslate2 has full attention, and the network's is {model.attention.kind}": model.attention.kind != "full",
        "its start, end or unknown token is past the last token of a vocabulary": unnamed,
    }
    return next((reason for reason, holds in hindrances.items() if holds), None)
