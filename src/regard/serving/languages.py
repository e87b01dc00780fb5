"""The languages of a translator: by name, as its run tells them, or as its folder is called."""

import math
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from regard.serving.loaded_models import LoadedModel

NAMES = {
    "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali", "bs": "Bosnian",
    "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish",
    "fr": "French", "fy": "Western Frisian", "ga": "Irish", "gd": "Scottish Gaelic", "gl": "Galician", "he": "Hebrew",
    "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "is": "Icelandic",
    "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "ko": "Korean", "la": "Latin",
    "lb": "Luxembourgish", "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "mn": "Mongolian", "ms": "Malay",
    "mt": "Maltese", "nb": "Norwegian Bokmål", "ne": "Nepali", "nl": "Dutch", "nn": "Norwegian Nynorsk",
    "no": "Norwegian", "oc": "Occitan", "pl": "Polish", "pt": "Portuguese", "rm": "Romansh", "ro": "Romanian",
    "ru": "Russian", "sc": "Sardinian", "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian",
    "sv": "Swedish", "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish",
    "uk": "Ukrainian", "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese", "yi": "Yiddish", "zh": "Chinese",
}  # fmt: skip
UNKNOWN = ("source", "target")
PHRASEBOOK = ("en", "it")


def name_of(code: str) -> str:
    """What a language is called in English.

    >>> name_of("it"), name_of("pt-BR"), name_of("source")
    ('Italian', 'Portuguese (BR)', 'Source')
    """
    base, _, region = code.replace("_", "-").partition("-")
    name = NAMES.get(base.lower(), base.capitalize())
    return f"{name} ({region})" if region else name


def guess(folder: Path) -> tuple[str, str]:
    """The languages of the translator in a run or model folder, as codes."""
    for settings in (folder / "config.toml", folder.resolve().parent / "config.toml"):
        if settings.is_file() and (found := _of_run(settings)):
            return found
    match = re.search(r"(?:^|[^a-z])([a-z]{2})-([a-z]{2})$", folder.resolve().name)
    if match and match[1] in NAMES and match[2] in NAMES:
        return match[1], match[2]
    return UNKNOWN


def _of_run(path: Path) -> tuple[str, str] | None:
    """The languages after which a run's files are called: `train.en` and `train.it`."""
    try:
        settings: Any = tomllib.loads(path.read_text("utf-8"))
        train = settings["data"]["train"]
        if any(str(name).startswith("builtin:phrasebook") for name in train.get("files", ())):
            return PHRASEBOOK
        source, target = (_suffix(str(train[side][0])) for side in ("source", "target"))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return (source, target) if source in NAMES and target in NAMES and source != target else None


def _suffix(name: str) -> str:
    return Path(name.removesuffix(".gz")).suffix.removeprefix(".").lower()


class Detected(NamedTuple):
    """A language, and how sure that is, in percent."""

    language: str
    confidence: float


def detect(text: str, models: "list[LoadedModel]") -> list[Detected]:
    """The languages that the models translate from, the most probable first."""
    costs: dict[str, float] = {}
    known: dict[str, float] = {}
    for model in models:
        tokenizer, unknown = model.model.tokenizer, model.model.config.tokens.unknown
        ids = tokenizer.encode(text)
        cost = len(ids) * math.log(max(2, len(tokenizer)))
        if cost < costs.get(model.source, math.inf):
            costs[model.source] = cost
            known[model.source] = 1 - sum(number == unknown for number in ids) / len(ids) if ids else 0.0
    least = min(costs.values(), default=0.0)
    total = sum(math.exp(least - cost) for cost in costs.values())
    found = [
        Detected(language, round(100 * known[language] * math.exp(least - cost) / total, 1))
        for language, cost in costs.items()
    ]
    return sorted(found, key=lambda one: -one.confidence)
