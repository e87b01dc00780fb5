"""Words are aligned by the head that agrees with what leaving words out costs."""

import pytest
import torch

from looking import ALIGNING, facts, traced
from regard.config import SpecialTokensConfig
from regard.config.data import TokenizerConfig
from regard.data.tokenizer import train_tokenizer
from regard.errors import InputError
from regard.interpret.alignment import Alignment, erasure
from regard.interpret.tokens import WordSpan, bpe_merges, group_words


@pytest.mark.parametrize("name", ALIGNING)
def test_a_cost_is_the_difference_to_a_sentence_without_the_token(name: str) -> None:
    trace = traced(name)
    costs = erasure(trace)
    network, written = trace.model.network, trace.decoded
    assert written.source_ids is not None
    assert written.input_ids is not None
    for left_out in range(len(written.source_ids) - 1):
        source = written.source_ids[:left_out] + written.source_ids[left_out + 1 :]
        with torch.no_grad():
            memory = network.encode(torch.tensor([source]), features=facts(trace, without=left_out))
            rows = network.logits(network.decode(torch.tensor([written.input_ids]), memory))[0].log_softmax(-1)
        for step in trace.steps:
            cost = step.log_probability - float(rows[step.step, step.id])
            assert float(costs[step.step, left_out]) == pytest.approx(cost, abs=1e-4)
    assert not costs[:, -1].any()


@pytest.mark.parametrize("name", ALIGNING)
def test_the_head_that_agrees_most_is_chosen_and_merged_weights_still_share_one(name: str) -> None:
    found = traced(name).alignment()
    assert found.chosen.agreement == max(head.agreement for head in found.heads)
    torch.testing.assert_close(found.weights.sum(1), torch.ones(len(found.target)))
    assert [target for target, _, _ in found.pairs] == [n for n, word in enumerate(found.target) if not word.special]


def test_weights_are_summed_over_a_source_word_and_averaged_over_a_target_word() -> None:
    from regard.interpret.alignment import _merge_weights

    weights = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.4, 0.3]])
    one, two = [WordSpan("a", (0, 1)), WordSpan("b", (2,))], [WordSpan("c", (0, 1))]
    torch.testing.assert_close(_merge_weights(weights, two, one), torch.tensor([[0.5, 0.5]]))


def test_what_looks_at_no_source_aligns_nothing() -> None:
    for name in ("decoder-only", "encoder-only", "recurrent encoder-decoder, bottleneck"):
        with pytest.raises(InputError) as found:
            traced(name).alignment()
        assert str(found.value) == "This network has no cross-attention, so there is nothing to align."


def test_where_there_is_no_source_nothing_can_be_left_out() -> None:
    for name in ("decoder-only", "encoder-only"):
        with pytest.raises(InputError) as found:
            erasure(traced(name))
        sentence = "Erasure needs a source whose tokens can be left out, and this network does not translate."
        assert str(found.value) == sentence


TEXTS = ["ti amo molto.", "l'amico non è qui, no?", "dov'è il caffè"] * 3


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "character", "word"])
def test_tokens_of_every_tokenizer_are_grouped_to_words(kind: str) -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(kind=kind), vocabulary=330)  # type: ignore[arg-type]
    ids = [*tokenizer.encode("non è qui"), 3]
    found = group_words(ids, tokenizer, SpecialTokensConfig())
    assert [word.text for word in found] == ["non", "è", "qui", "[EOS]"]
    assert [place for word in found for place in word.tokens] == list(range(len(ids)))
    assert [word.special for word in found] == [False, False, False, True]


def test_a_character_spelled_in_bytes_is_one_word() -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(), vocabulary=330)
    ids = tokenizer.encode("amo 猫 molto")
    assert len(ids) > 4
    assert [word.text for word in group_words(ids, tokenizer, SpecialTokensConfig())] == ["amo", "猫", "molto"]


@pytest.mark.parametrize("kind", ["bpe", "byte-level"])
def test_merges_lead_from_characters_to_the_very_pieces(kind: str) -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(kind=kind), vocabulary=330)  # type: ignore[arg-type]
    for text in TEXTS:
        built = bpe_merges(text, tokenizer)
        assert [piece for word in built for piece in word.stages[-1]] == tokenizer.ids_to_tokens(tokenizer.encode(text))
        for word in built:
            assert all(
                len(after) == len(before) - 1 for before, after in zip(word.stages, word.stages[1:], strict=False)
            )


def test_what_does_not_merge_shows_no_merges() -> None:
    assert bpe_merges("amo", train_tokenizer(TEXTS, TokenizerConfig(kind="word"), vocabulary=50)) == []


def test_pairs_never_name_the_end() -> None:
    found = traced("encoder-decoder").alignment()
    assert isinstance(found, Alignment)
    assert all(not found.source[source].special for _, source, _ in found.pairs)


@pytest.mark.parametrize("kind", ["bpe", "byte-level"])
def test_the_bytes_of_a_letter_stay_in_its_word(kind: str) -> None:
    """A vocabulary that has never seen a letter spells it in bytes, none of which is a letter by itself."""
    tokenizer = train_tokenizer(["ti amo molto"] * 3, TokenizerConfig(kind=kind), vocabulary=300)  # type: ignore[arg-type]
    text = "amo 猫👩 caffè molto"
    found = group_words(tokenizer.encode(text), tokenizer, SpecialTokensConfig())
    assert [word.text for word in found if not word.special] == ["amo", "猫", "👩", "caffè", "molto"]
