"""How sentences are typed: with contractions, a small first letter, or without a final mark."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from regard.phrasebook.clauses import Sentence
from regard.phrasebook.phrases import GlossedWord, Phrase, Words, align, spell
from regard.phrasebook.sampling import PortableRandom

_BEFORE_NOT = {
    "do": "don", "does": "doesn", "did": "didn", "is": "isn", "are": "aren", "will": "won", "have": "haven",
    "has": "hasn", "would": "wouldn",
}  # fmt: skip
_AFTER_SUBJECT = {
    **{(who, "are"): "'re" for who in ("you", "we", "they")},
    **{(who, "is"): "'s" for who in ("he", "she", "it", "that", "what", "where", "who", "how", "there")},
    **{(who, "will"): "'ll" for who in ("I", "you", "he", "she", "it", "we", "they")},
    **{(who, "would"): "'d" for who in ("I", "you", "he", "she", "we", "they")},
    ("I", "am"): "'m",
    ("let", "us"): "'s",
}
_CLAUSE_STARTS = {",", ".", "?", "!", "and", "but", "because", "that"}


def contract(words: Words) -> Words:
    """Return English words with contractions, of two words each: I'm, don't, what's.

    >>> from regard.phrasebook.phrases import phrase
    >>> spell(contract(phrase("I am here and you cannot sleep", "sono qui e non puoi dormire").english))
    "I'm here and you can't sleep"
    >>> spell(contract(phrase("I do not know who he is", "non so chi è").english))
    "I don't know who he is"
    """
    contracted = list(words)
    for n, (word, following) in enumerate(pairwise(words)):
        starts_clause = n == 0 or words[n - 1].text in _CLAUSE_STARTS
        ends_clause = n + 2 >= len(words) or words[n + 2].text in _CLAUSE_STARTS
        if following.text == "not" and word.text in _BEFORE_NOT:
            contracted[n : n + 2] = word._replace(text=_BEFORE_NOT[word.text]), following._replace(text="'t")
        elif (word.text, following.text) in _AFTER_SUBJECT and starts_clause and not ends_clause:
            contracted[n + 1] = following._replace(text=_AFTER_SUBJECT[word.text, following.text])
    return tuple(part for word in contracted for part in _split_cannot(word))


def _split_cannot(word: GlossedWord) -> Words:
    if word.text != "cannot":
        return (word,)
    *can, negation = word.glosses
    return GlossedWord("can", tuple(can)), GlossedWord("'t", (negation,))


class TypedPair(NamedTuple):
    """A sentence in both languages as text, and the pairs of word indices that align."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


def typed(phrase: Phrase, mark: str = "", capital: bool = True) -> TypedPair:
    """Return a phrase as text with a final mark, which may be empty.

    >>> from regard.phrasebook.phrases import phrase
    >>> typed(phrase("I/1 am/1 here/2", "sono/1 qui/2"), "!", capital=False)
    TypedPair(source='i am here!', target='sono qui!', alignment=((0, 0), (1, 0), (2, 1), (3, 2)))
    """
    end = (GlossedWord(mark, ("mark",)),) if mark else ()
    english, italian = phrase.english + end, phrase.italian + end
    if not capital and english[0].text == "I":
        english = (english[0]._replace(text="i"), *english[1:])
    return TypedPair(spell(english, capital), spell(italian, capital), align(english, italian))


def every_spelling(phrase: Phrase, marks: Sequence[str]) -> Iterator[TypedPair]:
    """Yield the phrase with each mark, with a capital and a small letter, and with contractions if it has any."""
    contracted = Phrase(contract(phrase.english), phrase.italian)
    spellings = {
        spelling.source: spelling
        for form in (phrase, contracted)
        for mark in marks
        for spelling in (typed(form, mark), typed(form, mark, capital=False))
    }
    yield from spellings.values()


def random_spelling(rng: PortableRandom, sentence: Sentence) -> TypedPair:
    """Return a sentence as most people write it, and sometimes as others do."""
    phrase, mark = sentence.phrase, sentence.mark
    if rng.chance(12):
        phrase = Phrase(contract(phrase.english), phrase.italian)
    capital = rng.chance(92)
    if not rng.chance(75 if mark == "." else 95 if capital else 50):
        mark = ""
    return typed(phrase, mark, capital)
