"""A chat template that loops, explodes or reaches for Python ends in one message."""

import threading
import tracemalloc

import pytest
import tokenizers
from tokenizers import models

from regard.data import chat_sandbox
from regard.data.chat import ChatTemplate
from regard.data.tokenizer import Tokenizer
from regard.errors import InputError, ModelError

MESSAGES = [{"role": "user", "content": "Hello."}]
STEPS, TEXT, WIDTH = "makes more than 2,000 steps", "makes too much text", "passes a width above 10,000 to"
FORMAT, DEPTH, PRIVATE = "formats text with a width", "nests lists more than 64 deep", "is unsafe"
GROWING = "{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = BODY %}{% endfor %}{{ ns.x }}"
LIMITED = {
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}": STEPS,
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}": STEPS,
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "recursion",
    "{% for i in range(9) recursive %}{{ loop(range(9)) if loop.depth < 40 }}{% endfor %}": STEPS,
    "{% for i in range(100000) %}" + "x" * 1000 + "{% endfor %}": TEXT,
    "{% set a %}{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}{% endset %}": TEXT,
    GROWING.replace("BODY", "ns.x ~ ns.x"): TEXT,
    GROWING.replace("BODY", "ns.x + ns.x"): TEXT,
    GROWING.replace("BODY", "[ns.x, ns.x]"): TEXT,
    GROWING.replace("BODY", "(ns.x, ns.x)"): TEXT,
    GROWING.replace("BODY", "{'a': ns.x, 'b': ns.x}"): TEXT,
    GROWING.replace("BODY", "dict(a=ns.x, b=ns.x)"): TEXT,
    GROWING.replace("BODY", "[ns.x]"): DEPTH,
    GROWING.replace("BODY", "ns.x.replace('a', ns.x)"): TEXT,
    GROWING.replace("'ab'", "3").replace("BODY", "ns.x * ns.x"): "multiplies large numbers",
    "{{ 10 ** (10 ** 10) }}": "has an exponent above 64",
    "{{ 'a' * 10 ** 10 }}": TEXT,
    "{{ [1] * 10 ** 10 }}": TEXT,
    "{{ 'a'.center(10 ** 9) }}": f"{WIDTH} center",
    "{{ 'a' | center(10 ** 9) }}": f"{WIDTH} center",
    "{{ [[1]] | tojson(indent=10 ** 9) }}": f"{WIDTH} tojson",
    "{{ [1] | tojson(separators=('a' * 99, ':')) }}": "long separators",
    "{{ '%1000000000d' % 1 }}": FORMAT,
    "{{ '%*d' % (10 ** 9, 1) }}": FORMAT,
    "{{ '{:>1000000000}'.format(1) }}": FORMAT,
    "{{ '{:{w}}'.format(1, w=10 ** 9) }}": FORMAT,
    "{{ strftime_now('%1000000000Y') }}": FORMAT,
    "{{ ('a' * 99999).join(range(100000) | map('string')) }}": TEXT,
    "{{ range(100000) | map('string') | join('a' * 99999) }}": TEXT,
    "{{ (['a' * 99999] * 100000) | map('upper') | list | length }}": TEXT,
    "{{ (['a' * 99999] * 100000) | tojson }}": TEXT,
    "{{ ('a' * 99999).replace('a', 'b' * 99999) }}": TEXT,
    "{{ ('\n' * 99999) | indent(10000) }}": TEXT,
    "{{ namespace(a=1) }}": "uses a namespace as a value",
    "{{ messages.__class__.__mro__ }}": PRIVATE,
    "{{ messages.append(1) }}": PRIVATE,
    "{{ range.__init__.__globals__ }}": PRIVATE,
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}": "sets the private attribute '__class__'",
    "{% include 'x' %}": "no loader",
    "{{ lipsum(n=10 ** 6) }}": "'lipsum' is undefined",
    "{{ 'a' | wordwrap(1) }}": "No filter named 'wordwrap'",
    "\n\n{% if %}": "is not a Jinja template (line 3: Expected an expression",
    "{{" + "(" * 5000 + ")" * 5000 + "}}": "is not a Jinja template (maximum recursion",
    "\n{{ 1 / 0 }}": "fails in line 2 (division by zero)",
    "x" * (2**18 + 1): "has more than 256 KB",
}


def render(source: str) -> str:
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    return ChatTemplate(source, tokenizer, {}, "model/chat_template.jinja").render(MESSAGES).text


@pytest.fixture(autouse=True)
def _lower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower limits, so that the tests are fast."""
    monkeypatch.setattr(chat_sandbox, "MAX_STEPS", 2000)
    monkeypatch.setattr(chat_sandbox, "MAX_WORK", 2**20)


@pytest.mark.parametrize("source", LIMITED, ids=lambda source: source[:40].strip())
def test_one_message_for_each_excess(source: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as caught:
            render(source)
        assert tracemalloc.get_traced_memory()[1] < 60e6
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert message.startswith("model/chat_template.jinja: ")
    assert LIMITED[source] in message
    assert message.endswith("; use another template.")
    assert "\n" not in message


def test_a_template_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_sandbox, "MAX_SECONDS", 0.0)
    with pytest.raises(ModelError, match=r"takes more than 0 seconds in line 1"):
        render("{% for i in range(9) %}{% endfor %}")


def test_a_template_that_refuses_the_messages() -> None:
    with pytest.raises(InputError, match=r"chat_template\.jinja: refuses this conversation: No system message\.$"):
        render("{{ raise_exception('No system message.') }}")


def test_limits_are_of_one_rendering() -> None:
    source = "{% for i in range(1800) %}{% endfor %}{{ messages[0].content }}"
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(render(source))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["Hello."] * 3
