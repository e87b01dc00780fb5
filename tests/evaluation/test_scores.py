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
EACH = [[reference] for reference in REFERENCES]
OUTPUTS = ["Ti amo molto.", "Dov'è una stazione?", "Ieri abbiamo comprato la macchina rossa."]


def test_scores_and_signatures_are_sacrebleus() -> None:
    found = score(OUTPUTS, EACH, ALL)
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        assert found.values[name] == metric.corpus_score(OUTPUTS, [REFERENCES]).score
        assert found.signatures[name] == str(metric.get_signature())
    assert found.values["exact"] == pytest.approx(1 / 3)


def test_a_validation_counts_no_ter_which_would_take_its_time() -> None:
    assert list(score(OUTPUTS, EACH).values) == ["bleu", "chrf", "exact"]


def test_text_that_is_tokenised_already_is_counted_as_it_stands() -> None:
    outputs, references = ["ein 10-jähriges kind rennt nach haus ."], ["ein 9-jähriges kind rennt nach haus ."]
    found = score(outputs, [references], tokenize="none")
    assert found.values["bleu"] == BLEU(tokenize="none", force=True).corpus_score(outputs, [references]).score
    assert found.values["bleu"] != score(outputs, [references]).values["bleu"]  # which takes 10-jähriges apart
    assert "tok:none" in found.signatures["bleu"]


def test_any_of_several_references_is_right_and_sentences_may_have_different_numbers_of_them() -> None:
    several = [["Ti amo tanto.", "Ti amo molto."], ["Dov'è la stazione?"], ["Ieri abbiamo comprato la macchina rossa."]]
    found = score(OUTPUTS, several, ALL)
    streams: list[list[str | None]] = [
        ["Ti amo tanto.", "Dov'è la stazione?", "Ieri abbiamo comprato la macchina rossa."],
        ["Ti amo molto.", None, None],
    ]
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        assert found.values[name] == metric.corpus_score(OUTPUTS, streams).score  # type: ignore[arg-type]
    assert found.values["exact"] == pytest.approx(2 / 3)


def test_each_sentence_has_a_chrf_of_its_own() -> None:
    sentences = zip(OUTPUTS, REFERENCES, strict=True)
    wanted = [CHRF().sentence_score(output, [reference]).score for output, reference in sentences]
    assert sentence_scores(OUTPUTS, EACH) == wanted


def test_every_length_is_in_one_bucket_and_empty_buckets_are_left_out() -> None:
    lengths = [1, 5, 6, 10, 11, 20, 51, 300]
    sources = [" ".join(["word"] * length) for length in lengths]
    outputs = [f"output number {n} of this test" for n in range(len(sources))]
    found = by_length(sources, outputs, [[output] for output in outputs])
    assert [(bucket.words, bucket.sentences) for bucket in found] == [("1–5", 2), ("6–10", 2), ("11–20", 2), ("51+", 2)]
    assert sum(bucket.sentences for bucket in found) == len(sources)


def test_a_buckets_scores_are_those_of_its_sentences() -> None:
    sources = ["I love you.", "Where is the station then, please?", "We bought the red car yesterday, my friend."]
    short, long = by_length(sources, OUTPUTS, EACH)
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
