"""How many sentences a translator flags as unlike its training data: its test sentences, and others.

    python benchmarks/out_of_domain.py runs/demo

The others are 40 sentences that the demo's phrasebook does not cover.
"""

import argparse
from collections.abc import Sequence

import regard
from regard.data.readers.builtin import builtin_pairs
from regard.decoding.results import TranslatedSentence
from regard.registry import ENGINES, EngineName
from regard.tables import new_console, new_table

OTHERS = {
    "news": """
        The central bank raised interest rates by a quarter of a point on Wednesday.
        Thousands of protesters marched through the capital against the new tax law.
        Scientists have discovered a planet that orbits two stars.
        The parliament approved the budget after a long debate.
        Heavy rainfall caused flooding in several coastal regions.
        The company announced that it would cut two thousand jobs.
        Voters will elect a new president in November.
        The striker scored twice in the second half of the final.
        Oil prices fell sharply amid fears of a recession.
        A spokesperson declined to comment on the investigation.
        The museum's new director wants to attract younger visitors.
        Researchers tested the vaccine on four hundred volunteers.
        The judge sentenced the former mayor to three years in prison.
        Wildfires destroyed hundreds of homes near the border.""",
    "technical text": """
        Attention weights are computed with a softmax over the scaled scores.
        Install the package and restart the server.
        The patient should take one tablet twice daily after meals.
        This agreement shall be governed by the laws of the State of New York.
        Preheat the oven to 180 degrees and grease a baking tin.
        The derivative of a constant function is zero.
        Click the button below to reset your password.
        The warranty does not cover damage caused by misuse.""",
    "other languages": """
        Ich möchte morgen nach Berlin fahren.
        Je ne sais pas où il habite.
        ¿Dónde está la biblioteca?
        Vorrei prenotare una camera per due notti.
        Jag tycker om att läsa böcker.
        Gdzie jest najbliższy sklep?
        Я люблю тебя.
        私は学生です。
        今天天气很好。
        Onde fica a estação?""",
    "gibberish": """
        asdf jkl qwer uiop
        Colorless green ideas sleep furiously.
        blorp the snazzle frimly
        xkcd 42 foo bar baz
        lorem ipsum dolor sit amet
        Cat the on table is dog with bread of you not.
        hjklhjkl hjkl
        Twas brillig, and the slithy toves did gyre.""",
}


def flagged(model: regard.Model, texts: Sequence[str], engine: EngineName) -> list[TranslatedSentence]:
    """Return one sentence per text, with its flags."""
    translations = model.translate_detailed(texts, split_sentences=False, engine=engine)
    return [translation.sentences[0] for translation in translations]


def main() -> None:
    """Print the fraction of flagged sentences by kind and reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--engine", default="auto", choices=ENGINES)
    parser.add_argument("--show", action="store_true", help="print the sentences that are flagged or not, unexpectedly")
    arguments = parser.parse_args()
    model = regard.load(arguments.model)
    kinds = {"test sentences of the phrasebook": [pair.source for pair in builtin_pairs("builtin:phrasebook-test")]}
    kinds |= {kind: [line.strip() for line in text.strip().split("\n")] for kind, text in OTHERS.items()}
    kinds["all 40 others"] = [text for kind in OTHERS for text in kinds[kind]]
    table = new_table("sentences", "number", "flagged", "unknown pieces", "low confidence")
    for kind, texts in kinds.items():
        sentences = flagged(model, texts, arguments.engine)
        fractions = [
            sum(bool(sentence.flags) for sentence in sentences),
            sum("unknown_pieces" in sentence.flags for sentence in sentences),
            sum("low_confidence" in sentence.flags for sentence in sentences),
        ]
        table.add_row(kind, f"{len(texts):,}", *(f"{count / len(texts):.1%}" for count in fractions))
        if arguments.show:
            expected = kind not in OTHERS and not kind.startswith("all")
            for sentence in sentences:
                if bool(sentence.flags) == expected:
                    print(
                        f"{kind}: {sentence.source!r} {sentence.flags} {sentence.unknown_words} {sentence.confidence}"
                    )
    new_console().print(table)


if __name__ == "__main__":
    main()
