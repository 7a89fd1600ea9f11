"""Compressed input that others made to do harm, each given to the whole command.

    python -m tests.index_builder.hostile_inputs SCRATCH MODEL [--long]

writes a line of JSON for each: how the command ended, what it said, what it left, how long it took, and how much memory the process
had taken by then. `--long` gives it those that take minutes.
"""

import argparse
import gzip
import io
import json
import os
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from backports import zstd
from typer.testing import CliRunner

from glow.cli import app
from tests.attacks.harness import peak_mb

__all__ = ["INPUTS", "LONG"]

MB = 1 << 20
ZEROS = bytes(MB)
Chunks = Iterator[bytes]
GOOD = b'{"_id": "good", "text": "how do bees find their way home"}\n'


def _gzip(path: Path, chunks: Chunks) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for chunk in chunks:
            file.write(chunk)


def _zstd(path: Path, chunks: Chunks) -> None:
    with zstd.ZstdFile(path, "wb", level=1) as file:
        for chunk in chunks:
            file.write(chunk)


def _plain(path: Path, chunks: Chunks) -> None:
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)


def _repeated(count: int, chunk: bytes = ZEROS, start: bytes = b"") -> Chunks:
    yield start
    for _ in range(count):
        yield chunk


def _window(path: Path, _: Chunks) -> None:
    """A frame that asks for a window of 2 TB."""
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00")


Inputs = dict[str, tuple[str, Callable[[Path, Chunks], None], Callable[[], Chunks]]]
INPUTS: Inputs = {
    "a line of 400 MB, gzip": (".jsonl.gz", _gzip, lambda: _repeated(400, b"x" * MB, GOOD)),
    "a line of 400 MB, zstd": (".jsonl.zst", _zstd, lambda: _repeated(400, b"x" * MB, GOOD)),
    "a document of 400 MB": (
        ".jsonl.gz",
        _gzip,
        lambda: _repeated(400, b" " * MB, b'{"_id": "a", "text": "'),
    ),
    "only zeros": (".jsonl.zst", _zstd, lambda: _repeated(400)),
    "a window of 2 TB": (".jsonl.zst", _window, lambda: iter(())),
    "20,000 bad lines": (".jsonl.gz", _gzip, lambda: _repeated(20, b"x\n" * 1000, GOOD)),
    "an archive": (".tar", _plain, lambda: iter([_archive_of_documents()])),
    "an archive in gzip": (".tar.gz", _gzip, lambda: iter([_archive_of_documents()])),
    "gzip that is no gzip": (".jsonl.gz", _plain, lambda: iter([GOOD])),
    "gzip cut off": (".jsonl.gz", _plain, lambda: iter([gzip.compress(GOOD * 100)[:60]])),
    "gzip in gzip": (".jsonl.gz", _gzip, lambda: iter([gzip.compress(GOOD)])),
}
LONG: Inputs = {
    "a line of 4 GB, gzip": (".jsonl.gz", _gzip, lambda: _repeated(4_000, b"x" * MB, GOOD)),
    "40 MB of line feeds": (".jsonl.gz", _gzip, lambda: _repeated(40, b"\n" * MB, GOOD)),
    "1,000,000 bad lines": (".jsonl.gz", _gzip, lambda: _repeated(1_000, b"x\n" * 1_000, GOOD)),
    "1,000,000 empty members": (".jsonl.gz", _plain, lambda: _repeated(1_000, gzip.compress(b"") * 1_000)),
}


def _archive_of_documents() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for name in ("../../escaped.jsonl", "documents.jsonl"):
            info = tarfile.TarInfo(name)
            info.size = len(GOOD)
            made.addfile(info, io.BytesIO(GOOD))
    return file.getvalue()


def _given(scratch: Path, name: str, file: Path, command: list[str]) -> None:
    """Gives a file to a command and writes what came of it."""
    before = {path for path in scratch.rglob("*")}
    started = time.monotonic()
    done = CliRunner().invoke(app, [each.format(file=file, root=scratch / "root") for each in command])
    files = (path for path in scratch.rglob("*") if path not in before and path.is_file())
    left = sorted((path.relative_to(scratch).as_posix(), path.stat().st_size) for path in files)
    figures = {"name": name, "exit": done.exit_code, "said": done.output, "raised": repr(done.exception)}
    figures |= {
        "left": left,
        "seconds": round(time.monotonic() - started, 2),
        "peak_mb": peak_mb(os.getpid()),
    }
    print(json.dumps(figures), flush=True)  # noqa: T201 - a program
    shutil.rmtree(scratch / "root", ignore_errors=True)
    file.unlink()


def main() -> None:
    """Every hostile input, one after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args()
    scratch = options.scratch
    build = [*"build --input {file} --threads 1 --index-root {root} --model".split(), str(options.model)]
    for name, (suffix, pack, chunks) in (LONG if options.long else INPUTS).items():
        file = scratch / f"input{suffix}"
        pack(file, chunks())
        _given(scratch, name, file, build)


if __name__ == "__main__":
    main()
