"""Scores are those of sacrebleu, called by hand."""

import subprocess
import sys

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from regard.evaluation.lengths import by_length
from regard.evaluation.scores import ALL, score, sentence_scores

REFERENCES = ["Ti amo molto.", "Dov'è la stazione?", "Abbiamo comprato la macchina rossa ieri."]
OUTPUTS = ["Ti amo molto.", "Dov'è una stazione?", "Ieri abbiamo comprato la macchina rossa."]


def test_scores_and_signatures_are_sacrebleus() -> None:
    found = score(OUTPUTS, REFERENCES, ALL)
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        assert found.values[name] == metric.corpus_score(OUTPUTS, [REFERENCES]).score
        assert found.signatures[name] == str(metric.get_signature())
    assert found.values["exact"] == pytest.approx(1 / 3)


def test_a_validation_counts_no_ter_which_would_take_its_time() -> None:
    assert list(score(OUTPUTS, REFERENCES).values) == ["bleu", "chrf", "exact"]


def test_each_sentence_has_a_chrf_of_its_own() -> None:
    sentences = zip(OUTPUTS, REFERENCES, strict=True)
    wanted = [CHRF().sentence_score(output, [reference]).score for output, reference in sentences]
    assert sentence_scores(OUTPUTS, REFERENCES) == wanted


def test_every_length_is_in_one_bucket_and_empty_buckets_are_left_out() -> None:
    lengths = [1, 5, 6, 10, 11, 20, 51, 300]
    sources = [" ".join(["word"] * length) for length in lengths]
    outputs = [f"output number {n} of this test" for n in range(len(sources))]
    found = by_length(sources, outputs, outputs)
    assert [(bucket.words, bucket.sentences) for bucket in found] == [("1–5", 2), ("6–10", 2), ("11–20", 2), ("51+", 2)]
    assert sum(bucket.sentences for bucket in found) == len(sources)


def test_a_buckets_scores_are_those_of_its_sentences() -> None:
    sources = ["I love you.", "Where is the station then, please?", "We bought the red car yesterday, my friend."]
    short, long = by_length(sources, OUTPUTS, REFERENCES)
    assert (short.sentences, long.sentences) == (1, 2)
    assert long.bleu == BLEU().corpus_score(OUTPUTS[1:], [REFERENCES[1:]]).score
    assert long.chrf == CHRF().corpus_score(OUTPUTS[1:], [REFERENCES[1:]]).score


def test_sacrebleu_is_imported_only_when_something_is_scored() -> None:
    program = """
import sys
from regard.evaluation import lengths, scores
assert "sacrebleu" not in sys.modules
scores.score(["a"], ["a"])
assert "sacrebleu" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
