"""Chat templates in model folders, and the built-in ones for models without. Imports no Jinja."""

import json
from collections.abc import Mapping
from pathlib import Path

from regard.errors import ModelError
from regard.files import load_json, read_regular_file

CHAT_TEMPLATE_FILE = "chat_template.jinja"
CHAT_TOKENS_FILE = "special_tokens_map.json"  # the names of special tokens that templates use, as in Hugging Face
MAX_TEMPLATE_BYTES = 2**18
CHAT_FILES = (CHAT_TEMPLATE_FILE, CHAT_TOKENS_FILE)
TURN_START, TURN_END = "<|im_start|>", "<|im_end|>"
CHATML_TEMPLATE = r"""{{- bos_token }}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}
    {%- else %}
        {{- message['content'] + '<|im_end|>' }}
    {%- endif %}
    {{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
"""
PLAIN_TEMPLATE = r"""{{- bos_token }}
{%- for message in messages %}
    {{- message['role'] + ':' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}{{ ' ' + message['content'] + eos_token }}{% endgeneration %}
    {%- else %}
        {{- ' ' + message['content'] + eos_token }}
    {%- endif %}
    {{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'assistant:' }}{% endif %}
"""
SPECIAL_NAMES = {"bos_token": "start", "eos_token": "end", "pad_token": "pad", "unk_token": "unknown"}


def read_chat_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a model folder that belong to its chat template, to copy them to another."""
    contents = {name: read_chat_text(folder / name) for name in CHAT_FILES}
    return {name: content.encode() for name, content in contents.items() if content is not None}


def special_tokens_file(names: Mapping[str, str | None]) -> bytes:
    """Return the content of the file with the names of special tokens."""
    known = {name: token for name, token in names.items() if token is not None}
    return (json.dumps(known, indent=2, ensure_ascii=False) + "\n").encode()


def read_chat_text(path: Path) -> str | None:
    """Return the content of one of these files; None if it does not exist."""
    try:
        return read_regular_file(path, MAX_TEMPLATE_BYTES).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); copy the folder again.") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: is not UTF-8 text (byte {error.start}); copy the folder again.") from None


def read_token_names(path: Path) -> dict[str, str]:
    """Return the names of special tokens, which are texts or, in older files, objects with `content`."""
    try:
        content = load_json(read_chat_text(path) or "{}")
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is not valid JSON ({error}); copy the folder again.") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: should contain a JSON object; copy the folder again.")
    named = {name: value.get("content") if isinstance(value, dict) else value for name, value in content.items()}
    return {name: value for name, value in named.items() if isinstance(value, str)}
