"""A small artifact with files in folders, and the tools to change a byte or the manifest of it."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glow.artifact import MANIFEST_FILE, write_artifact


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
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def remake(folder: Path, change: Callable[[dict[str, Any]], None] = lambda body: None) -> None:
    """Gives a changed folder a manifest that fits its files, as somebody with intent, or who mixes indexes by hand, would."""
    path = folder / MANIFEST_FILE
    body = json.loads(path.read_bytes())
    del body["checksum"]
    for name in list(body["files"]):
        data = (folder / name).read_bytes()
        body["files"][name] = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change(body)
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    body["checksum"] = hashlib.sha256(canonical).hexdigest()
    path.write_bytes(json.dumps(body, indent=2, sort_keys=True).encode() + b"\n")
