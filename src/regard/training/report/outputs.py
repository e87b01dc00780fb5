"""What the model wrote: chosen sentences of the test, and how its answers changed while it learned."""

from collections.abc import Sequence

from regard.training.report.difference import marked
from regard.training.report.folder import Record, Run, number, records
from regard.training.report.markup import Markup, foreign, joined, shortened, tag

GROUPS = {"random": "Drawn at random", "best": "Best", "worst": "Worst"}
AT_ONCE, AT_MOST = 3, 10  # sentences of a group shown openly, and in all
FOLLOWED, STAGES = 4, 8  # sentences followed through the run, and stages of each
LONGEST = 1000  # characters of one text


def outputs(run: Run) -> Markup:
    """Sentences at random first, since the best and the worst alone tell little."""
    groups = [_group(title, records(run.outputs.get(key))) for key, title in GROUPS.items()]
    if not any(groups):
        return Markup("")
    note = tag("p", "Marked words of an output differ from the reference.", class_="note")
    return tag("section", tag("h2", "Outputs"), note, *groups, id="outputs")


def changes(run: Run) -> Markup:
    """A few sentences, and what the model made of them at one validation after another."""
    followed: dict[tuple[str, str], list[Record]] = {}
    for sample in run.samples:
        followed.setdefault((_text(sample, "source", "prompt"), _text(sample, "reference")), []).append(sample)
    if not followed:
        return Markup("")
    stories = [_story(*asked, answers) for asked, answers in list(followed.items())[:FOLLOWED]]
    return tag("section", tag("h2", "How the outputs changed"), *stories, id="changes")


def _group(title: str, found: Sequence[Record]) -> Markup:
    if not found:
        return Markup("")
    cards = [_card(each) for each in found[:AT_MOST]]
    shown, rest = cards[:AT_ONCE], cards[AT_ONCE:]
    more = tag("details", tag("summary", f"{len(rest)} more"), *rest) if rest else ""
    return tag("div", tag("h3", title), *shown, more, class_="group")


def _card(found: Record) -> Markup:
    output, reference = _text(found, "output"), _text(found, "reference")
    score = number(found.get("score"))
    same = bool(reference) and output == reference
    rows = _asked(_text(found, "source"), _text(found, "prompt"), reference)
    rows.append(_row("output", marked(output, reference) if reference else joined(output), "output"))
    probability = number(found.get("probability"))
    verdict = "exact match" if same else f"chrF {score:.1f}" if score is not None else ""
    verdict = f"probability {probability:.0%}" if probability is not None else verdict
    return tag("dl", *rows, tag("div", verdict, class_="verdict") if verdict else "", class_="sample")


def _story(source: str, reference: str, answers: Sequence[Record]) -> Markup:
    """Answers that stay the same for several validations are shown once, with the steps they held for."""
    stages: list[tuple[int, int, str]] = []
    for answer in answers:
        step, output = answer["step"], _text(answer, "output")
        if stages and stages[-1][2] == output:
            stages[-1] = (stages[-1][0], step, output)
        else:
            stages.append((step, step, output))
    if len(stages) > STAGES:
        stages = [stages[place * (len(stages) - 1) // (STAGES - 1)] for place in range(STAGES)]
    is_prompt = "prompt" in answers[0]
    rows = _asked("" if is_prompt else source, source if is_prompt else "", "")
    for first, last, output in stages:
        steps = f"{first:,}" if first == last else f"{first:,} – {last:,}"
        rows.append(_row(f"step {steps}", marked(output, reference) if reference else joined(output), "stage"))
    if reference:
        rows.append(_row("reference", reference, "given"))
    return tag("dl", *rows, class_="sample story")


def _asked(source: str, prompt: str, reference: str) -> list[Markup]:
    given = {"source": source, "prompt": prompt, "reference": reference}
    return [_row(name, content, "given") for name, content in given.items() if content]


def _row(name: str, content: str, kind: str) -> Markup:
    empty = tag("span", "empty", class_="empty")
    return tag("div", tag("dt", name), foreign("dd", content, LONGEST) if content else tag("dd", empty), class_=kind)


def _text(found: Record, *keys: str) -> str:
    value = next((found[key] for key in keys if found.get(key) is not None), "")
    return shortened(str(value), LONGEST)
