"""Networks with a decoder learn three small tasks at once, by the training objective, and solve new examples.

Relative, rotary and ALiBi positions learn in `test_position_learning.py`, recurrent cells in `test_initialization.py`.
The tasks are to copy, to reverse, and to translate a small language in which adjectives follow their nouns and agree
with them.
"""

import random
from typing import Any

import pytest
import torch

from regard.config import (
    BigBirdAttentionConfig,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    LearnedPositionsConfig,
    LinformerAttentionConfig,
    ModelConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLanguageModelConfig,
    SinusoidalPositionsConfig,
    SpecialTokensConfig,
    WindowAttentionConfig,
)
from regard.models import Network, build
from regard.training.batches import TokenBatch
from regard.training.losses import CausalLMObjective

pytestmark = pytest.mark.slow
TOKENS = SpecialTokensConfig()
COPY, REVERSE, TRANSLATE = 4, 5, 6
NOUNS, ADJECTIVES, VERBS = range(7, 11), range(11, 15), range(15, 17)
VOCABULARY = 21  # an adjective has another form, six ids further, with nouns of even numbers
FEMININE = 6
Example = tuple[list[int], list[int]]

TRANSFORMER: dict[str, Any] = {"vocab_size": VOCABULARY, "width": 64, "heads": 4, "layers": 1, "feed_forward": 128}
# two layers if one learns slowly, or cannot learn the tasks
DEEPER: dict[str, Any] = TRANSFORMER | {"width": 48, "layers": 2, "feed_forward": 96}
RECURRENT: dict[str, Any] = {"vocab_size": VOCABULARY, "width": 96, "layers": 1}
TRANSLATORS: dict[str, ModelConfig] = {
    "Transformer": EncoderDecoderConfig(**TRANSFORMER),
    "RMS norm and SwiGLU": EncoderDecoderConfig(**TRANSFORMER, norm_order="pre", norm="rms", activation="swiglu"),
    "learned positions": EncoderDecoderConfig(**TRANSFORMER, positions=LearnedPositionsConfig(max_length=32)),
    "concatenated sinusoids": EncoderDecoderConfig(
        **TRANSFORMER, positions=SinusoidalPositionsConfig(combine="concatenate"), tie_output=False
    ),
    "norms without gain and bias": EncoderDecoderConfig(**DEEPER, norm_affine=False),
    "window": EncoderDecoderConfig(**TRANSFORMER, attention=WindowAttentionConfig(window=3)),
    "BigBird": EncoderDecoderConfig(
        **TRANSFORMER, attention=BigBirdAttentionConfig(block_size=2, window_blocks=1, global_blocks=1, random_blocks=1)
    ),
    "Linformer": EncoderDecoderConfig(
        **TRANSFORMER, attention=LinformerAttentionConfig(projected_length=8, max_length=16)
    ),
}
LANGUAGE_MODELS: dict[str, ModelConfig] = {
    "GPT": DecoderOnlyConfig(**DEEPER, norm_order="pre", activation="gelu"),
    "GPT with a window": DecoderOnlyConfig(**DEEPER, attention=WindowAttentionConfig(window=9)),
    "LSTM language model": RecurrentLanguageModelConfig(**RECURRENT | {"width": 128}, cell="lstm"),
}


def example(draw: random.Random, longest: int = 4) -> Example:
    """Draw a source, which begins with the number of its task, and its target."""
    task = draw.choice([COPY, REVERSE, TRANSLATE])
    if task == TRANSLATE:
        return translation(draw)
    words = [draw.randrange(7, 13) for _ in range(draw.randint(2, longest))]
    return [task, *words], words if task == COPY else words[::-1]


def translation(draw: random.Random) -> Example:
    """Draw `adjective noun verb noun`; in the target the adjective follows its noun and the verb is last."""
    adjective, noun, verb, other = (draw.choice(words) for words in (ADJECTIVES, NOUNS, VERBS, NOUNS))
    agreeing = adjective + FEMININE if noun % 2 == 0 else adjective
    return [TRANSLATE, adjective, noun, verb, other], [noun, agreeing, other, verb]


def rows(lists: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return padded ids and their mask."""
    width = max(map(len, lists))
    ids = torch.tensor([row + [TOKENS.pad] * (width - len(row)) for row in lists])
    mask = torch.tensor([[n < len(row) for n in range(width)] for row in lists])
    return ids, mask


def batch_of(examples: list[Example], translates: bool) -> TokenBatch:
    """Return pairs for a translator; for a language model, one text each, with a start token in between."""
    if translates:
        source_ids, source_mask = rows([[*source, TOKENS.end] for source, _ in examples])
        target_ids, target_mask = rows([[TOKENS.start, *target] for _, target in examples])
        labels, _ = rows([[*target, TOKENS.end] for _, target in examples])
        return TokenBatch(target_ids, labels, target_mask, source_ids, source_mask)
    target_ids, _ = rows([[*source, TOKENS.start, *target] for source, target in examples])
    labels, mask = rows([[*source[1:], TOKENS.start, *target, TOKENS.end] for source, target in examples])
    return TokenBatch(target_ids, labels, mask)


def accuracy(network: Network, examples: list[Example], translates: bool) -> float:
    """Return the fraction of examples without a single mistake."""
    batch = batch_of(examples, translates)
    with torch.no_grad():
        memory = network.encode(batch.source, batch.source_mask) if batch.source is not None else None
        # if every token is right given right ones before it, greedy search would have produced the same
        right = network.logits(network.decode(batch.target, memory)).argmax(-1) == batch.labels
    assert batch.target_mask is not None
    scored = batch.target_mask & ((batch.target == TOKENS.start).cumsum(1) > 0)  # after the start token
    return (right | ~scored).all(1).float().mean().item()


def trained_accuracy(config: ModelConfig, steps: int, longest: int = 4, seed: int = 0) -> float:
    """Train for a few seconds; return the fraction of new examples that are solved."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    network = build(config.model_copy(update={"dropout": 0.0}))
    objective = CausalLMObjective(network, label_smoothing=0.0)
    optimizer = torch.optim.Adam(network.parameters(), lr=6e-3, betas=(0.9, 0.98))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 6e-3 * min(1.0, (step + 1) / 50, (steps - step) / (0.4 * steps))
        loss = objective(batch_of([example(draw, longest) for _ in range(32)], config.translates))
        optimizer.zero_grad()
        (loss.loss / loss.targets).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    return accuracy(network.eval(), [example(draw, longest) for _ in range(300)], config.translates)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translator_learns_to_copy_reverse_and_translate(name: str) -> None:
    assert trained_accuracy(TRANSLATORS[name], steps=350 if TRANSLATORS[name].layers > 1 else 220) > 0.9


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_a_language_model_learns_to_copy_reverse_and_translate(name: str) -> None:
    assert trained_accuracy(LANGUAGE_MODELS[name], steps=400 if "LSTM" in name else 300) > 0.9


def test_an_rnn_without_attention_cannot_hold_a_long_text_in_its_state() -> None:
    bottleneck = RecurrentEncoderDecoderConfig(**RECURRENT, cell="rnn", attention="none", bidirectional=False)
    assert trained_accuracy(bottleneck, steps=220, longest=8) < 0.6  # a third of the examples are short translations
    attentive = RecurrentEncoderDecoderConfig(**RECURRENT, cell="gru", attention="general")
    assert trained_accuracy(attentive, steps=220, longest=8) > 0.75
