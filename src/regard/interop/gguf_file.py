"""Reading GGUF files: the header and the list of tensors, checked before any tensor is read.

    header     magic "GGUF", version, number of tensors, number of metadata entries
    metadata   name, type and value of each entry
    tensors    name, shape (innermost dimension first), type and offset of each tensor
    data       the tensors, each at a multiple of `general.alignment`

The file comes from elsewhere, so every count and every size is compared with the bytes that the file still has before
memory is allocated for it. The values of quantized tensors are computed by the package `gguf`, one tensor at a time.
"""

import math
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from regard.errors import ModelError
from regard.files import check_regular_file
from regard.interop.weight_transforms import Array
from regard.models.folder_files import unreadable_file

if TYPE_CHECKING:
    from types import ModuleType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_ENTRIES = 10_000
MAX_TENSORS = 100_000
MAX_METADATA_BYTES = 256 * 2**20
MAX_ARRAY_ITEMS = 2**22
MAX_NAME_BYTES = 256
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 2**16
COPY_AGAIN = "copy the file again"
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # struct formats

Scalar = str | int | float | bool
Value = Scalar | list[Scalar]


@dataclass(frozen=True)
class BlockType:
    """A type of tensors, whose values are stored in blocks."""

    code: int
    values: int
    """Values per block."""
    size: int
    """Bytes per block."""


BLOCK_TYPES = {
    "F32": BlockType(0, 1, 4),
    "F16": BlockType(1, 1, 2),
    "BF16": BlockType(30, 1, 2),
    "Q4_0": BlockType(2, 32, 18),
    "Q4_1": BlockType(3, 32, 20),
    "Q5_0": BlockType(6, 32, 22),
    "Q5_1": BlockType(7, 32, 24),
    "Q8_0": BlockType(8, 32, 34),
    "Q4_K": BlockType(12, 256, 144),
    "Q5_K": BlockType(13, 256, 176),
    "Q6_K": BlockType(14, 256, 210),
}
TYPE_NAMES = {block.code: name for name, block in BLOCK_TYPES.items()}


@dataclass(frozen=True)
class GGUFTensor:
    """Where a tensor is in the file."""

    name: str
    shape: tuple[int, ...]
    """Outermost dimension first, as in torch."""
    type_name: str
    start: int
    """Of its bytes in the file."""
    size: int
    """In bytes."""


class GGUFTensors(Mapping[str, Array]):
    """The tensors of a file by name, in float32; each is read and dequantized when it is looked up."""

    def __init__(self, path: Path, infos: Mapping[str, GGUFTensor]):
        self.path = path
        self.infos = infos

    def __getitem__(self, name: str) -> Array:
        info = self.infos[name]
        rows = (math.prod(info.shape[:-1]), -1)
        with self.path.open("rb") as file:
            file.seek(info.start)
            stored = np.fromfile(file, np.uint8, info.size)
        if len(stored) < info.size:  # the file has changed since it was checked
            raise ModelError(f"{self.path}: ends inside of the tensor {name}; {COPY_AGAIN}.")
        gguf = import_gguf(self.path)
        kind = gguf.GGMLQuantizationType[info.type_name]
        values: Array = gguf.quants.dequantize(stored.reshape(rows), kind)
        return np.ascontiguousarray(values, np.float32).reshape(info.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.infos)

    def __len__(self) -> int:
        return len(self.infos)


@dataclass(frozen=True)
class GGUFFile:
    """The checked content of a GGUF file."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: GGUFTensors


def import_gguf(path: Path) -> "ModuleType":
    """Return the package `gguf`; ModelError if it is not installed."""
    try:
        import gguf
    except ImportError:
        remedy = "install it with `pip install 'regard[gguf]'`"
        raise ModelError(f"{path}: GGUF files need the package gguf; {remedy}.") from None
    return gguf


def read_gguf(path: str | Path) -> GGUFFile:
    """Read and check the header, the metadata and the list of tensors of a GGUF file."""
    path = Path(path)
    try:
        check_regular_file(path)
        # without blocking, in case the file was replaced by a pipe in the meantime
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
            return _Reader(path, file).read()
    except FileNotFoundError:
        raise ModelError(f"{path}: does not exist; pass the path of a GGUF file.") from None
    except OSError as error:
        raise unreadable_file(path, error) from None


class _Reader:
    """Reads the parts of a file in their order."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path, self.file = path, file
        self.left = self.size = os.fstat(file.fileno()).st_size
        self.items = 0  # of all arrays

    def read(self) -> GGUFFile:
        if self.left < 24 or self._bytes(4, "header") != MAGIC:
            raise ModelError(f"{self.path}: is not a GGUF file: it does not begin with GGUF and a header.")
        version = self._number("I", "version")
        if version not in VERSIONS:
            known = " and ".join(map(str, VERSIONS))
            raise ModelError(
                f"{self.path}: has the GGUF version {version}, and regard reads {known} (little-endian); "
                "convert the model again."
            )
        tensors, entries = self._number("Q", "number of tensors"), self._number("Q", "number of entries")
        for count, maximum, what in (tensors, MAX_TENSORS, "tensors"), (entries, MAX_ENTRIES, "metadata entries"):
            if count > maximum:
                raise self._error(f"announces {count:,} {what}, more than the maximum, {maximum:,}")
        metadata: dict[str, Value] = {}
        for _ in range(entries):
            name = self._string("the name of a metadata entry")
            if name in metadata:
                raise self._error(f"has two metadata entries {name!r}")
            metadata[name] = self._value(name)
        infos = [self._tensor_info() for _ in range(tensors)]
        return GGUFFile(self.path, metadata, GGUFTensors(self.path, self._place(infos, metadata)))

    def _place(self, infos: list[GGUFTensor], metadata: Mapping[str, Value]) -> dict[str, GGUFTensor]:
        """Return tensors with their places in the file; each is inside of it and overlaps with no other."""
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise self._error(f"has general.alignment = {alignment!r}, which should be a power of two")
        header = self.size - self.left
        data, end, placed = header + -header % alignment, 0, dict[str, GGUFTensor]()
        for info in sorted(infos, key=lambda info: info.start):
            if info.name in placed:
                raise self._error(f"has two tensors {info.name!r}")
            if info.start % alignment:
                raise self._error(f"has {info.name} at offset {info.start}, which is not a multiple of {alignment}")
            if info.start < end:
                raise self._error(f"has {info.name} at offset {info.start}, inside of another tensor")
            end = info.start + info.size
            if data + end > self.size:
                raise self._error(
                    f"has {info.name} up to byte {data + end:,} of {self.size:,}: it is truncated or damaged"
                )
            placed[info.name] = GGUFTensor(info.name, info.shape, info.type_name, data + info.start, info.size)
        return placed

    def _tensor_info(self) -> GGUFTensor:
        name = self._string("the name of a tensor", MAX_NAME_BYTES)
        dimensions = self._number("I", f"the shape of {name}")
        if not 0 < dimensions <= MAX_DIMENSIONS:
            raise self._error(f"gives {name} {dimensions:,} dimensions; regard reads 1 to {MAX_DIMENSIONS}")
        shape = tuple(self._number("Q", f"the shape of {name}") for _ in range(dimensions))[::-1]
        code, offset = self._number("I", f"the type of {name}"), self._number("Q", f"the offset of {name}")
        if code not in TYPE_NAMES:
            raise ModelError(
                f"{self.path}: {name} has the quantization type {code}, and regard reads {', '.join(BLOCK_TYPES)}; "
                "choose a file with one of these."
            )
        block = BLOCK_TYPES[TYPE_NAMES[code]]
        values = math.prod(shape)
        if values == 0 or shape[-1] % block.values:
            sizes = "×".join(map(str, shape))
            raise self._error(
                f"gives {name} the shape {sizes}, but rows of {TYPE_NAMES[code]} are blocks of {block.values} values"
            )
        return GGUFTensor(name, shape, TYPE_NAMES[code], offset, values // block.values * block.size)

    def _value(self, name: str) -> Value:
        code = self._number("I", f"the type of {name}")
        if code != ARRAY:
            return self._scalar(code, name)
        code, count = self._number("I", f"the type of {name}"), self._number("Q", f"the length of {name}")
        self.items += count
        if self.items > MAX_ARRAY_ITEMS:
            raise self._error(f"gives {name} {count:,} items, more than the maximum, {MAX_ARRAY_ITEMS:,} in all arrays")
        if code not in SCALARS:
            return [self._scalar(code, name) for _ in range(count)]
        form = f"<{count}{SCALARS[code]}"
        return list(struct.unpack(form, self._bytes(struct.calcsize(form), name)))

    def _scalar(self, code: int, name: str) -> Scalar:
        if code == STRING:
            return self._string(name)
        if code not in SCALARS:
            raise self._error(f"gives {name} the type {code}, which regard does not read")
        value: Scalar = struct.unpack(f"<{SCALARS[code]}", self._bytes(struct.calcsize(f"<{SCALARS[code]}"), name))[0]
        return value

    def _string(self, what: str, maximum: int = MAX_METADATA_BYTES) -> str:
        length = self._number("Q", what)
        if length > maximum:
            raise self._error(f"gives {what} {length:,} bytes, more than the maximum, {maximum:,}")
        try:
            return self._bytes(length, what).decode("utf-8")
        except UnicodeDecodeError:
            raise self._error(f"has {what}, which is not UTF-8 text") from None

    def _number(self, form: str, what: str) -> int:
        return int(struct.unpack(f"<{form}", self._bytes(struct.calcsize(f"<{form}"), what))[0])

    def _bytes(self, count: int, what: str) -> bytes:
        """Return the next bytes, of which the file has enough and the metadata not too many."""
        if count > self.left:
            raise self._error(f"ends inside of {what}, which has {count:,} bytes")
        if self.size - self.left + count > MAX_METADATA_BYTES:
            raise self._error(f"has more than {MAX_METADATA_BYTES // 2**20} MB before its tensors")
        self.left -= count
        content = self.file.read(count)
        if len(content) < count:
            raise self._error(f"ends inside of {what}")
        return content

    def _error(self, problem: str) -> ModelError:
        return ModelError(f"{self.path}: {problem}; {COPY_AGAIN}.")
