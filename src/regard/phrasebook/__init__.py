"""The phrasebook: English and Italian sentence pairs from a small grammar, with their exact word alignment.

    from regard import phrasebook

    for pair in phrasebook.split("train"):
        pair.source, pair.target, pair.alignment

Every English sentence has one translation, so that exact matches can be counted. Where Italian has a choice, it is
made once: `you` is tu and `you two` voi; I, we and they are masculine, and so are the doctor and the friend unless the
sentence says otherwise; the past is the passato prossimo, `I am eating` is `sto mangiando`; pronouns precede the finite
verb, `ti voglio vedere`; an `it` that refers to a noun has its gender, any other is `lo`. Three of four statements
end with a full stop, and nearly all questions with `?`. One sentence of twelve begins with a small letter, and some
have contractions; the translation has the case and the final mark of its source.

Alignments pair `words_and_punctuation`. Every word is aligned: a subject pronoun or an auxiliary that Italian drops
to the verb whose ending expresses it, an article or preposition that one language lacks to its noun.
"""

from regard.phrasebook.corpus import AlignedPair, SplitName, coverage, pairs, split
from regard.phrasebook.phrases import words_and_punctuation

__all__ = ["AlignedPair", "SplitName", "coverage", "pairs", "split", "words_and_punctuation"]
