"""Labs: claims of the paper and of its teachers, each checked on our own networks. One file per lab."""

from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Lab:
    """A lab by name. Its module is imported only when it runs, and has a `run()` that gives the text to show."""

    name: str
    claim: str
    module: str

    def run(self) -> str:
        """The lab's result, ready for the terminal."""
        text = import_module(self.module).run()
        assert isinstance(text, str)
        return text


LABS = {
    lab.name: lab
    for lab in [
        Lab(
            "worked-example",
            "Self-attention and the look-ahead mask on numbers small enough to check by hand.",
            "regard.labs.worked_example",
        ),
    ]
}
