"""A small artifact with files in folders, and the tool to change one byte of it."""

from pathlib import Path

import pytest

from glow.artifact import write_artifact


def make_artifact(target: Path, content: bytes = b"vectors") -> Path:
    with write_artifact(target, "index") as writer:
        (writer.folder / "vectors.bin").write_bytes(content)
        (writer.folder / "terms").mkdir()
        (writer.folder / "terms" / "words.bin").write_bytes("bienen-größe".encode())
        (writer.folder / "empty").write_bytes(b"")
        writer.hashes = {"model": "a" * 64}
        writer.parents = {"model": {"name": "toy"}}
        writer.parameters = {"kind": "flat", "share": 0.5}
        writer.counts = {"documents": 3}
    return target


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return make_artifact(tmp_path / "v1")


def flip(path: Path, position: int) -> None:
    """Changes one bit of the byte at a position of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
