"""Translation metrics equal those of sacrebleu, called directly."""

import subprocess
import sys

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from regard.evaluation.metrics import ALL_METRICS, score_by_length, score_translations, sentence_chrf

REFERENCES = ["Ti amo molto.", "Dov'è la stazione?", "Abbiamo comprato la macchina rossa ieri."]
SINGLE_REFERENCES = [[reference] for reference in REFERENCES]
OUTPUTS = ["Ti amo molto.", "Dov'è una stazione?", "Ieri abbiamo comprato la macchina rossa."]


def test_scores_and_signatures_equal_sacrebleu() -> None:
    scores = score_translations(OUTPUTS, SINGLE_REFERENCES, ALL_METRICS)
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        assert scores.values[name] == metric.corpus_score(OUTPUTS, [REFERENCES]).score
        assert scores.signatures[name] == str(metric.get_signature())
    assert scores.values["exact"] == pytest.approx(1 / 3)


def test_ter_is_not_computed_by_default() -> None:
    assert list(score_translations(OUTPUTS, SINGLE_REFERENCES).values) == ["bleu", "chrf", "exact"]


def test_bleu_tokenizer_none_scores_tokenized_text_unchanged() -> None:
    outputs, references = ["ein 10-jähriges kind rennt nach haus ."], ["ein 9-jähriges kind rennt nach haus ."]
    scores = score_translations(outputs, [references], bleu_tokenizer="none")
    assert scores.values["bleu"] == BLEU(tokenize="none", force=True).corpus_score(outputs, [references]).score
    assert scores.values["bleu"] != score_translations(outputs, [references]).values["bleu"]
    assert "tok:none" in scores.signatures["bleu"]


def test_sentences_may_have_different_numbers_of_references() -> None:
    references = [
        ["Ti amo tanto.", "Ti amo molto."],
        ["Dov'è la stazione?"],
        ["Ieri abbiamo comprato la macchina rossa."],
    ]
    scores = score_translations(OUTPUTS, references, ALL_METRICS)
    streams: list[list[str | None]] = [
        ["Ti amo tanto.", "Dov'è la stazione?", "Ieri abbiamo comprato la macchina rossa."],
        ["Ti amo molto.", None, None],
    ]
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        assert scores.values[name] == metric.corpus_score(OUTPUTS, streams).score  # type: ignore[arg-type]
    assert scores.values["exact"] == pytest.approx(2 / 3)


def test_sentence_chrf_equals_sacrebleu() -> None:
    sentences = zip(OUTPUTS, REFERENCES, strict=True)
    expected = [CHRF().sentence_score(output, [reference]).score for output, reference in sentences]
    assert sentence_chrf(OUTPUTS, SINGLE_REFERENCES) == expected


def test_length_buckets_cover_every_sentence_and_omit_empty_ones() -> None:
    lengths = [1, 5, 6, 10, 11, 20, 51, 300]
    sources = [" ".join(["word"] * length) for length in lengths]
    outputs = [f"output number {n} of this test" for n in range(len(sources))]
    buckets = score_by_length(sources, outputs, [[output] for output in outputs])
    assert [(bucket.words, bucket.sentences) for bucket in buckets] == [
        ("1–5", 2),
        ("6–10", 2),
        ("11–20", 2),
        ("51+", 2),
    ]
    assert sum(bucket.sentences for bucket in buckets) == len(sources)


def test_bucket_scores_are_those_of_its_sentences() -> None:
    sources = ["I love you.", "Where is the station then, please?", "We bought the red car yesterday, my friend."]
    short, long = score_by_length(sources, OUTPUTS, SINGLE_REFERENCES)
    assert (short.sentences, long.sentences) == (1, 2)
    assert long.bleu == BLEU().corpus_score(OUTPUTS[1:], [REFERENCES[1:]]).score
    assert long.chrf == CHRF().corpus_score(OUTPUTS[1:], [REFERENCES[1:]]).score


def test_sacrebleu_is_imported_lazily() -> None:
    program = """
import sys
from regard.evaluation import metrics
assert "sacrebleu" not in sys.modules
metrics.score_translations(["a"], ["a"])
assert "sacrebleu" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
