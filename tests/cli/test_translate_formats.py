"""`regard translate` of hard-wrapped text and of HTML."""

import json
import re
from pathlib import Path

import pytest

import regard as package
from commands import regard


def test_hard_wrapped_lines_are_joined(translator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped, paragraphs = "w4 w5\nw6\n\n---\n- w7\n  w8\n", "w4 w5 w6\n\n---\n- w7 w8\n"
    expected = regard("translate", translator, stdin=paragraphs).out
    assert regard("translate", translator, "--unwrap", stdin=wrapped).out == expected
    assert regard("translate", translator, "--unwrap", wrapped).out == expected
    model = package.load(translator)
    assert model.translate(wrapped, unwrap=True) == expected
    assert model.translate(wrapped, unwrap=True, split_sentences=False) == expected
    assert model.translate(wrapped).count("\n") == wrapped.count("\n")
    monkeypatch.setattr("regard.cli.input_output.LOG_SECONDS", 0.0)
    (tmp_path / "in.txt").write_text(wrapped)
    done = regard("translate", translator, "--unwrap", "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == expected
    assert "6 of 6 lines (100%)" in done.err
    records = regard("translate", translator, "--unwrap", "--json", stdin=wrapped).out.splitlines()
    assert [json.loads(record)["source"] for record in records] == paragraphs.removesuffix("\n").split("\n")


def test_tags_in_lines_of_text_are_put_back(translator: Path) -> None:
    done = regard("translate", translator, stdin="w4 <b>w5</b> w6\nw4 < w5\n")
    assert (done.code, done.err) == (0, "")
    tagged, plain = done.out.splitlines()
    assert re.fullmatch("[^<]*<b>[^<]+</b>[^<]*", tagged)
    assert re.sub("</?b>", "", tagged) == regard("translate", translator, "w4 w5 w6").out.strip()
    as_text = regard("translate", translator, "--format", "text", stdin="w4 <b>w5</b> w6\nw4 < w5\n")
    assert as_text.out.splitlines()[1] == plain
    assert as_text.out.splitlines()[0] != tagged
    assert package.load(translator).translate("w4 <b>w5</b> w6") == tagged


def test_a_list_of_the_best_says_that_tags_are_left_out(translator: Path) -> None:
    done = regard("translate", translator, "--n-best", "2", stdin="w4 <b>w5</b> w6\nw4\n")
    assert "<" not in done.out
    message = "--n-best prints sentences without their tags, here of 1 line; --json keeps the tags"
    assert done.err == f"regard: {message}.\n"
    assert regard("translate", translator, "--n-best", "2", "--json", stdin="w4 <b>w5</b>\n").err == ""


def test_an_html_document_is_translated(translator: Path, tmp_path: Path) -> None:
    document = "<!DOCTYPE html>\n<p>w4 <b>w5</b>\nw6</p>\n<pre>w7\nw8</pre>\n"
    (tmp_path / "page.html").write_text(document)
    done = regard("translate", translator, "--format", "html", "--input", tmp_path / "page.html")
    assert done.code == 0
    assert re.fullmatch(r"<!DOCTYPE html>\n<p>[^<]*<b>[^<]+</b>[^<]*</p>\n<pre>w7\nw8</pre>\n", done.out)
    plain = regard("translate", translator, "w4 w5 w6").out.strip()
    assert re.sub("</?b>", "", done.out).split("\n")[1] == f"<p>{plain}</p>"
    assert package.load(translator).translate(document, format="html") == done.out
    record = json.loads(regard("translate", translator, "--format", "html", "--json", stdin=document).out)
    assert (record["source"] + "\n", record["translation"] + "\n") == (document, done.out)
    assert regard("translate", translator, "--format", "html", stdin="").out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "pdf"], "--format pdf: should be auto, text or html."),
        (
            ["--format", "html", "--n-best", "2"],
            "--n-best: prints translations of sentences, not of HTML; add --json, or remove it.",
        ),
        (
            ["--format", "html", "--parses", "x"],
            "--format html: joins lines, but each line has a parse of its own; remove --parses or --format html.",
        ),
        (
            ["--unwrap", "--parses", "x"],
            "--unwrap: joins lines, but each line has a parse of its own; remove --parses or --unwrap.",
        ),
    ],
)
def test_options_that_do_not_fit_html_or_paragraphs(translator: Path, arguments: list[str], message: str) -> None:
    done = regard("translate", translator, *arguments, stdin="w4\n")
    assert (done.code, done.err) == (2, f"regard: {message}\n")
