"""Numbers from 2 to 100 in both languages, and the time by the clock."""

from regard.phrasebook.words import Phrase, Word, phrase

_ENGLISH_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_ENGLISH_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ITALIAN_UNITS = (
    "zero", "uno", "due", "tre", "quattro", "cinque", "sei", "sette", "otto", "nove", "dieci", "undici", "dodici",
    "tredici", "quattordici", "quindici", "sedici", "diciassette", "diciotto", "diciannove",
)  # fmt: skip
_ITALIAN_TENS = (
    "", "", "venti", "trenta", "quaranta", "cinquanta", "sessanta", "settanta", "ottanta", "novanta",
)  # fmt: skip

_MINUTES = {  # minutes past the hour, as (English before the hour, Italian after it)
    0: ("", ""),
    5: ("five/2 past/1", "e/1 cinque/2"),
    10: ("ten/2 past/1", "e/1 dieci/2"),
    15: ("a/2 quarter/3 past/1", "e/1 un/2 quarto/3"),
    20: ("twenty/2 past/1", "e/1 venti/2"),
    30: ("half/2 past/1", "e/1 mezza/2"),
    40: ("twenty/2 to/1", "meno/1 venti/2"),
    45: ("a/2 quarter/3 to/1", "meno/1 un/2 quarto/3"),
    50: ("ten/2 to/1", "meno/1 dieci/2"),
}
MINUTES = tuple(_MINUTES)


def english_number(n: int) -> str:
    """
    >>> english_number(12), english_number(30), english_number(48), english_number(100)
    ('twelve', 'thirty', 'forty-eight', 'a hundred')
    """
    if n == 100:
        return "a hundred"
    if n < 20:
        return _ENGLISH_UNITS[n]
    return _ENGLISH_TENS[n // 10] + (f"-{_ENGLISH_UNITS[n % 10]}" if n % 10 else "")


def italian_number(n: int) -> str:
    """
    >>> [italian_number(n) for n in (12, 23, 28, 41, 100)]
    ['dodici', 'ventitré', 'ventotto', 'quarantuno', 'cento']
    """
    if n == 100:
        return "cento"
    if n < 20:
        return _ITALIAN_UNITS[n]
    tens, unit = _ITALIAN_TENS[n // 10], n % 10
    if unit in (1, 8):
        tens = tens[:-1]
    return tens + ("" if unit == 0 else "tré" if unit == 3 else _ITALIAN_UNITS[unit])


def years(n: int) -> Phrase:
    """An age; before `anni` numbers lose a last -a, -i or -o that is not stressed: trent'anni, ventun anni.

    >>> from regard.phrasebook.words import spell
    >>> [spell(years(n).italian) for n in (8, 20, 31, 45)]
    ['Otto anni', "Vent'anni", 'Trentun anni', 'Quarantacinque anni']
    """
    italian = italian_number(n)
    if n >= 20 and n % 10 == 0:
        italian = italian[:-1] + "'"
    elif n > 20 and n % 10 == 1:
        italian = italian[:-1]
    english = tuple(Word(text, ("number",)) for text in english_number(n).split())
    said = (*english, Word("years", ("years",)), Word("old", ("years",)))
    return Phrase(said, (Word(italian, ("number",)), Word("anni", ("years",))))


def clock(hour: int, minute: int = 0) -> Phrase:
    """A time of day; Italian hours are feminine plurals with an article, but for `l'una`.

    Past the half hour both languages count back from the next hour; `hour` is the one that is named.

    >>> from regard.phrasebook.words import spell
    >>> spell(clock(5, 45).english), spell(clock(5, 45).italian)
    ('A quarter to five', 'Le cinque meno un quarto')
    """
    article = "l'/hour una/hour" if hour == 1 else f"le/hour {italian_number(hour)}/hour"
    before, after = _MINUTES[minute]
    return phrase(f"{before} {english_number(hour)}/hour", f"{article} {after}")
