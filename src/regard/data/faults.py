"""What is wrong with data: the first fault ends the reading, or each is skipped and counted by its reason."""

from collections import Counter
from dataclasses import dataclass, field

from regard.errors import DataError


@dataclass
class Faults:
    """Faults met so far. Nothing is dropped silently: what was skipped is counted, with an example of each reason."""

    skip: bool = False
    advice: str = ", or skip such lines with --skip-invalid"  # what else a user can do about one
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, fault: str) -> None:
        """Note a fault, such as `a.tsv:2: has an empty source; fill it`; unless faults are skipped, it is an error."""
        if not self.skip:
            raise DataError(f"{fault}{self.advice}.")
        self.counts[reason] += 1
        self.examples.setdefault(reason, f"{fault}.")
