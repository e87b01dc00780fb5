"""Languages of multilingual translators: the tokens for a pair of languages, which are given by code. Torch-free."""

from typing import NamedTuple

from regard.config import Config, LanguagesConfig
from regard.errors import ConfigError

ISO_639_3 = {  # two-letter codes, as the three-letter ones of NLLB
    "af": "afr", "am": "amh", "ar": "arb", "az": "azj", "be": "bel", "bg": "bul", "bn": "ben", "bs": "bos",
    "ca": "cat", "cs": "ces", "cy": "cym", "da": "dan", "de": "deu", "el": "ell", "en": "eng", "eo": "epo",
    "es": "spa", "et": "est", "eu": "eus", "fa": "pes", "fi": "fin", "fr": "fra", "ga": "gle", "gd": "gla",
    "gl": "glg", "gu": "guj", "ha": "hau", "he": "heb", "hi": "hin", "hr": "hrv", "hu": "hun", "hy": "hye",
    "id": "ind", "ig": "ibo", "is": "isl", "it": "ita", "ja": "jpn", "jv": "jav", "ka": "kat", "kk": "kaz",
    "km": "khm", "kn": "kan", "ko": "kor", "ky": "kir", "lb": "ltz", "lo": "lao", "lt": "lit", "lv": "lvs",
    "mk": "mkd", "ml": "mal", "mn": "khk", "mr": "mar", "ms": "zsm", "mt": "mlt", "my": "mya", "nb": "nob",
    "ne": "npi", "nl": "nld", "nn": "nno", "oc": "oci", "pa": "pan", "pl": "pol", "ps": "pbt", "pt": "por",
    "ro": "ron", "ru": "rus", "sd": "snd", "si": "sin", "sk": "slk", "sl": "slv", "so": "som", "sq": "als",
    "sr": "srp", "sv": "swe", "sw": "swh", "ta": "tam", "te": "tel", "th": "tha", "tl": "tgl", "tr": "tur",
    "uk": "ukr", "ur": "urd", "uz": "uzn", "vi": "vie", "xh": "xho", "yi": "ydd", "yo": "yor", "zh": "zho",
    "zu": "zul",
}  # fmt: skip
MAX_LISTED = 12


class LanguageTokens(NamedTuple):
    """The tokens of a pair of languages; both are empty for a translator of one pair."""

    before_source: tuple[int, ...] = ()
    first_output: tuple[int, ...] = ()


def language_tokens(config: Config, source: str | None, target: str | None) -> LanguageTokens:
    """Return the tokens for these languages; ConfigError for a language that the model does not have.

    >>> languages = LanguagesConfig(codes=("eng_Latn", "ita_Latn"), tokens=(8, 9))
    >>> language_tokens(Config(languages=languages), "en", "ita_Latn")
    LanguageTokens(before_source=(8,), first_output=(9,))
    """
    languages = config.languages
    if not languages.codes:
        given = {"source_language": source, "target_language": target}
        wrong = next((f"{name} = {code}" for name, code in given.items() if code is not None), None)
        if wrong is not None:
            raise ConfigError(f"{wrong}: the model translates one pair of languages; remove it.")
        return LanguageTokens()
    return LanguageTokens(
        (_token(languages, "source_language", source),), (_token(languages, "target_language", target),)
    )


def _token(languages: LanguagesConfig, name: str, code: str | None) -> int:
    if code is None:
        raise ConfigError(f"{name} is missing: the model has {len(languages.codes)} languages, {_listed(languages)}.")
    matches = matching_codes(languages, code)
    if len(matches) == 1:
        return languages.tokens[languages.codes.index(matches[0])]
    if matches:
        raise ConfigError(f"{name} = {code}: is one of {', '.join(matches)}; pass the whole code.")
    raise ConfigError(
        f"{name} = {code}: is not one of the model's {len(languages.codes)} languages, {_listed(languages)}."
    )


def matching_codes(languages: LanguagesConfig, code: str) -> list[str]:
    """Return the codes that mean a language: the code itself, or those that begin with the language.

    >>> languages = LanguagesConfig(codes=("en_XX", "zho_Hans", "zho_Hant"), tokens=(1, 2, 3))
    >>> matching_codes(languages, "en"), matching_codes(languages, "zh"), matching_codes(languages, "zho_Hans")
    (['en_XX'], ['zho_Hans', 'zho_Hant'], ['zho_Hans'])
    """
    if code in languages.codes:
        return [code]
    names = {code.lower(), ISO_639_3.get(code.lower())}
    return [known for known in languages.codes if known.partition("_")[0] in names]


def _listed(languages: LanguagesConfig) -> str:
    shown = ", ".join(languages.codes[:MAX_LISTED])
    return f"{shown}, …" if len(languages.codes) > MAX_LISTED else shown
