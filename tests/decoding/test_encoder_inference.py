"""Vectors, labels and tags of many texts are those of each by itself, whatever their lengths."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from family import make
from labeled_runs import WORDS
from regard.api import Model
from regard.config import (
    ClassHeadConfig,
    Config,
    EncoderOnlyConfig,
    LearnedPositionsConfig,
    SpecialTokensConfig,
    TagHeadConfig,
    TokenizerConfig,
)
from regard.data.encoder_batches import TextOrPair
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.decoding.encoder_inference import TextEncoder, embed, label_probabilities, tag_probabilities
from regard.errors import ConfigError
from regard.models import save

LABELS = ("bad", "good", "so-so")


def tokenizer() -> Tokenizer:
    return train_tokenizer([" ".join(WORDS)], TokenizerConfig(), vocab_size=300)


def reader(head: ClassHeadConfig | TagHeadConfig, longest: int = 12) -> TextEncoder:
    cut = tokenizer()
    model = EncoderOnlyConfig(
        vocab_size=len(cut), width=16, layers=2, heads=2, feed_forward=24,
        positions=LearnedPositionsConfig(max_length=longest),
        segments=2, pooling="first-dense", head=head,
    )  # fmt: skip
    return TextEncoder.for_network(make(model), Config(model=model, tokens=SpecialTokensConfig()), cut, "it")


CLASSIFIER, TAGGER = reader(ClassHeadConfig(labels=LABELS)), reader(TagHeadConfig(labels=LABELS))
sentence = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
texts = st.lists(st.one_of(sentence, st.tuples(sentence, sentence)), min_size=1, max_size=5)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(texts)
def test_a_batch_of_texts_has_the_vectors_and_labels_of_its_rows(several: list[TextOrPair]) -> None:
    found, cut = label_probabilities(CLASSIFIER, several)
    assert np.allclose(found.sum(1), 1)
    for pooling in ("mean", "first", "first-dense"):
        together = embed(CLASSIFIER, several, pooling)
        alone = [embed(CLASSIFIER, [text], pooling).vectors[0] for text in several]
        assert np.allclose(together.vectors, alone, atol=1e-6)
        assert together.truncated == sum(cut)
    assert np.allclose(found, [label_probabilities(CLASSIFIER, [text])[0][0] for text in several], atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=20), min_size=1, max_size=4))
def test_every_word_has_a_tag_however_long_its_sentence(several: list[list[str]]) -> None:
    found = tag_probabilities(TAGGER, several)
    assert [len(rows) for rows in found] == [len(words) for words in several]
    for words, rows in zip(several, found, strict=True):
        assert np.allclose(rows, tag_probabilities(TAGGER, [words])[0], atol=1e-9)


def test_the_order_of_a_pair_matters_and_so_does_that_it_is_one() -> None:
    one, other = label_probabilities(CLASSIFIER, [("cat", "dog"), ("dog", "cat")])[0]
    assert not np.allclose(one, other)


def test_normalized_vectors_have_length_one() -> None:
    vectors = embed(CLASSIFIER, ["the cat", "a dog", ""], normalize=True).vectors
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)


def test_long_texts_are_cut_and_counted() -> None:
    long = " ".join(WORDS * 3)
    assert embed(CLASSIFIER, ["cat", long]).truncated == 1
    assert label_probabilities(CLASSIFIER, ["cat", long])[1] == [False, True]


def saved(folder: Path, head: ClassHeadConfig | TagHeadConfig) -> Model:
    made = reader(head)
    files = {"tokenizer.json": made.tokenizer.to_json()}
    save(folder, made.network.float(), made.config, extra_files=files)
    return regard.load(folder)


def test_a_model_answers_as_it_is_asked(tmp_path: Path) -> None:
    classifier, tagger = (
        saved(tmp_path / "c", ClassHeadConfig(labels=LABELS)),
        saved(tmp_path / "t", TagHeadConfig(labels=LABELS)),
    )
    assert classifier.classify("the cat") in LABELS
    assert classifier.classify(("the cat", "a dog")) in LABELS
    several = classifier.classify(["the cat", ("a", "dog")])
    assert several == [one.label for one in classifier.classify_detailed(["the cat", ("a", "dog")])]
    assert classifier.embed("the cat").shape == (16,)
    assert classifier.embed(["the cat", "a"]).shape == (2, 16)
    assert classifier.embed([]).shape == (0, 16)
    ((first, second),) = tagger.tag([["the", "cat"]])
    assert (first[0], second[0]) == ("the", "cat")
    assert tagger.tag(["the cat"]) == tagger.tag([["the", "cat"]])


def test_a_model_that_cannot_says_so(tmp_path: Path) -> None:
    classifier, tagger = (
        saved(tmp_path / "c", ClassHeadConfig(labels=LABELS)),
        saved(tmp_path / "t", TagHeadConfig(labels=LABELS)),
    )
    with pytest.raises(ConfigError) as error:
        classifier.tag(["the cat"])
    assert str(error.value) == (
        f"{tmp_path / 'c'}: cannot label words, because its head is for classes; train a model with regard train tag."
    )
    with pytest.raises(ConfigError) as error:
        tagger.classify("the cat")
    assert str(error.value) == (
        f"{tmp_path / 't'}: cannot label texts, because its head is for tags; train a model with regard train classify."
    )


def test_dense_pooling_must_have_been_learned() -> None:
    model = EncoderOnlyConfig(vocab_size=300, width=16, layers=1, heads=2, feed_forward=24)
    torch.manual_seed(0)
    plain = TextEncoder.for_network(make(model), Config(model=model), tokenizer(), "it")
    with pytest.raises(ConfigError) as error:
        embed(plain, ["a"], "first-dense")
    assert str(error.value) == (
        "pooling = first-dense: this model was trained without a dense layer; use mean or first."
    )
    with pytest.raises(ConfigError) as error:
        embed(CLASSIFIER, ["a"], "first-relu")
    assert str(error.value) == ("pooling = first-relu: this model was trained without a ReLU layer; use mean or first.")
