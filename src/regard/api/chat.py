"""`Model.chat`: answers in conversations, written with the chat template of the model."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, Unpack, overload

from regard.api.generation import GenerateKeywords, GenerationMethods
from regard.decoding.options import GenerationOptions, generation_options
from regard.decoding.results import Generation, TextChunk
from regard.errors import InputError
from regard.registry import EngineName, Precision

if TYPE_CHECKING:
    from regard.data.chat import ChatTemplate, Message

DEFAULT_ANSWER_TOKENS = 512
ANSWER_SHARE = 4  # an answer may take 1/4 of the context window from old turns
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation up to the answer of the assistant, as ids that fit into the context window."""

    ids: tuple[int, ...]
    max_tokens: int
    """Tokens of the answer that fit after them."""
    dropped: int
    """Messages at the beginning that were left out."""
    ends_with_space: bool
    stop_tokens: tuple[int, ...]

    def options(self, options: GenerationOptions) -> GenerationOptions:
        """Return the options of an answer: what ends it, and how long it may be."""
        constraints = replace(
            options.sampling.constraints,
            max_tokens=self.max_tokens,
            min_tokens=min(options.sampling.constraints.min_tokens, self.max_tokens),
        )
        sampling = replace(options.sampling, constraints=constraints)
        return replace(options, sampling=sampling, stop_tokens=self.stop_tokens, omit_space=not self.ends_with_space)


class ChatMethods(GenerationMethods):
    """The methods of language models that hold conversations."""

    @cached_property
    def chat_template(self) -> "ChatTemplate":
        """The chat template: of the model folder, or a built-in one."""
        from regard.data.chat import load_chat_template

        self._check_generates()
        return load_chat_template(self.folder, self.tokenizer, self.config.tokens)

    @overload
    def chat(
        self,
        messages: "str | Sequence[Message]",
        *,
        system: str | None = None,
        stream: Literal[False] = False,
        **keywords: Unpack[GenerateKeywords],
    ) -> str: ...

    @overload
    def chat(
        self,
        messages: "str | Sequence[Message]",
        *,
        system: str | None = None,
        stream: Literal[True],
        **keywords: Unpack[GenerateKeywords],
    ) -> Iterator[str]: ...

    def chat(
        self,
        messages: "str | Sequence[Message]",
        *,
        system: str | None = None,
        stream: bool = False,
        **keywords: Unpack[GenerateKeywords],
    ) -> str | Iterator[str]:
        """Answer the last message of a conversation.

        The engine "auto" is torch where it is installed: what it has computed for a conversation is kept, so that the
        next turn computes only what is new.
        If the conversation is longer than the context window, its oldest turns are left out.

        Args:
            messages: A question, or messages with `role` (system, user, assistant) and `content`, as in OpenAI's API.
            system: A system message before them.
            stream: Yield pieces of the answer as they are generated.
            keywords: The options of `generate`; the maximum of new tokens is 512 by default.

        Returns:
            The answer as a str, or with `stream` an iterator over its parts.

        Raises:
            ConfigError: The model is not a language model, or an option is out of range.
            InputError: A message is malformed or too long, or the chat template refuses the conversation.
            ModelError: The chat template is invalid or exceeds a limit.

        Example:
            messages = [{"role": "user", "content": "What is the capital of Italy?"}]
            answer = model.chat(messages, temperature=0)
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And of France?"}]
            for text in model.chat(messages, stream=True):
                print(text, end="", flush=True)
        """
        conversation: list[Message] = (
            [{"role": "user", "content": messages}] if isinstance(messages, str) else [*messages]
        )
        if system is not None:
            conversation.insert(0, {"role": "system", "content": system})
        keywords.setdefault("max_tokens", DEFAULT_ANSWER_TOKENS)
        options = generation_options(**keywords)
        prompt = self.chat_prompt(conversation, options.sampling.constraints.max_tokens)
        if prompt.dropped:
            log.warning("the first %d messages do not fit into the context window and are left out.", prompt.dropped)
        chunks = self.chat_chunks(
            prompt,
            options,
            [],
            engine=keywords.get("engine", "auto"),
            precision=keywords.get("precision", "int8"),
            is_seeded=keywords.get("seed") is not None,
        )
        texts = (chunk.text for chunk in chunks)
        return texts if stream else "".join(texts)

    def chat_prompt(
        self,
        messages: "Sequence[Message]",
        max_tokens: int | None = None,
        *,
        shorten: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> ChatPrompt:
        """Return a conversation as a prompt that fits into the context window with an answer of `max_tokens`.

        Args:
            messages: The conversation.
            max_tokens: Of the answer, which gets at most a quarter of the window at the cost of old turns.
            shorten: Leave out the oldest turns if the conversation is too long; otherwise that is an InputError.
            variables: Further variables of the chat template, such as `tools`.
        """
        template, window = self.chat_template, self.config.context_window
        wanted = DEFAULT_ANSWER_TOKENS if max_tokens is None else max_tokens
        ids = template.encode(messages, add_generation_prompt=True, variables=variables)
        dropped = 0
        if window is not None:
            room = window - min(wanted, window // ANSWER_SHARE)
            first = next((n for n, message in enumerate(messages) if message["role"] != "system"), len(messages))
            starts = [n for n, message in enumerate(messages) if n > first and message["role"] == "user"]
            for start in starts if shorten else ():  # turns begin with a question
                if len(ids) <= room:
                    break
                dropped = start - first
                kept = [*messages[:first], *messages[start:]]
                ids = template.encode(kept, add_generation_prompt=True, variables=variables)
            if len(ids) >= window:
                what = "last message" if shorten else "conversation"
                raise InputError(
                    f"The {what} fills {len(ids):,} tokens, and the model reads {window:,} with its answer; shorten it."
                )
        most = wanted if window is None else min(wanted, window - len(ids))
        ends_with_space = self.tokenizer.decode(ids[-1:]).isspace()
        return ChatPrompt(tuple(ids), most, dropped, ends_with_space, template.turn_ends)

    def chat_chunks(
        self,
        prompt: ChatPrompt,
        options: GenerationOptions,
        results: list[Generation],
        *,
        engine: EngineName = "auto",
        precision: Precision = "int8",
        is_seeded: bool = True,
    ) -> Iterator[TextChunk]:
        """Yield an answer as it is generated, for callers that reuse an options object; see `generate_chunks`."""
        name = self.chat_engine(prompt, options, engine, is_seeded=is_seeded)
        if name == "torch" and self.prefix_cache is None:
            self.keep_prefixes()
        return self.generate_chunks([prompt.ids], prompt.options(options), results, engine=name, precision=precision)

    def chat_engine(
        self, prompt: ChatPrompt, options: GenerationOptions, engine: EngineName = "auto", *, is_seeded: bool = True
    ) -> Literal["torch", "ctranslate2"]:
        """Return the engine of a chat: "auto" is torch where it is installed, which computes only what is new."""
        if engine == "auto" and find_spec("torch") is not None:
            engine = "torch"
        return self.generation_engine([prompt.ids], prompt.options(options), engine=engine, is_seeded=is_seeded)
