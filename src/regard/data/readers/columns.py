"""Which columns of a table hold source, target, text and label: set by the user, named by a header, or by position.

A header is recognized only by names that are not text: `source` and `target` (or other names of these roles) together,
or known names such as `id`, `en`, `it`, `text` in all columns, or `id` above integers. Any other first line is an
example. Columns of integers are ids: without a header they are never read as labels (if all of them differ) or as
sentences. Labels repeat and texts do not: without a header, a first column of different cells is not read as labels if
exactly one other column repeats a few values.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.errors import DataError

SOURCE_NAMES = ("source", "src", "source_text", "source_sentence", "input")
TARGET_NAMES = ("target", "tgt", "trg", "target_text", "target_sentence", "translation", "output")
LABEL_NAMES = ("label", "class", "category")
TEXT_NAMES = ("text", "sentence", "content", "text1", "sentence1", "first", "premise")
SECOND_NAMES = ("second", "text2", "sentence2", "hypothesis")
ROLE_NAMES: Mapping[str, tuple[str, ...]] = {
    "source": SOURCE_NAMES,
    "target": TARGET_NAMES,
    "label": LABEL_NAMES,
    "text": TEXT_NAMES,
    "second": SECOND_NAMES,
}
ID_NAMES = ("id", "idx", "index", "guid", "key", "row", "line", "")  # pandas leaves the name of its index empty
_OTHER = (
    "score domain split date url comment notes author license attribution context "
    "lang language source_lang target_lang source_id target_id"
)
OTHER_NAMES = {*_OTHER.split(), *ID_NAMES}
_LANGUAGES = (
    "af ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km kn ko "
    "la lt lv mk ml mn mr ms mt my nb ne nl nn no pa pl pt ro ru si sk sl sq sr sv sw ta te th tl tr uk ur uz vi zh zu "
    "eng deu ger fra fre spa ita por nld dut rus ukr pol ces swe dan fin ell tur ara heb hin jpn kor zho chi "
    "english german french spanish italian portuguese dutch russian ukrainian polish czech swedish danish finnish "
    "norwegian greek turkish arabic hebrew hindi japanese korean chinese romanian hungarian"
)
LANGUAGES = set(_LANGUAGES.split())
SAMPLE_ROWS = 1000  # rows in which columns of ids are looked for
MIN_ID_ROWS = 10  # fewer distinct integers may be labels, unless they are consecutive
MIN_LABEL_ROWS = 10  # in fewer rows, the first column has the labels
MIN_CONSECUTIVE_ROWS = 3
_LOCALE = re.compile(r"([a-z]{2,3})[-_](?:[a-z]{2}|[a-z]{4}|[0-9]{3})")  # en-us, zh_hant
_IDENTIFIER = re.compile(r"[\w#/()-]{0,40}")
_SHORT_IDENTIFIER = re.compile(r"[^\W_]*_?[^\W_]*")  # one or two words
_INTEGER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class ColumnLayout:
    """Indices of the columns of each role, and what the first line of the file is."""

    indices: Mapping[str, int]
    header: tuple[str, ...] | None = None  # the cells of the first line if it is a header
    ids: tuple[int, ...] = ()
    reordered: bool = False  # without a header, the labels are not in the first column

    @property
    def required(self) -> int:
        """Number of columns that each line must have: all but the second text, if no header names it."""
        optional = () if self.header is not None else ("second",)
        return 1 + max(index for role, index in self.indices.items() if role not in optional)

    def note(self, file: str, num_columns: int, *, chosen: bool) -> str | None:
        """Return what the user should know about the columns: a header, ids, and columns that are not used."""
        used = set(self.indices.values())
        unused = [index for index in range(num_columns) if index not in used]
        if self.header is None and not unused and not self.reordered:
            return None
        parts = [f"{role} = {self._column(index)}" for role, index in self.indices.items() if index < num_columns]
        if unused:
            parts.append(f"not used: {', '.join(map(self._column, unused))}")
        start = "line 1 is a header" if self.header is not None else f"{num_columns} columns"
        roles = [role for role in self.indices if role != "second"]
        hint = "" if chosen else f"; {' and '.join(f'--{role}-column' for role in roles)} can choose others"
        return f"{file}: {start}; {', '.join(parts)}{hint}"

    def _column(self, index: int) -> str:
        name = self.header[index].strip() if self.header is not None and index < len(self.header) else ""
        detail = f" ({name})" if name else " (ids)" if index in self.ids else ""
        return f"column {index + 1}{detail}"


def find_layout(
    rows: Sequence[Sequence[str]], roles: Sequence[str], chosen: Mapping[str, str], location: str
) -> ColumnLayout:
    """Return where the roles are.

    Args:
        rows: the first rows of the file.
        roles: the roles to find, in the order of their columns in a file without a header.
        chosen: columns set by the user, by role: a name in the header, or a number counted from 1.
        location: of the first row, for error messages.
    """
    first = rows[0]
    names = [normalize_name(cell) for cell in first]
    header = is_header(names, roles) or _names_ids(names, rows[1:])
    header = header or any(_is_name(column, names) for column in chosen.values())
    indices = {role: _chosen_index(role, column, names, location) for role, column in chosen.items()}
    ids: tuple[int, ...] = ()
    if header:
        indices |= _named_indices(names, [role for role in roles if role not in indices], set(indices.values()))
    else:
        ids = _id_columns(rows, roles)
        indices |= _indices_by_position(rows, roles, indices, set(ids))
    required = [role for role in roles if role != "second"]
    missing = next((role for role in required if role not in indices), None)
    if missing is not None:
        raise _missing_column(missing, names, location, header=header, ids=ids)
    ordered = {role: indices[role] for role in roles if role in indices}
    reordered = not header and not chosen and ordered.get("label", 0) > ordered.get("text", 0)
    return ColumnLayout(ordered, tuple(first) if header else None, ids, reordered)


def find_named_columns(
    names: Sequence[str], roles: Sequence[str], chosen: Mapping[str, str], file: str
) -> dict[str, int]:
    """Return where the roles are in a file whose columns have names, such as Parquet.

    Columns that neither the user nor their names tell are taken by position if there are just as many as roles.

    >>> find_named_columns(["id", "en", "it"], ("source", "target"), {}, "a.parquet")
    {'source': 1, 'target': 2}
    """
    normalized = [normalize_name(name) for name in names]
    indices = {role: _chosen_index(role, column, normalized, file) for role, column in chosen.items()}
    indices |= _named_indices(normalized, [role for role in roles if role not in indices], set(indices.values()))
    required = [role for role in roles if role != "second"]
    if not indices and len(names) == len(required):
        return {role: number for number, role in enumerate(required)}
    missing = next((role for role in required if role not in indices), None)
    if missing is not None:
        raise DataError(
            f"{file}: has no column that is known to be the {missing}; its columns are {', '.join(names)} "
            f"(pass one of these to --{missing}-column)."
        )
    return indices


def normalize_name(cell: str) -> str:
    """Return the name of a column as it is compared.

    >>> normalize_name(' "Source Text"')
    'source_text'
    """
    return cell.strip().strip('"').strip().lower().replace(" ", "_")


def may_be_id(cell: str) -> bool:
    """Return whether a cell of the first line may be an id or the name of a column of ids."""
    return cell.strip().isdecimal() or normalize_name(cell) in ID_NAMES


def is_header(names: Sequence[str], roles: Sequence[str]) -> bool:
    """Return whether the first line of a file names its columns.

    >>> is_header(["target", "source"], ("source", "target")), is_header(["hello", "ciao"], ("source", "target"))
    (True, False)
    """
    if len(set(names)) < len(names):
        return False
    found = {role for role in roles if any(name in ROLE_NAMES[role] for name in names)}
    known = all(map(_is_known, names)) and any(names)
    if roles == ("text",):  # a document begins with any words: only known names are a header
        return known and bool(found)
    if set(roles) - {"second"} <= found and ("label" in roles or all(map(_IDENTIFIER.fullmatch, names))):
        return True
    if "label" in roles:
        named = "label" in found or names[0] in (*TEXT_NAMES, *SECOND_NAMES)
        return named and len(names) > 1 and all(map(_SHORT_IDENTIFIER.fullmatch, names))
    return known and len(names) > 1


def _names_ids(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line names a column of ids: the cells below are integers."""
    if len(rows) < MIN_CONSECUTIVE_ROWS:
        return False
    columns = [index for index, name in enumerate(names) if name in ID_NAMES and any(names)]
    return any(all(len(row) > index and _INTEGER.fullmatch(row[index].strip()) for row in rows) for index in columns)


def is_language(name: str) -> bool:
    """Return whether a name is a language.

    >>> is_language("it"), is_language("pt-br"), is_language("ciao")
    (True, True, False)
    """
    locale = _LOCALE.fullmatch(name)
    return (locale[1] if locale else name) in LANGUAGES


def _is_known(name: str) -> bool:
    return name in OTHER_NAMES or any(name in names for names in ROLE_NAMES.values()) or is_language(name)


def _is_name(column: str, names: Sequence[str]) -> bool:
    return normalize_name(column) in names


def _chosen_index(role: str, column: str, names: Sequence[str], location: str) -> int:
    if _is_name(column, names):
        return names.index(normalize_name(column))
    if column.isdecimal() and 1 <= int(column) <= len(names):
        return int(column) - 1
    raise DataError(
        f"{location}: has no column {column!r} for the {role}; it has {', '.join(names)} "
        f"(pass one of these names to --{role}-column, or a number from 1 to {len(names)})."
    )


def _named_indices(names: Sequence[str], roles: Sequence[str], used: set[int]) -> dict[str, int]:
    """Return the columns of a header, by the names of roles; languages are source and target, in this order."""
    indices: dict[str, int] = {}

    def find(role: str, known: Sequence[str]) -> None:
        index = next((names.index(name) for name in known if name in names and names.index(name) not in used), None)
        if role in roles and role not in indices and index is not None:
            indices[role] = index
            used.add(index)

    for role in roles:
        find(role, ROLE_NAMES[role])
    find("source", TEXT_NAMES)
    languages = [name for name in names if is_language(name)]
    if indices or len(languages) > 2:
        languages = [name for name in languages if name not in OTHER_NAMES]  # id is Indonesian, but also an id
    for role in ("source", "target"):
        find(role, languages)
    return indices


def _indices_by_position(
    rows: Sequence[Sequence[str]], roles: Sequence[str], chosen: Mapping[str, int], ids: set[int]
) -> dict[str, int]:
    """Return the columns of a file without a header: those that are left, in the order of the roles."""
    width = max(map(len, rows)) if ids or chosen else len(roles)
    columns = [index for index in range(width) if index not in ids and index not in chosen.values()]
    remaining = [role for role in roles if role not in chosen]
    if chosen:
        remaining = [role for role in remaining if role != "second"]
        if len(columns) > len(remaining):  # any of them could be meant
            return {}
    if not ids and remaining == ["label", "text", "second"]:
        label = _label_column(rows)
        return dict(zip(remaining, [label, *(index for index in columns if index != label)], strict=False))
    if ids and "label" in remaining and columns:  # the order is unknown: labels repeat, texts do not
        label = min(columns, key=lambda index: len({row[index] for row in rows if index < len(row)}))
        columns = [label, *(index for index in columns if index != label)]
        if len(columns) < 2:
            return {}
    return dict(zip(remaining, columns, strict=False))


def _label_column(rows: Sequence[Sequence[str]]) -> int:
    """Return the column of labels in a file without a header: the first one, unless its cells differ as texts do.

    >>> texts = [f"text {n}" for n in range(20)]
    >>> _label_column([["good", text] for text in texts]), _label_column([[text, "good"] for text in texts])
    (0, 1)
    """
    if len(rows) < MIN_LABEL_ROWS:
        return 0
    distinct = [len({row[index] for row in rows if index < len(row)}) for index in range(min(3, len(rows[0])))]
    repeating = [index for index, count in enumerate(distinct) if count <= max(2, len(rows) // 5)]
    return repeating[0] if len(repeating) == 1 and distinct[0] > len(rows) // 2 else 0


def _id_columns(rows: Sequence[Sequence[str]], roles: Sequence[str]) -> tuple[int, ...]:
    """Return the columns of ids in a file without a header."""
    if "label" in roles:
        return (0,) if _are_ids([row[0] for row in rows]) else ()
    width = min(map(len, rows))
    if width <= len(roles) or len(rows) < MIN_CONSECUTIVE_ROWS:
        return ()
    return tuple(index for index in range(width) if all(_INTEGER.fullmatch(row[index].strip()) for row in rows))


def _are_ids(cells: Sequence[str]) -> bool:
    """Return whether cells are distinct integers, and so many or so regular that they cannot be labels."""
    if not all(_INTEGER.fullmatch(cell.strip()) for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    if len(numbers) >= MIN_ID_ROWS:
        return len(set(numbers)) == len(numbers)
    consecutive = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return len(numbers) >= MIN_CONSECUTIVE_ROWS and consecutive


def _missing_column(role: str, names: Sequence[str], location: str, *, header: bool, ids: tuple[int, ...]) -> DataError:
    known = ROLE_NAMES[role]
    options = f"{', '.join(known[:-1])} or {known[-1]}"
    if header:
        return DataError(
            f"{location}: names the columns {', '.join(names)}, but none for the {role}; call it {options}, "
            f"or pass --{role}-column."
        )
    reason = f"column {ids[0] + 1} has ids (distinct integers)" if ids else f"{len(names)} columns"
    return DataError(f"{location}: {reason}, and it is not known which has the {role}; pass --{role}-column.")
