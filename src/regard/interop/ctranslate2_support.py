"""Which models CTranslate2 supports. Imports neither torch nor CTranslate2, so that the check is fast."""

from regard.config import (
    AlibiPositionsConfig,
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    RecurrentConfig,
    RelativePositionsConfig,
    RotaryPositionsConfig,
)

SUPPORTED_POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")
MAX_POSITIONS = 4096  # of an exported network whose positions are unlimited here: other programs store them in a table


def unsupported_reason(config: Config) -> str | None:
    """Return why CTranslate2 does not support a model, as a clause that follows "because"; None if it does.

    >>> unsupported_reason(Config(model=EncoderDecoderConfig(feed_forward=0)))
    'CTranslate2 needs feed-forward layers, and the network has none'
    """
    model, tokens = config.model, config.tokens
    if isinstance(model, RecurrentConfig):
        return "CTranslate2 is for Transformers, and the network is recurrent"
    if not isinstance(model, EncoderDecoderConfig | DecoderOnlyConfig):
        return "CTranslate2 is for networks that generate text, and this one is an encoder"
    has_encoder = isinstance(model, EncoderDecoderConfig)
    target_size = (model.target_vocab_size if isinstance(model, EncoderDecoderConfig) else None) or model.vocab_size
    outside = max(tokens.start, tokens.unknown, tokens.end) >= target_size or tokens.end >= model.vocab_size
    positions = model.positions
    reasons = {
        "CTranslate2 needs feed-forward layers, and the network has none": model.feed_forward == 0,
        "CTranslate2 needs norms, and the network has none": model.norm == "none",
        "CTranslate2 needs residual connections, and the network has none": not model.residual,
        "CTranslate2 needs a causal mask, and the network's decoder has none": not model.causal_mask,
        "CTranslate2 has rotary positions in decoder-only networks, and this one has an encoder": (
            has_encoder and isinstance(positions, RotaryPositionsConfig)
        ),
        "CTranslate2 has ALiBi in decoder-only networks, and this one has an encoder": (
            has_encoder and isinstance(positions, AlibiPositionsConfig)
        ),
        "CTranslate2 shares relative positions among heads, and this network has them per head": (
            isinstance(positions, RelativePositionsConfig) and positions.per_head
        ),
        f"CTranslate2 has no {positions.kind} positions": positions.kind not in SUPPORTED_POSITIONS,
        f"CTranslate2 has full attention, and the network's is {model.attention.kind}": model.attention.kind != "full",
        "the id of its start, end or unknown token is outside of a vocabulary": outside,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)
