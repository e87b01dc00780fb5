"""Italian verbs: presente, futuro, participle and gerund from the infinitive, and the forms that no rule gives.

A form is chosen by person (1, 2, 3) and whether it is plural.
"""

import re
from functools import cache
from typing import NamedTuple


class Irregular(NamedTuple):
    """What a verb does in its own way; an empty field is regular."""

    present: str = ""
    future: str = ""
    participle: str = ""
    gerund: str = ""


def _read(table: str) -> dict[str, Irregular]:
    rows = (line.split("|") for line in table.strip().splitlines())
    return {row[0].strip(): Irregular(*(cell.strip() for cell in row[1:])) for row in rows}


_IRREGULAR = _read("""
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
    """
    >>> [present(verb, 2, False) for verb in ("mangiare", "cercare", "capire", "aprire", "andare")]
    ['mangi', 'cerchi', 'capisci', 'apri', 'vai']
    """
    if own := _irregular(infinitive).present:
        return _choose(own, person, plural)
    ending = _choose(_ISC_ENDINGS if infinitive in _INSERT_ISC else _ENDINGS[infinitive[-3:]], person, plural)
    stem = infinitive[:-3]
    if ending[0] == "i" and infinitive.endswith("are"):
        stem = stem[:-1] if stem.endswith("i") else _with_h(stem)
    return stem + ending


@cache
def future(infinitive: str, person: int, plural: bool) -> str:
    """
    >>> [future(verb, 1, False) for verb in ("mangiare", "pagare", "studiare", "aprire", "vedere")]
    ['mangerò', 'pagherò', 'studierò', 'aprirò', 'vedrò']
    """
    stem = _irregular(infinitive).future
    if not stem:
        stem = infinitive[:-1]
        if infinitive.endswith("are"):
            root = infinitive[:-3]
            stem = (root[:-1] if re.search("[cg]i$", root) else _with_h(root)) + "er"
    return stem + _choose(_FUTURE_ENDINGS, person, plural)


def would_like(person: int, plural: bool) -> str:
    """The one conditional that no phrasebook does without: vorrei."""
    return _choose(_WOULD_LIKE, person, plural)


@cache
def participle(infinitive: str) -> str:
    """The participle, masculine singular: mangiato, venduto, finito, scritto."""
    own = _irregular(infinitive).participle
    return own or infinitive[:-3] + {"are": "ato", "ere": "uto", "ire": "ito"}[infinitive[-3:]]


@cache
def gerund(infinitive: str) -> str:
    """mangiando, vedendo, finendo, facendo."""
    own = _irregular(infinitive).gerund
    return own or infinitive[:-3] + ("ando" if infinitive.endswith("are") else "endo")


@cache
def imperative(infinitive: str, clitic: str = "") -> str:
    """What one tells a friend to do, with the pronoun that hangs on it; short forms double its consonant.

    >>> imperative("aprire"), imperative("aspettare", "mi"), imperative("dare", "mi"), imperative("dare", "gli")
    ('apri', 'aspettami', 'dammi', 'dagli')
    """
    if infinitive not in _IMPERATIVE:
        return present(infinitive, 3 if infinitive.endswith("are") else 2, False) + clitic
    short = _IMPERATIVE[infinitive]
    if not clitic:
        return short
    return short[:-1] + (clitic if clitic == "gli" else clitic[0] + clitic)


def _irregular(infinitive: str) -> Irregular:
    return _IRREGULAR.get(infinitive, Irregular())


def _choose(forms: str, person: int, plural: bool) -> str:
    return forms.split()[person - 1 + 3 * plural]


def _with_h(stem: str) -> str:
    return stem + "h" if stem[-1] in "cg" else stem
