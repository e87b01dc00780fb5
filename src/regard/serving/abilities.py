"""What a model can be asked for over HTTP."""

from collections.abc import Sequence
from typing import Literal

from regard.config import ClassHeadConfig, Config, EncoderConfig, TagHeadConfig

Ability = Literal["translates", "continues", "classifies", "tags", "fills", "embeds"]
WORDS: dict[Ability, str] = {
    "translates": "translates",
    "continues": "continues text",
    "classifies": "labels texts",
    "tags": "labels words",
    "fills": "fills holes",
    "embeds": "gives vectors",
}


def abilities(config: Config) -> tuple[Ability, ...]:
    """What a model can do, the thing that it was trained for first.

    >>> from regard.config import EncoderOnly
    >>> abilities(Config(model=EncoderOnly(vocabulary=300, head=ClassHead(labels=("bad", "good")))))
    ('classifies', 'embeds')
    """
    model = config.model
    if model.translates:
        return ("translates",)
    if model.continues:
        return ("continues",)
    if not isinstance(model, EncoderConfig):
        return ()
    if isinstance(model.head, ClassHeadConfig):
        return ("classifies", "embeds")
    if isinstance(model.head, TagHeadConfig):
        return ("tags", "embeds")
    if model.task == "masked" and config.tokens.mask is not None:
        return ("fills", "embeds")
    return ("embeds",)


def told(some: Sequence[Ability]) -> str:
    """Abilities in a sentence.

    >>> told(("classifies", "embeds"))
    'labels texts and gives vectors'
    """
    return " and ".join(WORDS[ability] for ability in some)
