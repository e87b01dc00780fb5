"""Chat templates render as in `transformers`, mark what assistants write, and take names of special tokens as text."""

import json
from collections.abc import Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from regard.config import SpecialTokensConfig
from regard.config.data import TokenizerConfig
from regard.data.chat import ChatTemplate, check_messages, load_chat_template
from regard.data.chat_templates import CHATML_TEMPLATE, PLAIN_TEMPLATE, read_chat_files
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.errors import InputError, ModelError

SPECIAL = ["<|begin|>", "<|im_start|>", "<|im_end|>", "<|other|>"]
NAMES = {"bos_token": "<|begin|>", "eos_token": "<|im_end|>"}
# in the manner of well-known models
HEADERS = """{{ bos_token }}{% for message in messages %}
{%- set content = '<|im_start|>' ~ message['role'] ~ '\\n\\n' ~ (message['content'] | trim) ~ '<|im_end|>' %}
{{- content }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n\\n' }}{% endif %}"""
INSTRUCTIONS = """{%- if messages[0]["role"] == "system" %}{%- set system = messages[0]["content"] %}
{%- set rest = messages[1:] %}{%- else %}{%- set rest = messages %}{%- endif %}
{{- bos_token }}{%- for message in rest %}
  {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}{{- raise_exception("Roles should alternate.") }}
  {%- endif %}
  {%- if message["role"] == "user" %}
    {{- " [INST] " + (system + "\\n" if loop.first and system is defined else "") + message["content"] + " [/INST]" }}
  {%- else %}{{- " " + message["content"] | trim + eos_token }}{%- endif %}{%- endfor %}"""
TOOLS = """{% set ns = namespace(found=false, number=0) %}{% for message in messages[::-1] if message.role == 'user' %}
{% set ns.number = ns.number + 1 %}{% if loop.last %}{% set ns.found = true %}{% endif %}{% endfor %}
{% if tools %}{{ tools | tojson(indent=2) }}{% for tool in tools %}
{{ loop.index }}/{{ loop.length }}: {{ tool | tojson }}{% if not loop.last %}, {% endif %}
{% endfor %}{% endif %}{% macro turn(message) %}<|im_start|>{{ message.role | upper }}{{ '%d' % ns.number }}
{{ message.content.replace('  ', ' ').split('</think>') | last }}<|im_end|>{% endmacro %}
{% for message in messages %}{% if message.role == 'tool' %}{% continue %}{% endif %}
{{ turn(message) }}{{ loop.previtem.role if loop.previtem is defined else 'first' }}
{% endfor %}{{ messages | map(attribute='role') | join('/') }}{{ {'a': [1, 'é', none]} | tojson }}{{ ns.found }}
{% if add_generation_prompt %}<|im_start|>assistant{% endif %}"""
MARKED = """{% for message in messages %}{% if message.role == 'assistant' %}<|im_start|>assistant
{% generation %}{{ message.content | trim }}<|im_end|>{% endgeneration %}

{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}{% endfor %}"""
TEMPLATES = {"headers": HEADERS, "instructions": INSTRUCTIONS, "tools": TOOLS, "marked": MARKED}
QUESTION = {"role": "user", "content": "Ciao!  Where is the café? "}
CHAT = [
    {"role": "system", "content": "Be brief."},
    QUESTION,
    {"role": "assistant", "content": " It's  there.\n"},
    {"role": "user", "content": "Grazie"},
    {"role": "assistant", "content": "Prego, 日本!"},
]


@cache
def byte_level() -> tokenizers.Tokenizer:
    fast = tokenizers.Tokenizer(models.BPE())
    fast.pre_tokenizer, fast.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(name, special=True, normalized=False) for name in SPECIAL],
    )
    fast.train_from_iterator([str(message["content"]) for message in CHAT], trainer)
    return fast


@cache
def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, Tokenizer(tokenizers.Tokenizer.from_str(byte_level().to_str())), NAMES, "chat.jinja")


@cache
def theirs() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=byte_level(), **NAMES)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_templates_render_as_in_transformers(kind: str) -> None:
    tools = [{"name": "weather", "parameters": {"city": "città", "<b>": [1.5, None]}}, {"name": "time"}]
    for messages, prompt in product((CHAT, CHAT[1:], CHAT[:2]), (False, True)):
        ours = template(TEMPLATES[kind]).encode(
            messages, add_generation_prompt=prompt, variables={"tools": tools, "documents": None}
        )
        expected = theirs().apply_chat_template(
            messages,
            chat_template=TEMPLATES[kind],
            tools=tools,
            add_generation_prompt=prompt,
            return_dict=False,
        )
        assert ours == expected


def test_marked_turns_are_those_of_transformers() -> None:
    ours = template(MARKED).encode_with_turns(CHAT)
    expected = theirs().apply_chat_template(
        CHAT, chat_template=MARKED, return_dict=True, return_assistant_tokens_mask=True
    )
    assert ours.ids == expected["input_ids"]
    assert ours.assistant_mask == [bool(value) for value in expected["assistant_masks"]]
    assert any(ours.assistant_mask)


def written_by_assistants(source: str, messages: list[dict[str, Any]]) -> str:
    chat = template(source)
    encoded = chat.encode_with_turns(messages)
    text: str = theirs().decode(
        [n for n, is_assistant in zip(encoded.ids, encoded.assistant_mask, strict=True) if is_assistant]
    )
    return text


@pytest.mark.parametrize("source", [HEADERS, MARKED, CHATML_TEMPLATE])
def test_turns_of_assistants_end_with_their_end_token(source: str) -> None:
    answers = [str(CHAT[2]["content"]), str(CHAT[4]["content"])]
    if source != CHATML_TEMPLATE:
        answers = [answer.strip() for answer in answers]
    assert written_by_assistants(source, CHAT) == "".join(f"{answer}<|im_end|>" for answer in answers)


def test_turns_that_change_when_others_follow_need_the_tag() -> None:
    source = "{% for m in messages %}{{ m.role }}:{% if loop.last %}!{% endif %}{{ m.content }}{% endfor %}"
    with pytest.raises(ModelError, match=r"chat\.jinja: writes message 3 in another way .* \{% generation %\}"):
        template(source).encode_with_turns(CHAT)


@given(
    st.lists(st.sampled_from([*SPECIAL, "<|", "im_end", "|>", "user\n", " ", "é", "\ufdd0"]), max_size=6).map("".join)
)
def test_names_of_special_tokens_in_messages_are_text(text: str) -> None:
    messages = [QUESTION | {"content": text}, CHAT[2]]
    for source in (HEADERS, CHATML_TEMPLATE):
        chat = template(source)
        encoded, plain = (
            chat.encode_with_turns(messages),
            chat.encode_with_turns([QUESTION | {"content": "x"}, CHAT[2]]),
        )
        special = [theirs().convert_tokens_to_ids(name) for name in SPECIAL]
        assert [n for n in encoded.ids if n in special] == [n for n in plain.ids if n in special]
        assert theirs().decode(encoded.ids) == encoded.text
        assert encoded.text.count(text if source == CHATML_TEMPLATE else text.strip())
        assert sum(encoded.assistant_mask) == sum(plain.assistant_mask)


def test_names_of_special_tokens_in_other_values_are_text() -> None:
    chat = template("{{ tools[0].name }}<|im_end|>{{ messages[0].name }}")
    rendered = chat.render([QUESTION | {"name": "a<|im_end|>"}], variables={"tools": [{"name": "<|begin|>b"}]})
    assert rendered.text == "<|begin|>b<|im_end|>a<|im_end|>"
    assert rendered.literals == (0, 21)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "byte-level", "character", "word"])
def test_the_plain_format_works_with_every_tokenizer(kind: str, tmp_path: Path) -> None:
    texts = [f"{message['role']}: {message['content']} .?!\n" for message in CHAT]
    tokenizer = train_tokenizer(texts, TokenizerConfig.model_validate({"kind": kind}), 500)
    chat = load_chat_template(tmp_path, tokenizer, SpecialTokensConfig())
    assert chat.source == PLAIN_TEMPLATE
    assert not chat.is_own
    encoded = chat.encode_with_turns(CHAT)
    start, end = SpecialTokensConfig().start, SpecialTokensConfig().end
    assert encoded.ids[0] == start
    assert encoded.ids.count(end) == len(CHAT)
    assert sum(encoded.assistant_mask[n] for n, token in enumerate(encoded.ids) if token == end) == 2
    for turn in (2, 4):  # what is learned after a prompt is what is read after it
        prompt = chat.encode(CHAT[:turn], add_generation_prompt=True)
        assert encoded.ids[: len(prompt)] == prompt
        assert encoded.assistant_mask[len(prompt)]
        assert not encoded.assistant_mask[len(prompt) - 1]


def test_chatml_is_for_tokenizers_that_have_it(tmp_path: Path) -> None:
    chat = load_chat_template(tmp_path, Tokenizer(byte_level()), SpecialTokensConfig(pad=2, unknown=2, start=2, end=2))
    assert chat.source == CHATML_TEMPLATE
    assert chat.render(CHAT[1:2], add_generation_prompt=True).text == (
        "<|im_start|>user\nCiao!  Where is the café? <|im_end|>\n<|im_start|>assistant\n"
    )


def test_files_are_kept(tmp_path: Path) -> None:
    chat = template(HEADERS)
    for name, content in chat.files.items():
        (tmp_path / name).write_bytes(content)
    assert read_chat_files(tmp_path) == chat.files
    again = load_chat_template(tmp_path, Tokenizer(byte_level()), SpecialTokensConfig(pad=2, unknown=2, start=2, end=2))
    assert again.is_own
    assert again.render(CHAT) == chat.render(CHAT)
    objects = {"bos_token": {"content": "<|begin|>"}, "eos_token": "<|im_end|>", "additional_special_tokens": []}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(objects))
    again = load_chat_template(tmp_path, Tokenizer(byte_level()), SpecialTokensConfig())
    assert again.special_tokens["bos_token"] == "<|begin|>"
    for content, fact in {b"\xff": "not UTF-8", b"[]": "JSON object", b"{": "not valid JSON"}.items():
        (tmp_path / "special_tokens_map.json").write_bytes(content)
        with pytest.raises(ModelError, match=rf"special_tokens_map\.json: .*{fact}.*; copy the folder again"):
            load_chat_template(tmp_path, Tokenizer(byte_level()), SpecialTokensConfig())


@pytest.mark.parametrize(
    ("messages", "fact"),
    [
        ("Hello", "messages: should be a list of messages with role and content, not a str"),
        ([], "messages: there are none"),
        (["Hello"], "message 1: should be an object with role and content, not a str"),
        ([QUESTION, {"content": "x"}], "message 2: role should be a text, such as user or assistant, not None"),
        ([{"role": "user"}], "message 1: content should be a text, not missing"),
        ([{"role": "user", "content": 3}], "message 1: content should be a text, not int"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "message 1: has a part of type image_url"),
    ],
)
def test_malformed_messages(messages: Any, fact: str) -> None:
    with pytest.raises(InputError) as caught:
        template(HEADERS).render(messages)
    assert fact in str(caught.value)


def test_parts_of_messages_and_messages_without_content() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    call: Mapping[str, object] = {"role": "assistant", "content": None, "tool_calls": [{"id": 1}]}
    checked = check_messages([{"role": "user", "content": parts}, call])
    assert checked == [{"role": "user", "content": "one two"}, {**call, "content": ""}]
