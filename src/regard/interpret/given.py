"""What an encoder's head should have told, where that is given: a label, a tag for each token, or what fills holes."""

from collections.abc import Sequence

from regard.config import ClassHeadConfig, EncoderConfig, TagHeadConfig
from regard.config.errors import did_you_mean
from regard.data.masked_text import encode_fillers
from regard.errors import InputError
from regard.interpret.subject import Subject


def given(subject: Subject, text: str, source: Sequence[int], target: str) -> list[int]:
    """The ids of labels, or of tokens; `source` is what the encoder reads of the text, its start and end included."""
    model = subject.config.model
    head = model.head if isinstance(model, EncoderConfig) else None
    if isinstance(head, ClassHeadConfig):
        return [_label(target.strip(), head.labels)]
    if isinstance(head, TagHeadConfig):
        tags = [_label(tag, head.labels) for tag in target.split()]
        if len(tags) != len(source) - 2:
            raise InputError(
                f"The target has {len(tags)} tags, and the text {len(source) - 2} tokens: give one for each."
            )
        return tags
    if model.task != "masked":
        raise InputError(f"{subject.name}: is of the kind {model.family}, which writes nothing: leave the target out.")
    mask = subject.config.tokens.mask
    holes = 0 if mask is None else list(source).count(mask)
    if mask is None or not holes:
        raise InputError("The text has no [MASK] that a target could fill: leave the target out.")
    tokens = encode_fillers(subject.target, text, target, mask)
    if len(tokens) != holes:
        raise InputError(f"The target has {len(tokens)} tokens, and the text {holes} [MASK]: give one for each.")
    return tokens


def _label(name: str, labels: Sequence[str]) -> int:
    if name not in labels:
        raise InputError(f"{name!r} is none of the labels{did_you_mean(name, labels)}; they are {', '.join(labels)}.")
    return labels.index(name)
