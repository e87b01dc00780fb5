"""Runs chat templates, which are programs in Jinja that come with models: without access to Python, and within limits.

Jinja's sandbox refuses access to private attributes and changes of lists, but not endless loops and huge texts. Here
loops, calls and all texts that a template makes are charged to a `Budget`, before they are made where they can be much
larger than what they are made of. The parsed template is changed for this: what loops, joins or lists passes through a
filter that charges it.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_STEPS = 200_000  # iterations of loops and calls
MAX_WORK = 2**24  # characters of all texts that a template makes
WORK_PER_INPUT = 64  # the same, for each character of the messages
MAX_SECONDS = 5.0
MAX_WIDTH = 10_000
MAX_DEPTH = 64  # of lists in lists
MAX_EXPONENT, MAX_BITS = 64, 4096
ITEM_COST = 8  # of an element of a list, in characters
LONG_FORMAT = re.compile(r"\d{4,}|\*|\{[^{}]*\{")  # widths of text formatting that are large or computed
OMITTED_FILTERS = {"batch", "format", "pprint", "random", "slice", "urlize", "wordwrap", "xmlattr"}
WIDTHS = {"center", "expandtabs", "indent", "ljust", "rjust", "tojson", "zfill"}
COUNT, JOIN, CHECK, MARK = "count iterations", "join texts", "check size", "mark turn"  # names no template can write


class TemplateLimitError(TemplateError):
    """A template exceeds a limit."""


class RefusedMessagesError(TemplateError):
    """A template called `raise_exception`."""


@dataclass
class Budget:
    """What one rendering may still do."""

    marks: tuple[str, str]
    """Texts that surround what assistants write."""
    static: int
    """Characters of the template itself."""
    given: int
    """Characters of the messages."""

    def __post_init__(self) -> None:
        self.steps, self.work = MAX_STEPS, MAX_WORK + WORK_PER_INPUT * self.given
        self.deadline = time.monotonic() + MAX_SECONDS

    def charge(self, characters: int, steps: int = 0) -> None:
        """Subtract what an operation costs; TemplateLimitError if nothing is left."""
        self.work -= characters
        self.steps -= steps
        if self.steps < 0:
            raise TemplateLimitError(f"makes more than {MAX_STEPS:,} steps")
        if self.work < 0:
            raise TemplateLimitError("makes too much text")
        if time.monotonic() > self.deadline:
            raise TemplateLimitError(f"takes more than {MAX_SECONDS:g} seconds")

    def charge_value(self, value: object) -> int:
        """Charge the size of a value as text, which is counted until nothing is left, and return it."""
        total = 0
        for size in _sizes(value):
            self.charge(size)
            total += size
        return total


BUDGET: ContextVar[Budget] = ContextVar("BUDGET")


def _sizes(value: object, depth: int = 1) -> Iterator[int]:
    """Yield the sizes of the parts of a value; what is deeper in lists costs more, because JSON indents it."""
    if depth > MAX_DEPTH:
        raise TemplateLimitError(f"nests lists more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        yield len(value)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield ITEM_COST * depth
            yield from _sizes(name, depth + 1)
            yield from _sizes(item, depth + 1)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield ITEM_COST * depth
            yield from _sizes(item, depth + 1)
    elif isinstance(value, int):
        yield value.bit_length() // 3 + 1
    elif isinstance(value, Namespace):
        raise TemplateLimitError("uses a namespace as a value")


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja as chat templates expect it, within limits."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationExtension, loopcontrols],
            finalize=_charged_output,
            cache_size=0,
        )
        own = {"tojson": _to_json, "sum": _sum_numbers}
        kept = {name: function for name, function in FILTERS.items() if name not in OMITTED_FILTERS}
        self.filters = {name: _limited_filter(name, function) for name, function in (kept | own).items()}
        self.filters |= {COUNT: _count_iterations, JOIN: _join_texts, CHECK: _check_size, MARK: _mark_turn}
        for name in ("lipsum", "cycler", "joiner"):
            del self.globals[name]
        self.globals["namespace"] = TemplateNamespace
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _LimitNodes().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree

    def call(__self, __context: Context, __obj: object, *args: Any, **kwargs: Any) -> object:  # noqa: N805
        """Call an object of a template."""
        budget, name = BUDGET.get(), getattr(__obj, "__name__", "")
        budget.charge(budget.static if isinstance(__obj, Macro | LoopContext) else 0, 1)
        owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        if isinstance(__obj, LoopContext) and args:  # a recursive loop
            args = (_counted(args[0], 0), *args[1:])
        elif isinstance(owner, str):
            if name == "join" and len(args) == 1:
                args = (_charged_join(owner, args[0]),)
            _charge_text_function(name, owner, [*args, *kwargs.values()])
        result = super().call(__context, __obj, *args, **kwargs)
        _charge_result(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> object:
        """Compute `+`, `*`, `**` or `%`."""
        budget = BUDGET.get()
        if operator == "+" and not isinstance(left, int | float):
            budget.charge_value([left, right])
        elif operator == "*" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() + right.bit_length() > MAX_BITS:
                raise TemplateLimitError("multiplies large numbers")
        elif operator == "*":
            times, value = (left, right) if isinstance(left, int) else (right, left)
            if isinstance(times, int):
                budget.charge(budget.charge_value(value) * max(0, times))
        elif operator == "**" and not (isinstance(right, int | float) and abs(right) <= MAX_EXPONENT):
            raise TemplateLimitError(f"has an exponent above {MAX_EXPONENT}")
        elif operator == "%" and isinstance(left, str):
            _check_format(left)
            budget.charge_value([left, right])
        result: object = super().call_binop(context, operator, left, right)
        return result


class TemplateNamespace(Namespace):
    """A namespace whose attributes cannot replace those of Python."""

    def __setitem__(self, name: str, value: object) -> None:
        if name.startswith("_"):
            raise TemplateLimitError(f"sets the private attribute {name!r}")
        super().__setitem__(name, value)


class _LimitNodes(NodeTransformer):
    """Routes loops, lists and joined texts through filters that charge them."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        static = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.iter = _filtered(node.iter, COUNT, nodes.Const(static))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), JOIN)

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, CHECK)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, CHECK)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, CHECK) if node.ctx == "load" else node


def _filtered(node: nodes.Node, name: str, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(arguments), [], None, None, lineno=node.lineno)


class GenerationExtension(Extension):
    """The tag `{% generation %}`, which surrounds what an assistant writes."""

    tags = {"generation"}  # noqa: RUF012  # Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the body with a mark before and after it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        before, after = (
            nodes.Output([_filtered(nodes.Const(end, lineno=line), MARK)], lineno=line) for end in (False, True)
        )
        return [before, nodes.Scope(body, lineno=line), after]


def _limited_filter(name: str, function: Callable[..., Any]) -> Callable[..., object]:
    """Return a filter of Jinja that is charged."""
    passed = getattr(function, "jinja_pass_arg", None)  # what Jinja passes first: the context, or a part of it

    @pass_context
    def limited(context: Context, value: Any = "", *args: Any, **kwargs: Any) -> object:
        budget, given = BUDGET.get(), [*args, *kwargs.values()]
        budget.charge(0, 1)
        if name == "join" and not isinstance(value, str | Undefined):
            value = _charged_join(given[0] if given and isinstance(given[0], str) else "", value)
        elif name in ("string", "tojson"):
            budget.charge_value(value)
        _charge_text_function(name, value, given)
        sources = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}
        result = function(*([] if passed is None else [sources[passed.name]]), value, *args, **kwargs)
        _charge_result(result)
        return result

    return limited


def _charged_join(separator: str, items: Iterable[Any]) -> list[object]:
    listed = list(_counted(items, len(separator)))
    BUDGET.get().charge_value(listed)
    return listed


def _charge_text_function(name: str, value: object, given: list[Any]) -> None:
    """Charge a method or filter whose result can be much larger than its arguments, before it runs."""
    numbers = [abs(number) for number in given if isinstance(number, int | float)]
    texts = [text for text in given if isinstance(text, str)]
    longest = max(map(len, texts), default=0)
    if name in WIDTHS and max(numbers, default=0) > MAX_WIDTH:
        raise TemplateLimitError(f"passes a width above {MAX_WIDTH:,} to {name}")
    if name in ("format", "format_map") and isinstance(value, str):
        _check_format(value)
    elif name == "replace" and isinstance(value, str) and texts:
        BUDGET.get().charge((value.count(texts[0]) + 1) * longest)
    elif name in ("indent", "expandtabs", "tojson"):
        width = max([longest, *map(int, numbers)], default=0)
        if width > ITEM_COST:
            BUDGET.get().charge(width * BUDGET.get().charge_value(value))


def _charge_result(result: object) -> None:
    if isinstance(result, str):
        BUDGET.get().charge(len(result))
    elif isinstance(result, list | tuple):
        BUDGET.get().charge(ITEM_COST * len(result))
    elif isinstance(result, dict):
        BUDGET.get().charge_value(result)


def _check_format(text: str) -> None:
    if LONG_FORMAT.search(text):
        raise TemplateLimitError("formats text with a width that is large or computed")


def _counted(items: Iterable[Any], static: int) -> Iterator[Any]:
    for item in items:
        BUDGET.get().charge(static, 1)
        yield item


@pass_context
def _count_iterations(context: Context, items: Any, static: int) -> Any:
    """Charge each iteration of a loop; things with a length keep it, for `loop.last` and `loop.length`."""
    if isinstance(items, Undefined):
        return items
    return _CountedItems(items, static)


class _CountedItems:
    """Items that are charged when a loop reads them."""

    def __init__(self, items: Iterable[Any], static: int) -> None:
        self._items, self._static = items, static

    def __iter__(self) -> Iterator[Any]:
        return _counted(self._items, self._static)

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]  # Jinja counts items itself after a TypeError


@pass_context
def _join_texts(context: Context, parts: Any) -> str:
    BUDGET.get().charge_value(parts)
    return "".join(map(str, parts))


@pass_context
def _check_size(context: Context, value: Any) -> Any:
    BUDGET.get().charge_value(value)
    return value


@pass_context
def _mark_turn(context: Context, is_end: bool) -> str:
    return BUDGET.get().marks[is_end]


@pass_context
def _charged_output(context: Context, value: Any) -> Any:
    BUDGET.get().charge_value(value)
    return value


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without HTML escapes, which Jinja's own filter adds."""
    if separators is not None and max(map(len, separators), default=0) > ITEM_COST:
        raise TemplateLimitError("passes long separators to tojson")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _sum_numbers(items: Iterable[Any], attribute: str | None = None, start: float = 0) -> float:
    """Return the sum of numbers; Jinja's own filter also joins lists."""
    values = items if attribute is None else (item[attribute] for item in items)
    numbers = [value for value in [start, *values] if isinstance(value, int | float)]
    return sum(numbers)


def _raise_exception(message: str) -> None:
    raise RefusedMessagesError(message)


def _strftime_now(format: str) -> str:
    _check_format(format)
    return datetime.now().strftime(format)
