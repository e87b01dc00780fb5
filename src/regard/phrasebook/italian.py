"""Italian inflection: plurals, agreement, articles, contracted prepositions, elision, and conjugation.

These are rules over strings; irregular plurals (amico, amici) are in the lexicon. Words agree in gender, "m" or "f",
and number. A verb form is selected by person (1, 2, 3) and number.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Literal, NamedTuple

from regard.phrasebook.phrases import GlossedWord, Words

Gender = Literal["m", "f"]

_VOWEL = re.compile(r"[aeiouàèéìòù]", re.IGNORECASE)
_IMPURE = re.compile(r"s[^aeiouàèéìòù]|z|gn|ps|pn|x|y", re.IGNORECASE)  # beginnings of words that take lo, uno, gli

_ARTICULATED = {
    "di": "del dello dell' della dei degli delle",
    "a": "al allo all' alla ai agli alle",
    "da": "dal dallo dall' dalla dai dagli dalle",
    "in": "nel nello nell' nella nei negli nelle",
    "su": "sul sullo sull' sulla sui sugli sulle",
}
_ARTICLES = ("il", "lo", "l'", "la", "i", "gli", "le")
_INVARIABLE = {"blu", "rosa"}
_SOFT_PLURAL = {"simpatico", "economico"}  # plural in -ci, unlike antico, antichi
_POSSESSIVES = {"mio": "mio mia miei mie", "tuo": "tuo tua tuoi tue", "suo": "suo sua suoi sue"}
_HAVE = ("ho", "hai", "ha", "abbiamo", "avete", "hanno")
_DROPPING = {"è": {"dove", "come"}} | {form: {"lo", "la", "glielo", "gliela"} for form in _HAVE}  # dov'è, l'ho


def plural(singular: str, gender: Gender) -> str:
    """Return the plural of a noun.

    >>> [plural(noun, "f") for noun in ("mela", "banca", "arancia", "camicia", "città", "chiave")]
    ['mele', 'banche', 'arance', 'camicie', 'città', 'chiavi']
    >>> [plural(noun, "m") for noun in ("libro", "fungo", "figlio", "turista", "collega", "film")]
    ['libri', 'funghi', 'figli', 'turisti', 'colleghi', 'film']
    """
    stem, last = singular[:-1], singular[-1]
    if last == "a":
        return _with_h(stem) + "i" if gender == "m" else _feminine_plural(stem)
    if last == "o":
        return stem if stem.endswith("i") else _with_h(stem) + "i"
    return stem + "i" if last == "e" else singular  # final stressed vowels and consonants do not change: caffè, film


def agree(adjective: str, gender: Gender, is_plural: bool) -> str:
    """Return the form of an adjective or participle, given in the masculine singular, that agrees.

    >>> agree("stanco", "f", True), agree("grigio", "f", True), agree("felice", "f", True), agree("blu", "f", True)
    ('stanche', 'grigie', 'felici', 'blu')
    >>> agree("simpatico", "m", True), agree("antico", "m", True)
    ('simpatici', 'antichi')
    """
    if adjective in _INVARIABLE:
        return adjective
    if adjective[-1] == "e":
        return adjective[:-1] + "i" if is_plural else adjective
    stem = adjective[:-1]
    if gender == "f":
        return _feminine_plural(stem) if is_plural else stem + "a"
    if not is_plural:
        return adjective
    if stem.endswith("i"):
        return stem
    return stem + "i" if adjective in _SOFT_PLURAL else _with_h(stem) + "i"


def definite(gender: Gender, is_plural: bool, following: str) -> str:
    """Return the definite article before a word.

    >>> [definite("m", False, noun) + " " + noun for noun in ("libro", "zaino", "specchio", "amico")]
    ['il libro', 'lo zaino', 'lo specchio', "l' amico"]
    >>> [definite("m", True, noun) + " " + noun for noun in ("libri", "psicologi", "gnocchi", "amici")]
    ['i libri', 'gli psicologi', 'gli gnocchi', 'gli amici']
    """
    vowel, impure = _VOWEL.match(following), _IMPURE.match(following)
    if is_plural:
        return "le" if gender == "f" else "gli" if vowel or impure else "i"
    return "l'" if vowel else "la" if gender == "f" else "lo" if impure else "il"


def indefinite(gender: Gender, following: str) -> str:
    """Return the indefinite article before a word: un amico, uno zaino, un'amica, una donna."""
    if gender == "f":
        return "un'" if _VOWEL.match(following) else "una"
    return "uno" if _IMPURE.match(following) else "un"


def this(gender: Gender, is_plural: bool, following: str) -> str:
    """Return `questo` before a word: questo libro, quest'uomo, quest'idea, questi amici."""
    return "quest'" if not is_plural and _VOWEL.match(following) else agree("questo", gender, is_plural)


def that(gender: Gender, is_plural: bool, following: str) -> str:
    """Return `quello` before a word, which inflects like the definite article: quel cane, quegli amici, quell'isola."""
    return "que" + _like_an_article(gender, is_plural, following)


def before_noun(adjective: str, gender: Gender, is_plural: bool, following: str) -> str:
    """Return an adjective before its noun, where `bello` and `buono` inflect like articles.

    >>> before_noun("bello", "m", True, "specchi"), before_noun("bello", "m", False, "uomo")
    ('begli', "bell'")
    >>> before_noun("buono", "m", False, "libro"), before_noun("buono", "f", False, "idea")
    ('buon', 'buona')
    """
    if adjective == "bello":
        return "be" + _like_an_article(gender, is_plural, following)
    if adjective == "buono" and gender == "m" and not is_plural:
        return "bu" + indefinite(gender, following).replace("un", "on")
    return agree(adjective, gender, is_plural)


def possessive(owner: str, gender: Gender, is_plural: bool) -> str:
    """Return mio, tuo, suo, nostro, vostro or loro in the form that agrees with the possession."""
    if owner == "loro":
        return owner
    if owner in _POSSESSIVES:
        return _POSSESSIVES[owner].split()[2 * is_plural + (gender == "f")]
    return agree(owner, gender, is_plural)


def articulate(preposition: str, article: str) -> str | None:
    """Return the contraction of a preposition and a definite article; None if they are not contracted.

    >>> articulate("di", "lo"), articulate("su", "l'"), articulate("con", "il")
    ('dello', "sull'", None)
    """
    if preposition not in _ARTICULATED or article not in _ARTICLES:
        return None
    return _ARTICULATED[preposition].split()[_ARTICLES.index(article)]


def prepend(preposition: GlossedWord, words: Words) -> Words:
    """Return a noun phrase after a preposition: `vicino a` + `la casa` is `vicino alla casa`."""
    *before, last = preposition.text.split()
    head = tuple(GlossedWord(text, preposition.glosses) for text in before)
    if merged := articulate(last, words[0].text):
        return (*head, GlossedWord(merged, preposition.glosses + words[0].glosses), *words[1:])
    return (*head, GlossedWord(last, preposition.glosses), *words)


def elide(words: Iterable[GlossedWord]) -> Words:
    """Apply elision and euphonic -d between words: dov'è, com'è, l'ho, gliel'ha, ed è, ad Anna."""
    elided: list[GlossedWord] = []
    for word in words:
        if elided:
            before, glosses = elided[-1]
            if before in _DROPPING.get(word.text, ()):
                elided[-1] = GlossedWord(before[:-1] + "'", glosses)
            elif (before == "e" and word.text[0] in "eèE") or (before == "a" and word.text[0] in "aA"):
                elided[-1] = GlossedWord(before + "d", glosses)
        elided.append(word)
    return tuple(elided)


def _with_h(stem: str) -> str:
    """Return the stem with h after a final c or g, which stays hard before i and e."""
    return stem + "h" if stem[-1] in "cg" else stem


def _feminine_plural(stem: str) -> str:
    """Return the feminine plural; -cia and -gia keep their i only after a vowel: camicie, but arance."""
    return stem[:-1] + "e" if re.search(r"[^aeiou][cg]i$", stem) else _with_h(stem) + "e"


def _like_an_article(gender: Gender, is_plural: bool, following: str) -> str:
    """Return the ending of quello and bello: -l -llo -ll' -lla -i -gli -lle."""
    ending = {"il": "l", "lo": "llo", "l'": "ll'", "la": "lla", "i": "i", "gli": "gli", "le": "lle"}
    return ending[definite(gender, is_plural, following)]


class Irregular(NamedTuple):
    """Irregular forms of a verb; empty fields are regular."""

    present: str = ""
    future: str = ""
    participle: str = ""
    gerund: str = ""


def _read_irregular(table: str) -> dict[str, Irregular]:
    rows = (line.split("|") for line in table.strip().splitlines())
    return {row[0].strip(): Irregular(*(cell.strip() for cell in row[1:])) for row in rows}


_IRREGULAR = _read_irregular("""
essere    | sono sei è siamo siete sono                       | sar   | stato
avere     | ho hai ha abbiamo avete hanno                     | avr   | avuto
stare     | sto stai sta stiamo state stanno                  | star
andare    | vado vai va andiamo andate vanno                  | andr
venire    | vengo vieni viene veniamo venite vengono          | verr  | venuto
uscire    | esco esci esce usciamo uscite escono
fare      | faccio fai fa facciamo fate fanno                 | far   | fatto | facendo
dare      | do dai dà diamo date danno                        | dar
dire      | dico dici dice diciamo dite dicono                | dir   | detto | dicendo
bere      | bevo bevi beve beviamo bevete bevono              | berr  | bevuto | bevendo
sapere    | so sai sa sappiamo sapete sanno                   | sapr
potere    | posso puoi può possiamo potete possono            | potr
volere    | voglio vuoi vuole vogliamo volete vogliono        | vorr
dovere    | devo devi deve dobbiamo dovete devono             | dovr
piacere   | piaccio piaci piace piacciamo piacete piacciono   |       | piaciuto
rimanere  | rimango rimani rimane rimaniamo rimanete rimangono    | rimarr | rimasto
scegliere | scelgo scegli sceglie scegliamo scegliete scelgono |      | scelto
spegnere  | spengo spegni spegne spegniamo spegnete spengono  |       | spento
sedere    | siedo siedi siede sediamo sedete siedono
vedere    | | vedr | visto
cadere    | | cadr
conoscere | | | conosciuto
leggere   | | | letto
scrivere  | | | scritto
prendere  | | | preso
chiudere  | | | chiuso
aprire    | | | aperto
offrire   | | | offerto
perdere   | | | perso
rompere   | | | rotto
correre   | | | corso
ridere    | | | riso
sorridere | | | sorriso
piangere  | | | pianto
dipingere | | | dipinto
rispondere | | | risposto
accendere | | | acceso
nascere   | | | nato
""")

_INSERT_ISC = {"capire", "finire", "pulire", "preferire"}
_ENDINGS = {"are": "o i a iamo ate ano", "ere": "o i e iamo ete ono", "ire": "o i e iamo ite ono"}
_ISC_ENDINGS = "isco isci isce iamo ite iscono"
_FUTURE_ENDINGS = "ò ai à emo ete anno"
_WOULD_LIKE = "vorrei vorresti vorrebbe vorremmo vorreste vorrebbero"
_IMPERATIVE = {"dare": "da'", "dire": "di'", "fare": "fa'", "andare": "va'", "stare": "sta'"}


@cache
def present(infinitive: str, person: int, plural: bool) -> str:
    """Return the present tense.

    >>> [present(verb, 2, False) for verb in ("mangiare", "cercare", "capire", "aprire", "andare")]
    ['mangi', 'cerchi', 'capisci', 'apri', 'vai']
    """
    if own := _irregular_forms(infinitive).present:
        return _choose(own, person, plural)
    ending = _choose(_ISC_ENDINGS if infinitive in _INSERT_ISC else _ENDINGS[infinitive[-3:]], person, plural)
    stem = infinitive[:-3]
    if ending[0] == "i" and infinitive.endswith("are"):
        stem = stem[:-1] if stem.endswith("i") else _with_h(stem)
    return stem + ending


@cache
def future(infinitive: str, person: int, plural: bool) -> str:
    """Return the future tense.

    >>> [future(verb, 1, False) for verb in ("mangiare", "pagare", "studiare", "aprire", "vedere")]
    ['mangerò', 'pagherò', 'studierò', 'aprirò', 'vedrò']
    """
    stem = _irregular_forms(infinitive).future
    if not stem:
        stem = infinitive[:-1]
        if infinitive.endswith("are"):
            root = infinitive[:-3]
            stem = (root[:-1] if re.search("[cg]i$", root) else _with_h(root)) + "er"
    return stem + _choose(_FUTURE_ENDINGS, person, plural)


def would_like(person: int, plural: bool) -> str:
    """Return the conditional of volere: vorrei."""
    return _choose(_WOULD_LIKE, person, plural)


@cache
def participle(infinitive: str) -> str:
    """Return the past participle, masculine singular: mangiato, venduto, finito, scritto."""
    own = _irregular_forms(infinitive).participle
    return own or infinitive[:-3] + {"are": "ato", "ere": "uto", "ire": "ito"}[infinitive[-3:]]


@cache
def gerund(infinitive: str) -> str:
    """Return the gerund: mangiando, vedendo, finendo, facendo."""
    own = _irregular_forms(infinitive).gerund
    return own or infinitive[:-3] + ("ando" if infinitive.endswith("are") else "endo")


@cache
def imperative(infinitive: str, clitic: str = "") -> str:
    """Return the informal imperative with its clitic; short forms double the consonant of the clitic.

    >>> imperative("aprire"), imperative("aspettare", "mi"), imperative("dare", "mi"), imperative("dare", "gli")
    ('apri', 'aspettami', 'dammi', 'dagli')
    """
    if infinitive not in _IMPERATIVE:
        return present(infinitive, 3 if infinitive.endswith("are") else 2, False) + clitic
    short = _IMPERATIVE[infinitive]
    if not clitic:
        return short
    return short[:-1] + (clitic if clitic == "gli" else clitic[0] + clitic)


def _irregular_forms(infinitive: str) -> Irregular:
    return _IRREGULAR.get(infinitive, Irregular())


def _choose(forms: str, person: int, plural: bool) -> str:
    return forms.split()[person - 1 + 3 * plural]
