"""Properties of the phrasebook, checked for every pair by rules that are independent of the grammar."""

import hashlib
import re
from collections import Counter
from itertools import islice

import pytest

from regard import phrasebook
from regard.errors import ConfigError
from regard.phrasebook import AlignedPair, SplitName, words_and_punctuation
from regard.phrasebook.corpus import MIN_TRAIN_COUNT

pytestmark = pytest.mark.slow  # generating the corpus takes seconds
SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")
SIDES = ("source", "target")
VOWEL = "[aeiouàèéìòù]"
IMPURE = "(?:s[bcdfghlmnpqrtvz]|z|gn|ps|y)"


@pytest.fixture(scope="module")
def pairs() -> list[AlignedPair]:
    return [pair for name in SPLITS for pair in phrasebook.split(name)]


def violations(lines: list[str], *patterns: str) -> list[str]:
    """Return lines that match one of the patterns, which should be none."""
    wrong = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    return [line for line in lines if wrong.search(line)][:10]


def test_distinct_pairs(pairs: list[AlignedPair]) -> None:
    assert len({(pair.source, pair.target) for pair in pairs}) == len(pairs) >= 60_000


def test_every_sentence_has_one_translation(pairs: list[AlignedPair]) -> None:
    translations: dict[str, set[str]] = {}
    for pair in pairs:
        source, target = (re.sub("[.?!]$", "", text.lower()) for text in (pair.source, pair.target))
        translations.setdefault(source, set()).add(target)
    assert {source: targets for source, targets in translations.items() if len(targets) > 1} == {}
    assert len(translations) > 60_000


def test_pairs_are_reproducible(pairs: list[AlignedPair]) -> None:
    digest = hashlib.sha256(repr([(pair.source, pair.target, pair.alignment) for pair in pairs]).encode())
    assert digest.hexdigest()[:16] == "99097814b96cb18b"


def test_splits_hold_every_pair_in_order() -> None:
    by_name = {name: iter(phrasebook.split(name)) for name in SPLITS}
    upcoming = {name: next(split) for name, split in by_name.items()}
    for pair in islice(phrasebook.pairs(), 5_000):
        name = next(name for name, waiting in upcoming.items() if waiting == pair)
        upcoming[name] = next(by_name[name])
    for name in ("dev", "test"):
        assert 1_000 <= len(phrasebook.split(name)) <= 2_000


def test_dev_and_test_sentences_are_not_in_train() -> None:
    train = phrasebook.split("train")
    sources, targets = ({re.sub("[.,?!]", "", getattr(pair, side)).lower() for pair in train} for side in SIDES)
    for pair in phrasebook.split("dev") + phrasebook.split("test"):
        assert re.sub("[.,?!]", "", pair.source).lower() not in sources
        assert re.sub("[.,?!]", "", pair.target).lower() not in targets


def test_dev_and_test_words_are_frequent_in_train() -> None:
    for side in SIDES:
        seen = Counter(
            word for pair in phrasebook.split("train") for word in words_and_punctuation(getattr(pair, side))
        )
        for pair in phrasebook.split("dev") + phrasebook.split("test"):
            assert all(seen[word] >= MIN_TRAIN_COUNT for word in words_and_punctuation(getattr(pair, side))), pair


def test_known_sentences_are_in_test() -> None:
    assert phrasebook.split("test")[:3] == [
        AlignedPair("I love you very much", "Ti amo molto", ((0, 1), (1, 1), (2, 0), (3, 2), (4, 2))),
        AlignedPair(
            "Your cat is a lovely cat",
            "Il tuo gatto è un gatto adorabile",
            ((0, 0), (0, 1), (1, 2), (2, 3), (3, 4), (4, 6), (5, 5)),
        ),
        AlignedPair(
            "Man eats small dinosaur.",
            "Un uomo mangia un dinosauro piccolo.",
            ((0, 0), (0, 1), (1, 2), (2, 5), (3, 3), (3, 4), (4, 6)),
        ),
    ]


def test_coverage_has_the_numbers_of_words() -> None:
    words = {word.lower() for pair in phrasebook.split("train") for word in words_and_punctuation(pair.source)}
    assert 1_250 <= len(words) < 1_350
    assert phrasebook.coverage().endswith("About 1,300 English words, in sentences of up to 14 words.")


def test_unknown_split_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"The phrasebook has no split 'valid'; it has train, dev and test\."):
        phrasebook.split("valid")  # type: ignore[arg-type]


def test_sentences_are_short_and_well_formed(pairs: list[AlignedPair]) -> None:
    lengths = [len(words_and_punctuation(pair.source)) for pair in pairs]
    assert 5 <= sum(lengths) / len(lengths) <= 8
    assert max(lengths) <= 15
    for lines in ([pair.source for pair in pairs], [pair.target for pair in pairs]):
        assert violations(lines, "  ", r"\s[.,?!]", r"^\W", r"[^\w.?!']$", r"[.?!]\s+[a-zè]", r"\b(\w+) \1\b") == []


def test_some_sentences_are_typed_informally(pairs: list[AlignedPair]) -> None:
    open_ended = [pair for pair in pairs if pair.source[-1] not in ".?!"]
    assert 0.1 < len(open_ended) / len(pairs) < 0.25
    small = [pair for pair in pairs if pair.source[0].islower()]
    assert 0.05 < len(small) / len(pairs) < 0.12
    assert sum(pair.target[0].islower() for pair in small) > 0.95 * len(small)  # the others begin with a name
    assert 500 < sum(bool(re.search(r"'(?:t|m|re|ll|d)\b", pair.source)) for pair in pairs) < 5_000
    assert all((pair.source[-1] in ".?!") == (pair.target[-1] in ".?!") for pair in pairs)


def test_every_word_is_aligned(pairs: list[AlignedPair]) -> None:
    for pair in pairs:
        source, target = words_and_punctuation(pair.source), words_and_punctuation(pair.target)
        assert {i for i, _ in pair.alignment} == set(range(len(source))), pair
        assert {j for _, j in pair.alignment} == set(range(len(target))), pair


def test_alignment_of_known_words(pairs: list[AlignedPair]) -> None:
    known = {
        "bread": "pane", "Rome": "roma", "yesterday": "ieri", "not": "non", "and": "e ed", "water": "acqua",
        "Marco": "marco", "red": "rosso rossa rossi rosse", "tomorrow": "domani", "two": "due", "with": "con",
        "but": "ma", "?": "?", "never": "non mai", "keys": "chiavi", "because": "perché", "very": "molto molta mille",
        "seven": "sette", "please": "favore", "every": "ogni", "that": "che quel quello quell' quella",
    }  # fmt: skip
    counts: Counter[str] = Counter()
    for pair in pairs:
        source, target = (
            words_and_punctuation(pair.source),
            [word.lower() for word in words_and_punctuation(pair.target)],
        )
        for i, word in enumerate(source):
            if word in known and not (word == "two" and source[i - 1].lower() == "you"):
                partners = {target[j] for a, j in pair.alignment if a == i}
                assert partners & set(known[word].split()), (pair, word, partners)
                counts[word] += 1
    assert set(counts) == set(known)


def test_articles_fit_the_following_word(pairs: list[AlignedPair]) -> None:
    lines = [
        pair.target.lower() for pair in pairs if not re.search("[Gg]ive", pair.source)
    ]  # `dagli` is also `give him`
    plain = r"\b(?:il|del|al|dal|nel|sul|quel|bel|i|dei|ai|dai|nei|sui|quei|bei) "
    impure = r"\b(?:uno|dello|allo|dallo|nello|sullo) "
    many = r"\b(?:degli|agli|dagli|negli|sugli|quegli|begli) "
    feminine = r"\b(?:(?<!')una|della|alla|dalla|nella|sulla) "
    assert violations(lines, plain + VOWEL, plain + IMPURE, rf"\bun {IMPURE}", rf"\bbuon {IMPURE}") == []
    assert violations(lines, impure + f"(?!{IMPURE})", many + f"(?!{VOWEL}|{IMPURE})", feminine + VOWEL) == []
    assert violations(lines, rf"'(?!{VOWEL}|h(?:o|ai|a|anno)\b)(?<!po')", rf"\bquest[oa] (?!è){VOWEL}") == []


def test_un_with_apostrophe_is_feminine(pairs: list[AlignedPair]) -> None:
    feminine = "arancia oliva ora idea altra email isola università infermiera attrice insalata acqua"
    either = "insegnante artista"
    for pair in pairs:
        for article, word in re.findall(r"\b([Uu]n'|[Uu]n )([aeiou]\w*)", pair.target):
            assert word in either or (word in feminine) == article.endswith("'"), pair


def test_prepositions_and_articles_are_contracted(pairs: list[AlignedPair]) -> None:
    lines = [pair.target for pair in pairs]
    assert (
        violations(lines, r"\b(?:[Dd]i|[Aa]|[Dd]a|[Ii]n|[Ss]u) (?:il|lo|la|i|gli|le)\b", r"\b(?:di|a|da|in|su) l'")
        == []
    )
    assert violations(lines, r"\b[Aa] [aA]", r"\be [eè]", r"\b[Dd]ove è", r"\b[Cc]ome è", r"\b[Cc]i è (?:un|l)") == []


def test_pronouns_precede_the_finite_verb(pairs: list[AlignedPair]) -> None:
    lines = [pair.target.lower() for pair in pairs]
    clitic = r"\b(?:[mtvscl]i|gli|[mt]e l[oaie])"
    assert violations(lines, clitic + r" \w+(?:are|ere|ire)\b(?! la)", clitic + "[.,?!]", clitic + "$") == []
    assert violations(lines, r"\bl[oa] (?:ho|hai|ha|abbiamo|avete|hanno)\b") == []
    assert violations(lines, r"\b(?!parl)\w+(?:armi|[aei]rlo|[aei]rli|[aei]rla|[ei]rmi)\b") == []


def test_participles_agree(pairs: list[AlignedPair]) -> None:
    moved = "andat|venut|tornat|arrivat|uscit|partit|rimast|nat|cadut|svegliat|alzat|vestit|divertit|sposat|fermat"
    endings = {
        "She": "a",
        "He": "o",
        "I": "o",
        "You": "o",
        "We": "i",
        "They": "i",
        "You two": "i",
        "two women": "e",
    }
    counts: Counter[str] = Counter()
    women = "Maria|Anna|Giulia|Laura|Chiara|Sara"
    for pair in pairs:
        source = re.sub(f"^({women}) and ({women}) ", "two women ", pair.source)
        who = re.match(r"(two women|You two|She|He|I|You|We|They) (?!and)", source)
        ending = re.search(rf"\b(?:sono|sei|è|siamo|siete) (?:{moved})(\w)\b", pair.target.lower())
        if who and ending and " that " not in pair.source and " because " not in pair.source:
            assert ending[1] == endings[who[1]], pair
            counts[who[1]] += 1
        for match in re.findall(
            r"\b(?:[Ll]|[Gg]lie)i (?:ho|hai|ha|abbiamo|avete|hanno) (?:già |ancora |mai )?(\w+)", pair.target
        ):
            assert match.endswith("i"), pair
    assert set(counts) == set(endings)


def test_pronouns_have_the_gender_of_their_noun(pairs: list[AlignedPair]) -> None:
    clitic = {("f", "it"): "la|l'", ("m", "it"): "lo|l'", ("f", "them"): "le", ("m", "them"): "li"}
    nouns = {"key": "f", "keys": "f", "bag": "f", "bags": "f", "hat": "m", "hats": "m", "ring": "m", "rings": "m"}
    counts = 0
    for pair in pairs:
        match = re.search(r"^Where (?:is|are) .*?(\w+)\? .*\b(it|them)\b", pair.source)
        if match and match[1] in nouns:
            assert re.search(rf"\? .*\b(?:{clitic[nouns[match[1]], match[2]]})", pair.target, re.IGNORECASE), pair
            counts += 1
    assert counts > 30


def test_english_verbs_agree(pairs: list[AlignedPair]) -> None:
    lines = [pair.source for pair in pairs]
    third, others = r"^(?:He|She|It) (?:always|often|never) ", r"^(?:I|You|We|They) (?:always|often|never) "
    assert violations(lines, third + r"(?!\w+s\b)", others + r"(?!miss\b)\w+[^s]s\b", r"\b[Dd]oes \w+ \w+s not\b") == []
    assert (
        violations(
            lines, r"^(?:He|She|It) (?:am|are|have|do|were)\b", r"^(?:I|You|We|They) (?:is|has|does|was born\B)\b"
        )
        == []
    )
    assert (
        violations(
            lines,
            r"\b[Aa] (?!useful|university)[aeiou]",
            r"\b[Aa]n (?!honest|hour)[^aeiou]",
            r"'(?!(?:s|t|m|re|ll|d)\b)",
        )
        == []
    )
