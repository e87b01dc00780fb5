"""Reader of SubRip subtitles (.srt): numbers and times are dropped, each file is one document."""

import re
from collections.abc import Iterator

from regard.data.lines import InvalidLines, read_lines
from regard.data.readers import Reader

TIME = re.compile(r"\d+:\d\d:\d\d,\d{3} --> ")


class SubtitleReader(Reader):
    """Text of subtitles, for language models and encoders."""

    suffixes = (".srt",)

    def documents(self, file: str, invalid: InvalidLines) -> Iterator[Iterator[str]]:
        """Yield the file as one document."""
        yield (line + "\n" for line in self._dialogue(file, invalid))

    def _dialogue(self, file: str, invalid: InvalidLines) -> Iterator[str]:
        for line in read_lines(file, invalid):
            if line.text and not line.text.strip().isdigit() and not TIME.match(line.text):
                yield line.text
