"""Conversations in JSON Lines, to train on: read, checked, and tokenized into stores.

    {"messages": [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello! How are you?"}]}

is a conversation in OpenAI's format. A preference pair has two answers to the same messages, one of which is better:

    {"messages": [{"role": "user", "content": "Hello."}], "chosen": "Hello! How are you?", "rejected": "What?"}

A text under `prompt` stands for one message of the user, and an answer may also be a message, or a list of one.

The store of conversations has two columns: ids, and 1 at each token that an assistant writes. The store of preference
pairs has four: the ids of both conversations, and for each of them 1 at the tokens of its answer.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from regard.config import Config, CorpusConfig
from regard.data.chat import ASSISTANT, ChatTemplate, Message, check_messages, load_chat_template
from regard.data.corpus_scan import REPORT_INTERVAL, CorpusStats, ReportProgress
from regard.data.lines import InvalidLines, check_compression_on_error
from regard.data.preparation import (
    TRUNCATED,
    PreparedData,
    PreparedSplit,
    check_not_empty,
    is_held_out,
    load_or_build_stores,
    store_metadata,
    validation_fraction,
)
from regard.data.readers import expand_folders, read_parts
from regard.data.readers.base import Pair, has_surrogate
from regard.data.readers.jsonl import JsonLinesReader, read_records
from regard.data.store import open_writers
from regard.data.tokenizer import load_tokenizer
from regard.errors import DataError, InputError

ROLES = ("system", "developer", "user", ASSISTANT, "tool")
CONVERSATION_SHAPE = '{"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}'
PREFERENCE_SHAPE = '{"messages": [{"role": "user", "content": "…"}], "chosen": "…", "rejected": "…"}'
Row = Sequence[Sequence[int]]  # the ids of an example in each column


class _RenderedExample(Protocol):
    @property
    def location(self) -> str: ...
    @property
    def texts(self) -> tuple[str, ...]: ...


E = TypeVar("E", bound=_RenderedExample)


@dataclass(frozen=True)
class Conversation:
    """Messages, at least one of which an assistant has written."""

    messages: tuple[Message, ...]
    location: str = field(default="", compare=False)  # file:line

    @property
    def texts(self) -> tuple[str, ...]:
        """What the messages say."""
        return tuple(str(message["content"]) for message in self.messages)


@dataclass(frozen=True)
class Preference:
    """Messages, and two answers of an assistant, of which the first is better."""

    messages: tuple[Message, ...]
    chosen: str
    rejected: str
    location: str = field(default="", compare=False)  # file:line

    @property
    def texts(self) -> tuple[str, ...]:
        """What the messages and both answers say."""
        return (*(str(message["content"]) for message in self.messages), self.chosen, self.rejected)

    def conversation(self, answer: str) -> tuple[Message, ...]:
        """The messages with an answer."""
        return (*self.messages, {"role": ASSISTANT, "content": answer})


# --- reading ----------------------------------------------------------------------------------------------------------


def read_conversations(corpus: CorpusConfig, invalid: InvalidLines) -> Iterator[Conversation]:
    """Yield the conversations of a corpus."""
    for location, record in _objects(corpus, invalid):
        messages = _messages(record, location, invalid, CONVERSATION_SHAPE)
        if messages is None:
            continue
        if all(message["role"] != ASSISTANT for message in messages):
            problem = "no message has the role assistant, so that there is nothing to learn; add an answer"
            invalid.add("no answer", f"{location}: {problem}")
        elif _all_answered(messages, location, invalid):
            yield Conversation(tuple(messages), location)


def read_preferences(corpus: CorpusConfig, invalid: InvalidLines) -> Iterator[Preference]:
    """Yield the preference pairs of a corpus."""
    for location, record in _objects(corpus, invalid):
        prompt = record.get("prompt")
        if isinstance(prompt, str) and "messages" not in record:
            record = {**record, "messages": [{"role": "user", "content": prompt}]}
        elif prompt is not None and "messages" not in record:
            record = {**record, "messages": prompt}
        messages = _messages(record, location, invalid, PREFERENCE_SHAPE)
        if messages is None:
            continue
        answers = [_answer(record, name, location, invalid) for name in ("chosen", "rejected")]
        chosen, rejected = answers
        if chosen is None or rejected is None:
            continue
        if chosen == rejected:
            invalid.add("equal answers", f"{location}: chosen and rejected are equal; remove the line")
        elif messages[-1]["role"] == ASSISTANT:
            problem = "the last message is the assistant's, but chosen and rejected should answer it; remove it"
            invalid.add("no question", f"{location}: {problem}")
        elif _all_answered(messages, location, invalid):
            yield Preference(tuple(messages), chosen, rejected, location)


def holds_conversations(files: Sequence[str]) -> bool:
    """Return whether files are JSON Lines whose first object has messages."""
    if not files or not all(JsonLinesReader.matches(file) for file in files):
        return False
    records = (record for _, record in read_records(files[0], InvalidLines(skip=True)))
    return "messages" in next(records, {})


def conversation_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Count conversations."""
    return _stats(read_conversations(corpus, InvalidLines(skip_invalid)), report)


def preference_stats(corpus: CorpusConfig, skip_invalid: bool, report: ReportProgress) -> CorpusStats:
    """Count preference pairs."""
    return _stats(read_preferences(corpus, InvalidLines(skip_invalid)), report)


def _stats(examples: Iterator[_RenderedExample], report: ReportProgress) -> CorpusStats:
    count = characters = 0
    for count, example in enumerate(examples, start=1):
        characters += sum(map(len, example.texts))
        if count % REPORT_INTERVAL == 0:
            report("reading", count)
    return CorpusStats(count, characters)


def _objects(corpus: CorpusConfig, invalid: InvalidLines) -> Iterator[tuple[str, dict[str, object]]]:
    for file in expand_folders(corpus.files, invalid, JsonLinesReader.matches):
        with check_compression_on_error(file):
            for line, record in read_records(file, invalid):
                yield line.location, record


def _messages(
    record: Mapping[str, object], location: str, invalid: InvalidLines, shape: str
) -> list[dict[str, object]] | None:
    """Return the messages of a record; None if they are malformed."""
    if "messages" not in record:
        invalid.add("missing field", f"{location}: nothing under 'messages'; write {shape}")
        return None
    messages = record["messages"]
    try:
        checked = check_messages(messages)
    except InputError as error:
        invalid.add("malformed message", f"{location}: {str(error).rstrip('.')}; write {shape}")
        return None
    for number, message in enumerate(checked, start=1):
        if message["role"] not in ROLES:
            problem = f"message {number}: unknown role {message['role']!r}; use {', '.join(ROLES[:-1])} or {ROLES[-1]}"
            invalid.add("unknown role", f"{location}: {problem}")
            return None
        if has_surrogate(str(message["content"])):
            invalid.add(
                "broken Unicode", f"{location}: message {number}: half of a character (a lone surrogate); fix it"
            )
            return None
    return checked


def _all_answered(messages: Sequence[Message], location: str, invalid: InvalidLines) -> bool:
    """Report a message of an assistant without text."""
    for number, message in enumerate(messages, start=1):
        if message["role"] == ASSISTANT and not str(message["content"]).strip() and "tool_calls" not in message:
            problem = f"message {number}: the assistant's content is empty; fill it in, or remove the line"
            invalid.add("empty", f"{location}: {problem}")
            return False
    return True


def _answer(record: Mapping[str, object], name: str, location: str, invalid: InvalidLines) -> str | None:
    """Return the text of an answer: a text, a message, or a list of one message; None if it is malformed."""
    value = record.get(name)
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, Mapping) and value.get("role", ASSISTANT) == ASSISTANT:
        value = value.get("content")
    if not isinstance(value, str):
        invalid.add("missing field", f"{location}: no answer under {name!r}; write {PREFERENCE_SHAPE}")
        return None
    if not value.strip() or has_surrogate(value):
        reason, problem = ("empty", "is empty") if not value.strip() else ("broken Unicode", "has half of a character")
        invalid.add(reason, f"{location}: {name} {problem}; correct it")
        return None
    return value


# --- stores -----------------------------------------------------------------------------------------------------------

Encoder = Callable[[ChatTemplate, E, int, Counter[str]], Row | None]


def prepare_conversations(
    folder: Path, key: str, config: Config, max_tokens: int, report: ReportProgress
) -> PreparedData:
    """Prepare the token stores of conversations; longer ones than `max_tokens` are cut."""
    return _prepare(folder, key, config, max_tokens, report, read_conversations, encode_conversation, (2, 1))


def prepare_preferences(
    folder: Path, key: str, config: Config, max_tokens: int, report: ReportProgress
) -> PreparedData:
    """Prepare the token stores of preference pairs; longer ones than `max_tokens` are left out."""
    return _prepare(folder, key, config, max_tokens, report, read_preferences, encode_preference, (4, 2))


def encode_conversation(
    template: ChatTemplate, conversation: Conversation, max_tokens: int, counts: Counter[str]
) -> Row | None:
    """Return ids and 1 at the tokens of the assistant; None if there are none in the first `max_tokens`."""
    chat = template.encode_with_turns(conversation.messages)
    ids, learned = chat.ids[:max_tokens], list(map(int, chat.assistant_mask[:max_tokens]))
    if not any(learned[1:]):
        counts[f"no answer in the first {max_tokens} tokens"] += 1
        return None
    counts["kept"] += 1
    if len(ids) < len(chat.ids):
        counts[TRUNCATED] += 1
    return ids, learned


def encode_preference(
    template: ChatTemplate, preference: Preference, max_tokens: int, counts: Counter[str]
) -> Row | None:
    """Return the ids of both conversations and 1 at the tokens of their answers; None if one is too long."""
    chats = [
        template.encode_with_turns(preference.conversation(text)) for text in (preference.chosen, preference.rejected)
    ]
    if any(len(chat.ids) > max_tokens for chat in chats):
        counts[f"longer than {max_tokens} tokens"] += 1
        return None
    counts["kept"] += 1
    return *(chat.ids for chat in chats), *(_last_turn(chat.assistant_mask) for chat in chats)


def _last_turn(mask: Sequence[bool]) -> list[int]:
    """Keep the last turn of a mask.

    >>> _last_turn([False, True, False, True, True, False])
    [0, 0, 0, 1, 1, 0]
    """
    end = len(mask) - list(mask)[::-1].index(True)
    start = end
    while start and mask[start - 1]:
        start -= 1
    return [int(start <= n < end) for n in range(len(mask))]


def _prepare(
    folder: Path,
    key: str,
    config: Config,
    max_tokens: int,
    report: ReportProgress,
    read: Callable[[CorpusConfig, InvalidLines], Iterator[E]],
    encode: Encoder[E],
    columns: tuple[int, int],
) -> PreparedData:
    assert config.tokenizer.file is not None  # that of the model that training starts from
    path = Path(config.tokenizer.file)
    tokenizer = load_tokenizer(path)
    template = load_chat_template(path.parent, tokenizer, config.tokens)
    data = config.data

    def build(corpus: CorpusConfig, split: str, held_out: float) -> list[PreparedSplit]:
        names = [split, "valid"] if held_out else [split]

        def write() -> None:
            invalid = InvalidLines(data.skip_invalid)
            counts = {name: Counter[str](read=0, kept=0) for name in names}
            corpora = {name: [0] * corpus.num_parts for name in names}
            uncounted = InvalidLines(data.skip_invalid)  # they are counted with the training data
            with ExitStack() as stack:
                writers = {
                    name: stack.enter_context(
                        open_writers(
                            folder / name,
                            columns[0],
                            len(tokenizer),
                            {
                                **store_metadata(key, invalid if name == split else uncounted),
                                "counts": counts[name],
                                "corpora": corpora[name],
                            },
                        )
                    )
                    for name in names
                }
                examples = read_parts(corpus, lambda part: read(part, invalid))
                for number, (part, example) in enumerate(examples, start=1):
                    name = "valid" if held_out and is_held_out(Pair("\t".join(example.texts), ""), held_out) else split
                    counts[name]["read"] += 1
                    try:
                        row = encode(template, example, max_tokens, counts[name])
                    except InputError as error:
                        message = f"{example.location}: {str(error).rstrip('.')}; correct it"
                        invalid.add("refused by the chat template", message)
                        continue
                    if row is not None:
                        corpora[name][part] += 1
                        for writer, ids in zip(writers[name], row, strict=True):
                            writer.add([ids])
                    if number % REPORT_INTERVAL == 0:
                        report(f"tokenizing {split}", number)

        stores = load_or_build_stores([folder / name for name in names], key, write)
        return [PreparedSplit(store, text_columns=columns[1]) for store in stores]

    held_out = validation_fraction(config)
    train, *held = build(data.train, "train", held_out)
    check_not_empty(train.store, "train")
    (valid,) = held or build(data.valid, "valid", 0.0)
    if held and len(valid.store) == 0:
        raise DataError(
            "no conversation was held out for validation, because there are too few different ones; "
            f"raise data.validation_fraction, which is {held_out:g}, or pass --valid."
        )
    check_not_empty(valid.store, "valid")
    test = build(data.test, "test", 0.0)[0] if data.test.has_files else None
    if test is not None:
        check_not_empty(test.store, "test")
    return PreparedData(tokenizer, train, valid, test)
