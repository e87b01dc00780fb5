"""Translation of HTML: whole sentences, with inline tags put back by alignment; always well formed."""

import re
import time
from collections import Counter
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import Config, EncoderDecoderConfig, TokenizerConfig
from regard.data.html_text import HtmlText
from regard.data.tokenizer import train_tokenizer
from regard.decoding.engines import SearchRequest
from regard.decoding.markup import find_words
from regard.decoding.options import SearchOptions, TranslationOptions
from regard.decoding.results import Hypothesis
from regard.decoding.translator import Translator
from regard.registry import TextFormat

WORDS = "one two three four five six seven"
TOKENIZER = train_tokenizer([WORDS, "One, Two. & < >"] * 3, TokenizerConfig(), 400)
HTML = TranslationOptions(format="html")


class Dictionary:
    """An engine that translates word by word: in the order of the source or reversed, with attention to that word."""

    name = "dictionary"

    def __init__(self, order: int = 1, *, attention: bool = True, ranks: int = 1) -> None:
        self.order = order
        self.attention = attention
        self.ranks = ranks
        self.requests: list[SearchRequest] = []

    def best_ids(self, request: SearchRequest) -> list[list[int]]:
        return [hypotheses[0].ids for hypotheses in self.search(request)]

    def search(self, request: SearchRequest) -> list[list[Hypothesis]]:
        self.requests.append(request)
        return [
            [self._hypothesis(list(source), rank, request.attention) for rank in range(self.ranks)]
            for source in request.sources
        ]

    def _hypothesis(self, ids: list[int], rank: int, with_attention: bool) -> Hypothesis:
        starts = [n for n, token in enumerate(TOKENIZER.ids_to_tokens(ids)) if token.startswith("▁")]
        words = [list(range(start, end)) for start, end in zip(starts, [*starts[1:], len(ids)], strict=True)]
        places = [n for word in words[:: self.order][rank:] for n in word]
        attention = [[float(n == place) for n in range(len(ids) + 1)] for place in places]
        return Hypothesis(
            [ids[place] for place in places],
            -rank,
            -rank,
            attention=attention if with_attention and self.attention else None,
        )


class Random(Dictionary):
    """An engine whose attention and number of words are random."""

    def __init__(self, numbers: st.DataObject) -> None:
        super().__init__()
        self.numbers = numbers

    def _hypothesis(self, ids: list[int], rank: int, with_attention: bool) -> Hypothesis:
        target = TOKENIZER.encode(
            self.numbers.draw(st.sampled_from(["six", "seven, six", "One. two three four & five.", "a < b"]))
        )
        weight = st.sampled_from([0.0, 0.25, 0.5, 1.0])
        rows = [[self.numbers.draw(weight) for _ in range(len(ids) + 1)] for _ in target]
        return Hypothesis(target, 0.0, 0.0, attention=rows if with_attention else None)


def translator(engine: Dictionary) -> Translator:
    return Translator(engine, Config(model=EncoderDecoderConfig(vocab_size=400)), TOKENIZER, TOKENIZER)


def translate(html: str, order: int = 1, *, attention: bool = True) -> str:
    return translator(Dictionary(order, attention=attention)).translate([html], HTML)[0].text


@pytest.mark.parametrize(
    ("html", "reversed_html"),
    [
        ("one <b>two three</b> four", "four <b>three two</b> one"),
        ("one <i>two <b class='x y'>three</b></i> four", "four <i><b class='x y'>three</b> two</i> one"),
        ("<b>one two</b> <i>three</i>", "<i>three</i> <b>two one</b>"),
        ("<u><b>one two</b></u>", "<u><b>two one</b></u>"),
        ("one<b> two </b>three", "three <b>two</b> one"),
        ("<a href='?a=1&amp;b=2'>one</a> &amp; two", "two &amp; <a href='?a=1&amp;b=2'>one</a>"),
        ("<!-- first -->one two<img src='x'>", "<!-- first -->two one<img src='x'>"),
        ("  one\n\ttwo\n", "  two one\n"),
        ("<p>one two</p>three <div>four <b>five</b></div>", "<p>two one</p>three <div><b>five</b> four</div>"),
        ("one two<br>Three four", "two one<br>four Three"),
        ("<p>&nbsp;</p><b> </b><pre>one  two</pre><script>one</script>", None),
        ("one <unknown-tag>two</unknown-tag>", "<unknown-tag>two</unknown-tag> one"),
    ],
)
def test_tags_follow_their_words(html: str, reversed_html: str | None) -> None:
    assert translate(html, order=-1) == (html if reversed_html is None else reversed_html)


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize(
    "html",
    [
        "one <b>two three</b>, four.",
        "<i>one <b>two</b></i> <u>three</u> &lt; four",
        "one <code>x = 1</code> two <img src='a'> three.",
        "one (<b>two</b>) <code>x</code>.",
        "one <b></b>two <a name='x'><img></a>three",
        "one two<br/> three",
        "one two <img>",
        "<img> one <br/> ",
        "one two <img><img>\n",
        "<b>one <code>x</code></b>, two",
        "<b>one",
        "one</b> two",
        "<b>one <i>two</b> three</i>",
    ],
)
def test_tags_stay_where_they_are_if_the_words_do(html: str, attention: bool) -> None:
    assert translate(html, attention=attention) == html


@pytest.mark.parametrize(
    ("line", "reversed_line"),
    [
        ("one <b>two three</b> four", "four <b>three two</b> one"),
        ("R&D < <b class='x & y'>two</b> > <one>", "<one> > <b class='x & y'>two</b> < R&D"),
        ("one &amp; <b>two</b>", "<b>two</b> &amp; one"),
        ("<g id='1'>one</g> two <x id='2'/>", "two <g id='1'>one</g> <x id='2'/>"),
        ("one <code>a < b</code>", "one <code>a < b</code>"),
    ],
)
def test_tags_in_lines_of_text_follow_their_words_and_the_rest_stays_text(line: str, reversed_line: str) -> None:
    found = translator(Dictionary(-1)).translate(["one two", line, "two < three"], TranslationOptions())
    assert [translation.text for translation in found] == ["two one", reversed_line, "three < two"]
    assert [translation.source for translation in found] == ["one two", line, "two < three"]


@pytest.mark.parametrize(
    "line", ["one < two and three > four", "one <two and> three", "<one>", "<code> one <b>two</b>", "one <!-- two</b>"]
)
@pytest.mark.parametrize("format", ["auto", "text"])
def test_lines_without_pairs_of_tags_are_text(line: str, format: TextFormat) -> None:
    engine = Dictionary()
    translator(engine).translate([line], TranslationOptions(format=format))
    assert [TOKENIZER.decode(source) for source in engine.requests[-1].sources] == [line]


def test_text_with_tags_can_be_translated_like_words() -> None:
    engine = Dictionary()
    translator(engine).translate(["one <b>two</b>"], TranslationOptions(format="text"))
    assert [TOKENIZER.decode(source) for source in engine.requests[-1].sources] == ["one <b>two</b>"]


def test_a_sentence_with_tags_is_translated_as_a_whole_and_only_tags_inside_need_attention() -> None:
    engine = Dictionary()
    document = "<p>one <b>two</b> three.</p><p><b>four five</b></p><p>six</p>"
    (found,) = translator(engine).translate([document], HTML)
    requests = [
        ([TOKENIZER.decode(source) for source in request.sources], request.attention) for request in engine.requests
    ]
    assert requests == [(["four five", "six"], False), (["one two three."], True)]
    assert (found.source, found.text) == (document, document)
    assert [sentence.source for sentence in found.sentences] == ["one two three.", "four five", "six"]
    assert all(alternative.attention is None for sentence in found.sentences for alternative in sentence.alternatives)


def test_alternatives_have_the_tags_too() -> None:
    engine = Dictionary(ranks=2)
    options = TranslationOptions(SearchOptions(n_best=2), format="html")
    (found,) = translator(engine).translate(["one <b>two</b> three<p>four five"], options)
    assert found.text == "one <b>two</b> three<p>four five"
    assert found.alternatives == ["<b>two</b> three<p>five"]


def test_words_are_found_with_their_punctuation_apart() -> None:
    text = "(Dell'amore, don't!) 你好 हिन्दी"
    assert [text[start:end] for start, end in find_words(text)] == [
        *("(", "Dell'", "amore", ",", "don't", "!", ")", "你", "好", "हिन्दी")
    ]


TEXTS = st.sampled_from(["one", "two", " three ", "four five", " ", "", "six.", "One, two. ", "&amp;", "&lt;7 "])
POSITIONS = st.sampled_from(["<img src='1 > 0'>", "<br>", "<!-- <b> -->", "<wbr/>"])
LEAVES = st.one_of(TEXTS, TEXTS, POSITIONS)


@st.composite
def elements(draw: st.DrawFn, children: st.SearchStrategy[str]) -> str:
    name = draw(st.sampled_from(["b", "i", "a", "span"]))
    attributes = draw(st.sampled_from(["", " class='x'", ' title="a > b"']))
    return f"<{name}{attributes}>{''.join(draw(st.lists(children, max_size=3)))}</{name}>"


INLINE = st.lists(st.recursive(LEAVES, elements, max_leaves=6), max_size=6).map("".join)
MARKUP = re.compile(r"""<!--.*?-->|<(?:[^<>"']|"[^"]*"|'[^']*')*>""")


def check_nesting(html: str) -> None:
    path: list[str] = []
    for tag in MARKUP.findall(html):
        name = re.match(r"</?(\w+)", tag)
        if name is None or name[1] in ("img", "br", "wbr"):
            continue
        if tag.startswith("</"):
            assert path.pop() == name[1]
        else:
            path.append(name[1])
    assert path == []


@given(INLINE, st.data())
def test_any_alignment_gives_well_formed_html_with_every_tag_once(html: str, numbers: st.DataObject) -> None:
    (found,) = translator(Random(numbers)).translate([html], HTML)
    check_nesting(found.text)
    assert Counter(MARKUP.findall(found.text)) == Counter(MARKUP.findall(html))
    plain = [sentence.alternatives[0].text for sentence in found.sentences]
    assert "".join(unescape(MARKUP.sub("", found.text)).split()) == "".join("".join(plain).split())


@given(INLINE)
def test_the_text_between_tags_is_the_translation_of_the_plain_sentence(html: str) -> None:
    html = re.sub(r"<(?:img|wbr|!)[^>]*>|<br>| -->", "", html)
    plain = " ".join(unescape(MARKUP.sub("", html)).split())
    (expected,) = translator(Dictionary(-1)).translate([plain], TranslationOptions())
    assert " ".join(unescape(MARKUP.sub("", translate(html, order=-1))).split()) == expected.text


@pytest.mark.parametrize(
    ("html", "texts"),
    [
        ("<p title='a > b'>w4</p>", ["w4"]),
        ("<p title=it's>w4</p>", ["w4"]),
        ("<code-block>w4</code-block>", ["w4"]),
        ("w4 < w5 > w6", ["w4 < w5 > w6"]),
        ("w4<script>w5", ["w4"]),
        ("w4<!-- w5", ["w4"]),
        ("w4 <svg><text>w5</text></svg>w6", ["w4 w6"]),
        ("<table><tr><td>w4<td>w5</table>", ["w4", "w5"]),
    ],
)
def test_html_is_parsed_as_in_browsers(html: str, texts: list[str]) -> None:
    parsed = HtmlText(html)
    assert [text.text for text in parsed.texts] == texts
    assert unescape(translate(html)) == html


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    ["<!--", "<script>", "<pre", "<code></cod", "<a '\"'", '<a "', "<", "</script ", "<b>", "<b>x", "<b></i>", "<br>x"],
)
def test_no_html_takes_quadratic_time(piece: str) -> None:
    start = time.thread_time()
    HtmlText(piece * (100_000 // len(piece)))
    assert time.thread_time() - start < 5  # quadratic time would take minutes


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ["<b>one</b> ", "<b>one ", "<i><b>one.</b></i> ", "one<img> ", "<i>" * 30 + "one" + "</i>" * 30 + " "]
)
def test_many_tags_take_little_time(piece: str) -> None:
    html = piece * (10_000 // len(piece))
    start = time.thread_time()
    result = translate(html)
    assert time.thread_time() - start < 5
    assert result.split() == html.split()
