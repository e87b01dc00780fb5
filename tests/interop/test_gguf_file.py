"""GGUF files from elsewhere: what is announced is checked before it is read, and tensors have the values of gguf."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from regard.errors import ModelError
from regard.interop.gguf_file import BLOCK_TYPES, MAX_ARRAY_ITEMS, read_gguf

U32, STRING, ARRAY, U8 = 4, 8, 9, 0


def text(content: str) -> bytes:
    return struct.pack("<Q", len(content.encode())) + content.encode()


def header(tensors: int = 0, entries: int = 0, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, entries)


def tensor(name: str = "t", shape: tuple[int, ...] = (4,), code: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, code, offset)


def padded(content: bytes, data: bytes = bytes(64)) -> bytes:
    return content + bytes(-len(content) % 32) + data


DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is not a GGUF file"),
    "magic": (header(magic=b"GGML"), "is not a GGUF file"),
    "version": (header(version=1), "has the GGUF version 1, and regard reads 2 and 3"),
    "big-endian": (header(version=3 << 24), f"has the GGUF version {3 << 24}"),
    "tensors": (header(tensors=10**9), "announces 1,000,000,000 tensors, more than the maximum, 100,000"),
    "entries": (header(entries=2**63), f"announces {2**63:,} metadata entries"),
    "no entries": (header(entries=1), "ends inside of the name of a metadata entry"),
    "long name": (header(entries=1) + struct.pack("<Q", 2**40), "more than the maximum"),
    "long text": (header(entries=1) + text("a") + struct.pack("<IQ", STRING, 999), "ends inside of a, which has 999"),
    "not UTF-8": (header(entries=1) + struct.pack("<Q", 1) + b"\xff", "which is not UTF-8 text"),
    "value type": (header(entries=1) + text("a") + struct.pack("<I", 77), "gives a the type 77"),
    "array of arrays": (header(entries=1) + text("a") + struct.pack("<IIQ", ARRAY, ARRAY, 1), "gives a the type 9"),
    "array": (
        header(entries=1) + text("a") + struct.pack("<IIQ", ARRAY, U8, 2**60),
        f"gives a {2**60:,} items, more than the maximum, {MAX_ARRAY_ITEMS:,}",
    ),
    "short array": (header(entries=1) + text("a") + struct.pack("<IIQ", ARRAY, U32, 9) + bytes(4), "ends inside of a"),
    "same entry": (header(entries=2) + 2 * (text("a") + struct.pack("<II", U32, 1)), "has two metadata entries 'a'"),
    "alignment": (
        header(entries=1) + text("general.alignment") + struct.pack("<II", U32, 24),
        "has general.alignment = 24, which should be a power of two",
    ),
    "alignment 0": (header(entries=1) + text("general.alignment") + struct.pack("<II", U32, 0), "alignment = 0"),
    "no tensor infos": (header(tensors=1), "ends inside of the name of a tensor"),
    "dimensions": (header(1) + text("t") + struct.pack("<I", 2**32 - 1), "gives t 4,294,967,295 dimensions"),
    "no dimensions": (padded(header(1) + tensor(shape=())), "gives t 0 dimensions"),
    "unknown type": (padded(header(1) + tensor(code=99)), "t has the quantization type 99, and regard reads F32, F16"),
    "old type": (padded(header(1) + tensor(code=4)), "t has the quantization type 4, and regard reads"),
    "no values": (padded(header(1) + tensor(shape=(4, 0))), "gives t the shape 0×4"),
    "no block": (padded(header(1) + tensor(shape=(33,), code=8)), "rows of Q8_0 are blocks of 32 values"),
    "size": (padded(header(1) + tensor(shape=(2**63, 2**63))), "it is truncated or damaged"),
    "offset": (padded(header(1) + tensor(offset=2**63)), "it is truncated or damaged"),
    "unaligned": (padded(header(1) + tensor(offset=8)), "at offset 8, which is not a multiple of 32"),
    "overlap": (
        padded(header(2) + tensor("a", (16,)) + tensor("b", (8,), offset=32)),
        "has b at offset 32, inside of another tensor",
    ),
    "same tensor": (padded(header(2) + tensor() + tensor(offset=32)), "has two tensors 't'"),
    "truncated": (padded(header(1) + tensor(shape=(17,))), "has t up to byte"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_have_one_message(case: str, tmp_path: Path) -> None:
    content, message = DAMAGED[case]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError) as error:
        read_gguf(path)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}: ")


def test_the_base_of_the_damaged_files_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    values = np.arange(4, dtype="<f4")
    path.write_bytes(padded(header(1, 1) + text("a") + struct.pack("<II", U32, 7) + tensor(), values.tobytes()))
    file = read_gguf(path)
    assert file.metadata == {"a": 7}
    np.testing.assert_array_equal(file.tensors["t"], values)


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    whole = padded(header(1, 1) + text("a") + struct.pack("<II", U32, 7) + tensor(), bytes(16))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            read_gguf(path)


def link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "it is a pipe, not a regular file"),
        (link_to_zero, "it is a device, not a regular file"),
        (Path.mkdir, "it is a folder, not a regular file"),
        (Path.exists, "does not exist; pass the path of a GGUF file"),
    ],
)
def test_only_regular_files_are_read(make: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    make(path)
    with pytest.raises(ModelError, match=message):
        read_gguf(path)


def test_a_file_that_shrinks_after_the_check_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(padded(header(1) + tensor()))
    tensors = read_gguf(path).tensors
    os.truncate(path, 70)
    with pytest.raises(ModelError, match="ends inside of the tensor t"):
        tensors["t"]


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_types_and_values_are_those_of_the_package_gguf(name: str, tmp_path: Path) -> None:
    block, kind = BLOCK_TYPES[name], gguf.GGMLQuantizationType[name]
    assert block.code == kind.value
    assert (block.values, block.size) == gguf.GGML_QUANT_SIZES[kind]
    generator = np.random.default_rng(3)
    stored = generator.integers(0, 256, (5, 3 * block.size), np.uint8)
    stored[:, 1::2] &= 0x3B  # no infinity and no NaN in scales
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("texts", ["a", "è", ""])
    writer.add_tensor("first", np.ones((2, 3), np.float32))
    writer.add_tensor("blocks", stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = read_gguf(path)
    values = file.tensors["blocks"]
    assert values.shape == (5, 3 * block.values)
    assert values.dtype == np.float32
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(values, gguf.quants.dequantize(stored, kind))
    np.testing.assert_array_equal(file.tensors["first"], np.ones((2, 3)))
    reader = gguf.GGUFReader(path)
    assert {name: file.metadata[name] for name in ("numbers", "texts", "general.architecture")} == {
        name: reader.fields[name].contents() for name in ("numbers", "texts", "general.architecture")
    }
