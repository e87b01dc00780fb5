"""Languages of translators: names, what a folder tells about them, and detection of a text's language."""

import math
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.tokenizer import Tokenizer
from regard.files import read_regular_file

LANGUAGE_NAMES = {
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
UNKNOWN_LANGUAGES = ("source", "target")
PHRASEBOOK_LANGUAGES = ("en", "it")


def language_name(code: str) -> str:
    """Return the English name of a language.

    >>> language_name("it"), language_name("pt-BR"), language_name("source")
    ('Italian', 'Portuguese (BR)', 'Source')
    """
    base, _, region = code.replace("_", "-").partition("-")
    name = LANGUAGE_NAMES.get(base.lower(), base.capitalize())
    return f"{name} ({region})" if region else name


def guess_languages(folder: Path) -> tuple[str, str]:
    """Return the language codes of the translator in a run or model folder, from its config or the folder's name."""
    for config in (folder / "config.toml", folder.resolve().parent / "config.toml"):
        if config.is_file() and (languages := _languages_of_run(config)):
            return languages
    match = re.search(r"(?:^|[^a-z])([a-z]{2})-([a-z]{2})$", folder.resolve().name)
    if match and match[1] in LANGUAGE_NAMES and match[2] in LANGUAGE_NAMES:
        return match[1], match[2]
    return UNKNOWN_LANGUAGES


def _languages_of_run(path: Path) -> tuple[str, str] | None:
    """Return the languages that a run's training files are named after: `train.en` and `train.it`."""
    try:
        config: Any = tomllib.loads(read_regular_file(path).decode("utf-8"))
        train = config["data"]["train"]
        if any(str(name).startswith("builtin:phrasebook") for name in train.get("files", ())):
            return PHRASEBOOK_LANGUAGES
        source, target = (_suffix(str(train[side][0])) for side in ("source", "target"))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    is_pair = source in LANGUAGE_NAMES and target in LANGUAGE_NAMES and source != target
    return (source, target) if is_pair else None


def _suffix(name: str) -> str:
    return Path(name.removesuffix(".gz")).suffix.removeprefix(".").lower()


class LanguageGuess(NamedTuple):
    """Language of a text and the confidence in percent."""

    language: str
    confidence: float


class LanguageVocabulary(NamedTuple):
    """Tokenizer that was trained on a language, and its unknown token."""

    language: str
    tokenizer: Tokenizer
    unknown_id: int | None


def detect_language(text: str, vocabularies: Iterable[LanguageVocabulary]) -> list[LanguageGuess]:
    """Return the languages of the vocabularies, the most probable for the text first.

    A vocabulary is trained on its language, so the tokenizer of the right language needs the fewest tokens. If its V
    tokens were equally probable, n of them would have the log-probability -n log V; languages are weighted by that.
    The confidence is lowered by the fraction of unknown tokens.
    """
    costs: dict[str, float] = {}
    known_fractions: dict[str, float] = {}
    for language, tokenizer, unknown_id in vocabularies:
        ids = tokenizer.encode(text)
        cost = len(ids) * math.log(max(2, len(tokenizer)))
        if cost < costs.get(language, math.inf):
            costs[language] = cost
            known_fractions[language] = 1 - sum(id_ == unknown_id for id_ in ids) / len(ids) if ids else 0.0
    least = min(costs.values(), default=0.0)
    total = sum(math.exp(least - cost) for cost in costs.values())
    guesses = [
        LanguageGuess(language, round(100 * known_fractions[language] * math.exp(least - cost) / total, 1))
        for language, cost in costs.items()
    ]
    return sorted(guesses, key=lambda guess: -guess.confidence)
