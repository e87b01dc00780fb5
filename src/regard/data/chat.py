"""Chats: rendered as the text that a language model continues, and as ids with the turns of the assistant marked.

A conversation is a list of messages in OpenAI's format, each with `role` and `content`. A model's chat template, in
Jinja, says how it is written; it is in the model folder as `chat_template.jinja`; `chat_sandbox.py` runs it.

Names of special tokens in messages, such as `<|im_end|>`, stay text: only the template writes special tokens.
"""

import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes

from regard.config import SpecialTokensConfig
from regard.data.chat_sandbox import (
    BUDGET,
    MARK,
    Budget,
    LimitedEnvironment,
    RefusedMessagesError,
    TemplateLimitError,
)
from regard.data.chat_templates import (
    CHAT_TEMPLATE_FILE,
    CHAT_TOKENS_FILE,
    CHATML_TEMPLATE,
    MAX_TEMPLATE_BYTES,
    PLAIN_TEMPLATE,
    SPECIAL_NAMES,
    TURN_END,
    TURN_START,
    read_chat_text,
    read_token_names,
    special_tokens_file,
)
from regard.data.tokenizer import Tokenizer
from regard.errors import InputError, ModelError

ASSISTANT = "assistant"
MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # characters that no text has: Unicode reserves them for programs

Message = Mapping[str, object]
"""A message with `role` and `content`; other entries are passed to the template."""
Span = tuple[int, int]


@dataclass(frozen=True)
class RenderedChat:
    """A conversation as text."""

    text: str
    assistant_spans: tuple[Span, ...] | None
    """What assistants wrote, with the ends of their turns, as (start, end); None if the template does not mark it."""
    literals: tuple[int, ...] = ()
    """Where messages have the name of a special token, which is text there."""


@dataclass(frozen=True)
class EncodedChat:
    """A conversation as ids."""

    ids: list[int]
    assistant_mask: list[bool]
    """Whether an assistant writes the token: the tokens to learn from."""
    text: str


class ChatTemplate:
    """Renders conversations for one model.

    Args:
        source: The template.
        tokenizer: The tokenizer of the model.
        special_tokens: The names of special tokens that the template uses, such as `bos_token`.
        location: Its file, for error messages.
        is_own: Whether it comes from the model, and not from regard.
    """

    def __init__(
        self,
        source: str,
        tokenizer: Tokenizer,
        special_tokens: Mapping[str, str],
        location: object = "the chat template",
        *,
        is_own: bool = True,
    ) -> None:
        self.source = source
        self.special_tokens = dict(special_tokens)
        self.location = location
        self.is_own = is_own
        self._tokenizer = tokenizer
        self._environment = LimitedEnvironment()
        if len(source.encode()) > MAX_TEMPLATE_BYTES:
            raise self._error(f"has more than {MAX_TEMPLATE_BYTES // 1024} KB")

    @property
    def files(self) -> dict[str, bytes]:
        """The files of a model folder from which the template can be loaded again."""
        return {CHAT_TEMPLATE_FILE: self.source.encode(), CHAT_TOKENS_FILE: special_tokens_file(self.special_tokens)}

    @property
    def marks_turns(self) -> bool:
        """Whether the template has the tag `{% generation %}`."""
        return MARK in self._compiled[1]

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = False,
        variables: Mapping[str, object] | None = None,
    ) -> RenderedChat:
        """Render a conversation.

        Args:
            messages: The messages, each with `role` and `content`.
            add_generation_prompt: End with the beginning of an assistant's turn, for the model to continue.
            variables: Further variables of the template, such as `tools`.

        Raises:
            InputError: A message is malformed, or the template refuses the conversation.
            ModelError: The template is invalid or exceeds a limit.
        """
        checked = check_messages(messages)
        marks = self._marks(checked, variables)
        given: object = {**(variables or {}), "messages": checked}
        if self._special_pattern is not None:
            given = _guarded(given, self._special_pattern, marks[2])
        assert isinstance(given, dict)
        values = {**self.special_tokens, **given, "add_generation_prompt": add_generation_prompt}
        return _without_marks(self._run(values, (marks[0], marks[1])), marks, has_spans=self.marks_turns)

    def encode(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = False,
        variables: Mapping[str, object] | None = None,
    ) -> list[int]:
        """Return the ids of a conversation; the arguments are those of `render`."""
        rendered = self.render(messages, add_generation_prompt=add_generation_prompt, variables=variables)
        return self._encode_text(rendered)[0]

    def encode_with_turns(
        self, messages: Sequence[Message], *, variables: Mapping[str, object] | None = None
    ) -> EncodedChat:
        """Return the ids of a conversation, and which of them an assistant writes, the ends of its turns included.

        Without the tag `{% generation %}`, the turns are found by rendering the conversation up to each of them.
        """
        rendered = self.render(messages, variables=variables)
        spans = rendered.assistant_spans
        if spans is None:
            spans = self._find_turns(messages, rendered, variables)
        ids, offsets = self._encode_text(rendered)
        mask = [any(start <= offset < end for start, end in spans) for offset in offsets]
        return EncodedChat(ids, mask, rendered.text)

    @cached_property
    def turn_ends(self) -> tuple[int, ...]:
        """The special token that ends a turn of the assistant, if the template writes one."""
        probe = [{"role": "user", "content": "a"}, {"role": ASSISTANT, "content": "b"}]
        try:
            chat = self.encode_with_turns(probe)
        except (InputError, ModelError):  # the template requires other conversations
            return ()
        written = [token for token, is_assistant in zip(chat.ids, chat.assistant_mask, strict=True) if is_assistant]
        special = {self._tokenizer.token_id(name) for name in self._tokenizer.special_tokens}
        return tuple(written[-1:]) if written and written[-1] in special else ()

    def _find_turns(
        self, messages: Sequence[Message], whole: RenderedChat, variables: Mapping[str, object] | None
    ) -> tuple[Span, ...]:
        """Return the assistant's turns: what a conversation has more than the prompt for it."""
        spans = []
        for number, message in enumerate(messages):
            if message["role"] != ASSISTANT:
                continue
            before = self.render(messages[:number], add_generation_prompt=True, variables=variables).text
            after = self.render(messages[: number + 1], variables=variables).text
            if not after.startswith(before) or not whole.text.startswith(after):
                raise self._error(
                    f"writes message {number + 1} in another way when others follow, so that its turn cannot be found",
                    "surround what assistants write with {% generation %} and {% endgeneration %}",
                )
            spans.append((len(before), self._turn_end(after, len(before))))
        return tuple(spans)

    def _turn_end(self, text: str, start: int) -> int:
        """Return where a turn ends: after its end token, without the white space that may follow."""
        stripped = text.rstrip()
        is_ended = self._special_pattern is not None and any(
            match.end() == len(stripped) for match in self._special_pattern.finditer(text, start)
        )
        return len(stripped) if is_ended else len(text)

    def _encode_text(self, chat: RenderedChat) -> tuple[list[int], list[int]]:
        """Return ids, and where each token begins."""
        if not chat.literals:
            return self._tokenizer.encode_with_special_tokens(chat.text)
        ids: list[int] = []
        starts: list[int] = []
        for start, end, is_special in self._segments(chat):
            segment = chat.text[start:end]
            if is_special:
                new, offsets = self._tokenizer.encode_with_special_tokens(segment)
            else:
                ((new, pairs),) = self._tokenizer.encode_with_offsets([segment])
                offsets = [first for first, _ in pairs]
            ids += new
            starts += [start + offset for offset in offsets]
        return ids, starts

    def _segments(self, chat: RenderedChat) -> Iterable[tuple[int, int, bool]]:
        """Yield the parts of a text: special tokens of the template, and what is between them."""
        position = 0
        assert self._special_pattern is not None  # there are literals
        for match in self._special_pattern.finditer(chat.text):
            if match.start() in chat.literals:
                continue
            if match.start() > position:
                yield position, match.start(), False
            yield *match.span(), True
            position = match.end()
        if position < len(chat.text):
            yield position, len(chat.text), False

    @cached_property
    def _special_pattern(self) -> re.Pattern[str] | None:
        names = sorted(self._tokenizer.special_tokens, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, names))) if names else None

    @cached_property
    def _compiled(self) -> tuple[Template, set[str]]:
        """The program, and the names of the filters that it uses."""
        try:
            tree = self._environment.parse(self.source)
            return self._environment.from_string(tree), {node.name for node in tree.find_all(nodes.Filter)}
        except TemplateSyntaxError as error:
            raise self._error(f"is not a Jinja template (line {error.lineno}: {error.message})") from None
        except (TemplateError, RecursionError, MemoryError, ValueError, SyntaxError) as error:
            raise self._error(f"is not a Jinja template ({_problem(error)})") from None

    def _run(self, values: Mapping[str, object], marks: tuple[str, str]) -> str:
        template, _ = self._compiled
        token = BUDGET.set(Budget(marks, len(self.source), len(str(values["messages"]))))
        try:
            return template.render(values)
        except RefusedMessagesError as error:
            raise InputError(f"{self.location}: refuses this conversation: {_problem(error)}.") from None
        except TemplateLimitError as error:
            raise self._error(f"{_problem(error)}{_line_of(error)}") from None
        except Exception as error:  # whatever a program may raise
            raise self._error(f"fails{_line_of(error)} ({_problem(error)})") from None
        finally:
            BUDGET.reset(token)

    def _marks(self, messages: Sequence[Message], variables: Mapping[str, object] | None) -> list[str]:
        """Return three characters that occur neither in the template nor in the conversation."""
        given = f"{self.source}{messages}{variables}"
        free = [mark for mark in MARKS if mark not in given and repr(mark)[1:-1] not in given]
        if len(free) < 3:
            raise InputError(f"{self.location}: the messages have reserved characters of Unicode; remove them.")
        return free[:3]

    def _error(self, problem: str, remedy: str = "use another template") -> ModelError:
        return ModelError(f"{self.location}: {problem}; {remedy}.")


def check_messages(messages: object) -> list[dict[str, object]]:
    """Return messages as templates expect them: each with a role, and content as one text.

    >>> check_messages([{"role": "user", "content": [{"type": "text", "text": "Hello."}]}])
    [{'role': 'user', 'content': 'Hello.'}]
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Iterable):
        raise InputError(f"messages: should be a list of messages with role and content, not a {_type(messages)}.")
    checked = [_check_message(number, message) for number, message in enumerate(messages, start=1)]
    if not checked:
        raise InputError("messages: there are none; pass at least one, such as a question of the user.")
    return checked


def _check_message(number: int, message: object) -> dict[str, object]:
    where = f"message {number}"
    if not isinstance(message, Mapping):
        raise InputError(f"{where}: should be an object with role and content, not a {_type(message)}.")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise InputError(f"{where}: role should be a text, such as user or assistant, not {role!r}.")
    if isinstance(content, list | tuple):
        kinds = [part.get("type") if isinstance(part, Mapping) else _type(part) for part in content]
        other = next((kind for kind in kinds if kind != "text"), None)
        if other is not None:
            raise InputError(f"{where}: has a part of type {other}; language models read parts of type text.")
        content = "".join(str(part.get("text", "")) for part in content)
    if content is None and "tool_calls" in message:
        content = ""
    if not isinstance(content, str):
        raise InputError(f"{where}: content should be a text, not {'missing' if content is None else _type(content)}.")
    return {**message, "role": role, "content": content}


def load_chat_template(folder: Path, tokenizer: Tokenizer, tokens: SpecialTokensConfig) -> ChatTemplate:
    """Return the chat template of a model folder; without one, ChatML if its tokenizer has it, else a plain format."""
    names = {name: tokenizer.ids_to_tokens([getattr(tokens, role)])[0] for name, role in SPECIAL_NAMES.items()}
    if tokens.start == tokens.end:  # texts have no start token
        names["bos_token"] = ""
    path = folder / CHAT_TEMPLATE_FILE
    source = read_chat_text(path)
    if source is None:
        has_chatml = {TURN_START, TURN_END} <= set(tokenizer.special_tokens)
        return ChatTemplate(CHATML_TEMPLATE if has_chatml else PLAIN_TEMPLATE, tokenizer, names, path, is_own=False)
    return ChatTemplate(source, tokenizer, names | read_token_names(folder / CHAT_TOKENS_FILE), path)


def _guarded(value: object, special: re.Pattern[str], guard: str) -> object:
    """Return a value with a mark in the names of special tokens in its texts."""
    if isinstance(value, str):
        return special.sub(lambda match: f"{match[0][0]}{guard}{match[0][1:]}", value)
    if isinstance(value, Mapping):
        return {name: _guarded(item, special, guard) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_guarded(item, special, guard) for item in value]
    return value


def _without_marks(marked: str, marks: Sequence[str], *, has_spans: bool) -> RenderedChat:
    """Return the text without the marks of turns and of names of special tokens, and where these were."""
    start, end, guard = marks
    parts: list[str] = []
    position, opened = 0, None
    spans: list[Span] = []
    literals: list[int] = []
    for part in re.split(f"([{start}{end}{guard}])", marked):
        if part == start:
            opened = position
        elif part == end and opened is not None:
            spans.append((opened, position))
            opened = None
        elif part == guard:
            literals.append(position - 1)  # after the first character of the name
        elif part not in marks:
            parts.append(part)
            position += len(part)
    if opened is not None:  # the template left the turn early
        spans.append((opened, position))
    return RenderedChat("".join(parts), tuple(spans) if has_spans else None, tuple(literals))


def _line_of(error: BaseException) -> str:
    """Return the line of a template where an error occurred."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    return f" in line {frames[-1].lineno}" if frames else ""


def _problem(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300].rstrip(".")


def _type(value: object) -> str:
    return type(value).__name__
