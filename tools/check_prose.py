"""Check the wording of source, docs, page and tests: plain American English in the field's own words.

    python tools/check_prose.py              # check every tracked text file
    python tools/check_prose.py FILE ...     # check these files

Prints `file:line: phrase -> replacement` for each finding and exits with 1 if there is any. A line that must
contain a phrase (a quotation, a name in another library's interface) ends in `prose: ignore`.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".py", ".md", ".toml", ".js", ".css", ".html"}
EXCLUDED = (
    "docs/lab-notebook.md",  # history, with the names of its time
    "docs/labs/book.html",  # generated from the labs, whose source is checked
    "docs/results/",  # generated reports and resolved configs of kept runs
    "src/regard/labs/book.html",
    "src/regard/phrasebook/",  # vocabulary of the demo corpus
    "src/regard/serving/web/vendor/",
    "tests/phrasebook/",
    "tools/check_prose.py",
)

PHRASES = {  # regular expression -> what to write instead
    r"by heart": "overfit, memorize",
    r"(go|goes|going|gone|went) on (with|from)": "resume, continue",
    r"told": "set, passed; name the option",
    r"wish(es|ed)?": "options, request",
    r"hand(s|ed|ing)? over": "pass, return, send",
    r"settle[sd]?": "decide, handle",
    r"held back from": "regularized",
    r"none the wiser": "say what is unknown",
    r"whoever": "the user, the client, the caller",
    r"nobody|someone|somebody": "the user, the client, the caller",
    r"so-manieth": "nth",
    r"lets one": "allows",
    r"what stands|stands beside|lies below": "aligned with, in the same folder",
    r"it may look": "attends to",
    r"(keep|keeps|kept) aside": "held out",
    r"no more room": "the length limit was reached",
    r"first weights": "initialization",
    r"two readings": "two forward passes",
    r"none of its business": "state the contract",
    r"in its own right": "separately",
    r"it is no use": "has no effect",
    r"past all bounds": "diverged",
    r"may not be written": "suppressed",
    r"gone wrong|goes wrong|went wrong": "failed",
    r"anew": "again",
    r"learns? from (--\w+|documents)": "is trained on",
    r"at the foot of": "at the bottom of",
    r"(and|to) forgets? (them|it)": "clear",
    r"which the model does not know": "is not a label of the model",
}

BRITISH = {  # British stem -> American stem
    r"[a-z]*normalis(e|ed|es|ing|ation)": "normaliz…",
    r"[a-z]*tokenis(e|ed|es|er|ers|ing|ation)": "tokeniz…",
    r"[a-z]*initialis(e|ed|es|er|ing|ation)": "initializ…",
    r"[a-z]*optimis(e|ed|es|er|ers|ing|ation)": "optimiz…",
    r"(general|special|regular|parallel|serial|minim|maxim|summar|visual|organ|recogn|memor|synchron|emphas|real)is(e|ed|es|ing|ation)": "…iz…",  # noqa: E501
    r"behaviours?": "behavior",
    r"colour(s|ed|ing)?": "color",
    r"(un)?labelled|labelling": "labeled, labeling",
    r"modell(ed|ing)": "modeled, modeling",
    r"neighbour(s|ing|hood)?": "neighbor",
    r"favour(s|ed|ite)?": "favor",
    r"cent(re|red|ring)": "center",
    r"grey": "gray",
    r"artefacts?": "artifact",
    r"catalogues?": "catalog",
    r"licence": "license",
    r"whilst": "while",
    r"analys(e|ed|ing)": "analyze",
    r"travell(ed|ing)": "traveled",
    r"judgement": "judgment",
}

RULES = [(re.compile(rf"(?<![\w-])({phrase})(?![\w-])", re.IGNORECASE), advice) for phrase, advice in PHRASES.items()]
RULES += [  # in identifiers too: `labelled_rows`
    (re.compile(rf"(?<![a-z])({word})(?![a-z])", re.IGNORECASE), advice) for word, advice in BRITISH.items()
]
ANY_RULE = re.compile(f"(?<![a-z])(?:{'|'.join([*PHRASES, *BRITISH])})")  # for lowercase text: one quick pass
IGNORE = "prose: ignore"


def findings(text: str) -> Iterator[tuple[int, str, str]]:
    """Line numbers, phrases and replacements of everything that should be worded differently.

    >>> list(findings("It goes on with the run.\\nIt resumes."))
    [(1, 'goes on with', 'resume, continue')]
    """
    if not ANY_RULE.search(text.lower()):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if IGNORE not in line:
            for pattern, advice in RULES:
                for match in pattern.finditer(line):
                    yield number, match[0], advice


def tracked_files() -> list[Path]:
    """Text files under version control, less those that are excluded."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.splitlines() if not name.startswith(EXCLUDED)]
    return [ROOT / name for name in names if Path(name).suffix in SUFFIXES and (ROOT / name).exists()]


def main(arguments: list[str]) -> int:
    """Check files and print what was found."""
    paths = [Path(argument).resolve() for argument in arguments] or tracked_files()
    count = 0
    for path in paths:
        for number, phrase, advice in findings(path.read_text("utf-8")):
            print(f"{path.relative_to(ROOT)}:{number}: {phrase!r} -> {advice}")
            count += 1
    print(f"{count} phrases to reword" if count else f"{len(paths)} files checked", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
