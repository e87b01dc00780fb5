"""The personal pronouns of both languages.

Italian drops them as subjects, since the verb's ending says enough, and puts them before the verb as objects.
`you` is one friend, tu; `you two` is voi. Speakers and groups that nothing says more about are masculine, as in Italian
grammar; so is an `it` without a noun to point back to.
"""

from dataclasses import dataclass

from regard.phrasebook.italian import Gender
from regard.phrasebook.words import Phrase, Word


@dataclass(frozen=True, eq=False)
class Pronoun:
    """One person in all roles: I, me, my; mi, mi, me, mio."""

    subject: str
    object: str
    possessive: str
    direct: str
    indirect: str
    stressed: str
    owner: str
    person: int
    plural: bool
    gender: Gender = "m"

    @property
    def english_plural(self) -> bool:
        """Whether the English verb is plural."""
        return self.plural


I = Pronoun("I", "me", "my", "mi", "mi", "me", "mio", 1, False)  # noqa: E741
YOU = Pronoun("you", "you", "your", "ti", "ti", "te", "tuo", 2, False)
HE = Pronoun("he", "him", "his", "lo", "gli", "lui", "suo", 3, False)
SHE = Pronoun("she", "her", "her", "la", "le", "lei", "suo", 3, False, "f")
WE = Pronoun("we", "us", "our", "ci", "ci", "noi", "nostro", 1, True)
YOU_TWO = Pronoun("you two", "you two", "", "vi", "vi", "voi", "", 2, True)
THEY = Pronoun("they", "them", "their", "li", "gli", "loro", "loro", 3, True)
IT = Pronoun("it", "it", "", "lo", "", "", "", 3, False)
IT_F = Pronoun("it", "it", "", "la", "", "", "", 3, False, "f")
THEM_F = Pronoun("they", "them", "", "le", "", "", "", 3, True, "f")

PEOPLE = (I, YOU, HE, SHE, WE, YOU_TWO, THEY)
OWNERS = (I, YOU, HE, SHE, WE, THEY)


def pointing_to(gender: Gender, plural: bool) -> Pronoun:
    """The pronoun that stands for a thing already named: la chiave … la; le mele … le."""
    if plural:
        return THEM_F if gender == "f" else THEY
    return IT_F if gender == "f" else IT


def reflexive(person: int, plural: bool) -> str:
    """mi, ti, si, ci, vi, si."""
    return ("mi", "ti", "si", "ci", "vi", "si")[person - 1 + 3 * plural]


def combine(indirect: str, direct: str) -> tuple[str, ...]:
    """Two pronouns before one verb: me lo, te la, glieli.

    >>> combine("mi", "lo"), combine("le", "la")
    (('me', 'lo'), ('gliela',))
    """
    if indirect in {"gli", "le"}:
        return ("glie" + direct,)
    return (indirect[0] + "e", direct)


def with_pronoun(english: str, italian: str, pronoun: Pronoun) -> Phrase:
    """A preposition and a pronoun, which then has its full form: con me, per te."""
    return Phrase(
        (Word(english, ("preposition",)), *(Word(text, ("pronoun",)) for text in pronoun.object.split())),
        (Word(italian, ("preposition",)), Word(pronoun.stressed, ("pronoun",))),
    )
