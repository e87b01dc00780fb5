"""Plain text: a file is one document, or one text per line."""

from collections.abc import Iterator

from regard.data.lines import InvalidLines, check_gzip_on_error, read_lines
from regard.data.readers.base import Reader


class TextReader(Reader):
    """Reader of plain text, the default for documents."""

    suffixes = (".txt",)

    def documents(self, file: str, invalid: InvalidLines) -> Iterator[Iterator[str]]:
        """Yield the file as one document, with its line ends."""
        yield self._lines(file, invalid)

    def texts(self, file: str, invalid: InvalidLines) -> Iterator[str]:
        """Yield each line as a text."""
        return (line.text for line in read_lines(file, invalid) if line.text is not None)

    def _lines(self, file: str, invalid: InvalidLines) -> Iterator[str]:
        with check_gzip_on_error(file):
            yield from (line.text + "\n" for line in read_lines(file, invalid) if line.text is not None)
