"""`Model.chat` answers conversations with the chat template, within the context window."""

from pathlib import Path
from typing import Any

import pytest

import regard
from regard.api import Model
from regard.decoding.options import generation_options
from regard.decoding.results import Generation
from regard.errors import ConfigError, InputError

MESSAGES = [
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hi!"},
    {"role": "user", "content": "Bye."},
]
GREEDY: Any = {"temperature": 0, "max_tokens": 12, "engine": "torch"}


@pytest.fixture(scope="module")
def model(talker: Path) -> Model:
    return regard.load(talker)


def test_an_answer_continues_the_rendered_conversation(model: Model) -> None:
    ids = model.chat_template.encode(MESSAGES, add_generation_prompt=True)
    assert model.tokenizer.decode(ids) == "user\nHello.\nassistant\nHi!\nuser\nBye.\nassistant\n"
    results: list[Generation] = []
    options = generation_options(temperature=0, max_tokens=12)
    text = "".join(chunk.text for chunk in model.generate_chunks([tuple(ids)], options, results, engine="torch"))
    assert text
    assert model.chat(MESSAGES, **GREEDY) == text
    assert "".join(model.chat(MESSAGES, stream=True, **GREEDY)) == text
    assert model.chat(MESSAGES, **GREEDY | {"engine": "ctranslate2", "precision": "float32"}) == text
    assert model.chat("Bye.", **GREEDY) == model.chat([MESSAGES[2]], **GREEDY) != text
    with_system = model.chat("Bye.", system="Be brief.", **GREEDY)
    assert with_system == model.chat([{"role": "system", "content": "Be brief."}, MESSAGES[2]], **GREEDY)


def test_the_token_that_ends_turns_in_the_template_ends_an_answer(model: Model) -> None:
    (end,) = model.chat_template.turn_ends
    assert model.tokenizer.ids_to_tokens([end]) == ["<|im_end|>"]
    assert end not in model.config.tokens.ends
    prompt = model.chat_prompt(MESSAGES, 64)
    assert prompt.stop_tokens == (end,)
    for seed in range(20):
        results: list[Generation] = []
        list(model.chat_chunks(prompt, generation_options(seed=seed, max_tokens=64), results, engine="torch"))
        assert end not in results[0].tokens
        if results[0].ended:
            break
    else:
        raise AssertionError("no answer ended")


def test_turns_reuse_what_was_computed(model: Model) -> None:
    model.prefix_cache = None
    long = [{"role": "user", "content": "x" * 80}]
    answers = []
    for _ in range(2):
        results: list[Generation] = []
        list(model.chat_chunks(model.chat_prompt(long), generation_options(temperature=0, max_tokens=5), results))
        answers.append(results[-1])
    assert answers[0].text == answers[1].text
    assert [answer.cached_tokens for answer in answers] == [0, 64]
    assert answers[0].prompt_tokens == len(model.chat_prompt(long).ids)


def test_the_oldest_turns_are_left_out_when_the_context_is_full(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    system = {"role": "system", "content": "Be brief."}
    turns = [{"role": role, "content": f"{number}" * 20} for number in range(6) for role in ("user", "assistant")]
    messages = [system, *turns, MESSAGES[2]]
    prompt = model.chat_prompt(messages, 40)
    assert len(prompt.ids) + 40 <= 200
    kept = model.tokenizer.decode(prompt.ids)
    assert kept.startswith("system\nBe brief.\nuser\n")
    assert prompt.dropped % 2 == 0
    assert f"user\n{str(prompt.dropped // 2) * 20}\n" in kept
    assert f"{prompt.dropped // 2 - 1}" * 20 not in kept
    assert model.chat_prompt(messages[:3]).dropped == 0
    model.chat(messages, **GREEDY)
    assert "do not fit into the context window" in caplog.text
    with pytest.raises(InputError, match=r"The conversation fills \d+ tokens, and the model reads 200 with its answer"):
        model.chat_prompt(messages, 40, shorten=False)
    with pytest.raises(InputError, match=r"The last message fills 2\d\d tokens"):
        model.chat([*messages, {"role": "user", "content": "x" * 220}])
    nearly = model.chat_prompt([{"role": "user", "content": "x" * 175}], 100)
    assert len(nearly.ids) + nearly.max_tokens == 200


def test_a_space_that_separates_prompt_and_answer_is_left_out(writer: Path) -> None:
    model = regard.load(writer)
    assert not model.chat_template.is_own
    prompt = model.chat_prompt([MESSAGES[0]])
    assert not prompt.ends_with_space
    results: list[Generation] = []
    list(model.chat_chunks(prompt, generation_options(temperature=0, max_tokens=3), results))
    assert results[0].text == results[0].text.lstrip()


def test_wrong_models_and_messages_are_refused(model: Model, translator: Path) -> None:
    with pytest.raises(ConfigError, match="does not generate text"):
        regard.load(translator).chat("Hello.")
    with pytest.raises(InputError, match="message 1: content should be a text"):
        model.chat([{"role": "user"}])
    with pytest.raises(ConfigError, match="temperature is -1"):
        model.chat("Hello.", temperature=-1)
