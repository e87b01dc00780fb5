"""English inflection: plurals, verb forms, `a` and `an`."""

import re


def _read(table: str) -> dict[str, tuple[str, str]]:
    rows = (row.split() for row in table.split(";"))
    return {base: (past, participle) for base, past, participle in rows}


_IRREGULAR = _read("""
    be was been; have had had; do did done; go went gone; come came come; eat ate eaten; drink drank drunk;
    see saw seen; read read read; write wrote written; buy bought bought; sell sold sold; find found found;
    lose lost lost; break broke broken; drive drove driven; wear wore worn; bring brought brought; pay paid paid;
    take took taken; forget forgot forgotten; know knew known; understand understood understood; teach taught taught;
    meet met met; choose chose chosen; send sent sent; sing sang sung; tell told told; begin began begun;
    lend lent lent; give gave given; show showed shown; sleep slept slept; swim swam swum; run ran run; get got got;
    fall fell fallen; wake woke woken; leave left left; cut cut cut; say said said; speak spoke spoken;
    think thought thought; sit sat sat; cost cost cost; hear heard heard
""")
_DOUBLING = {"run", "swim", "cut", "get", "begin", "forget", "sit", "hug", "stop", "travel", "prefer"}
_A_DESPITE_SPELLING = re.compile(r"uni|use|euro", re.IGNORECASE)
_AN_DESPITE_SPELLING = re.compile(r"honest|hour", re.IGNORECASE)


def plural(singular: str) -> str:
    """Return the plural of a noun.

    >>> plural("key"), plural("cherry"), plural("box"), plural("potato")
    ('keys', 'cherries', 'boxes', 'potatoes')
    """
    if re.search("[^aeiou]y$", singular):
        return singular[:-1] + "ies"
    return singular + ("es" if re.search("(?:s|x|z|ch|sh|ato)$", singular) else "s")


def third_person(base: str) -> str:
    """Return the third person singular of a verb.

    >>> third_person("watch"), third_person("study"), third_person("go"), third_person("have")
    ('watches', 'studies', 'goes', 'has')
    """
    if base in {"have", "go", "do"}:
        return {"have": "has", "go": "goes", "do": "does"}[base]
    return plural(base)


def past(base: str) -> str:
    """Return the past tense of a verb.

    >>> past("love"), past("study"), past("go"), past("travel")
    ('loved', 'studied', 'went', 'travelled')
    """
    return _IRREGULAR[base][0] if base in _IRREGULAR else _with_ed(base)


def participle(base: str) -> str:
    """Return the past participle of a verb: eaten, seen, worked."""
    return _IRREGULAR[base][1] if base in _IRREGULAR else _with_ed(base)


def gerund(base: str) -> str:
    """Return the -ing form of a verb.

    >>> gerund("write"), gerund("swim"), gerund("see")
    ('writing', 'swimming', 'seeing')
    """
    if base in _DOUBLING:
        return base + base[-1] + "ing"
    return (base[:-1] if re.search("[^e]e$", base) and base != "be" else base) + "ing"


def be(person: int, is_plural: bool, in_past: bool = False) -> str:
    """Return a form of `be`: am, is, are, was or were."""
    if in_past:
        return "were" if is_plural or person == 2 else "was"
    return "are" if is_plural or person == 2 else {1: "am", 3: "is"}[person]


def indefinite(following: str) -> str:
    """Return `a` or `an`, by the sound of the following word.

    >>> [indefinite(word) for word in ("egg", "useful", "honest", "book")]
    ['an', 'a', 'an', 'a']
    """
    if _A_DESPITE_SPELLING.match(following):
        return "a"
    return "an" if following[0].lower() in "aeiou" or _AN_DESPITE_SPELLING.match(following) else "a"


def _with_ed(base: str) -> str:
    if re.search("[^aeiou]y$", base):
        return base[:-1] + "ied"
    if base in _DOUBLING:
        return base + base[-1] + "ed"
    return base + ("d" if base.endswith("e") else "ed")
