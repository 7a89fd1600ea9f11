"""Input that others made to do harm, each given to the whole command: `hostile_inputs SCRATCH MODEL [--long]`.

Writes a line of JSON for each: how the command ended, what it said and left, and the memory that the process and its children
had taken at most by then. `--long` gives it those that take minutes. The files are there already: to make them takes memory.
"""

import argparse
import gzip
import io
import json
import os
import resource
import shutil
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from backports import zstd
from typer.testing import CliRunner

from glow.cli import app
from tests.attacks.harness import peak_mb

MB = 1 << 20
LARGE_BYTES = 288 * MB
GOOD = b'{"_id": "good", "text": "how do bees find their way home"}\n'
GZIP, ZSTD = partial(gzip.open, mode="wb", compresslevel=1), partial(zstd.ZstdFile, mode="wb", level=1)
PLAIN = partial(Path.open, mode="wb")
Write = Callable[[Path], object]


def repeated(opened: Any, count: int, chunk: bytes, start: bytes = GOOD, end: bytes = b"") -> Write:
    """Writes a chunk so many times, through a compressor."""

    def write(path: Path) -> None:
        with opened(path) as file:
            file.write(start)
            for _ in range(count):
                file.write(chunk)
            file.write(end)

    return write


def archive(opened: Any) -> Write:
    """Writes a tar file of documents, one of which would lie outside."""
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w") as made:
            for name in ("../../escaped.jsonl", "documents.jsonl"):
                info = tarfile.TarInfo(name)
                info.size = len(GOOD)
                made.addfile(info, io.BytesIO(GOOD))
        return repeated(opened, 1, file.getvalue(), b"")


def zeros() -> pyarrow.Array:
    """One value of 288 MB, which takes no memory until it is written."""
    ends = pyarrow.py_buffer((0).to_bytes(4, "little") + LARGE_BYTES.to_bytes(4, "little"))
    return pyarrow.Array.from_buffers(
        pyarrow.string(), 1, [None, ends, pyarrow.py_buffer(bytes(LARGE_BYTES))]
    )


def parquet(texts: Callable[[], Any]) -> Write:
    def write(path: Path) -> None:
        values = texts()
        table = pyarrow.table({"_id": [str(number) for number in range(len(values))], "text": values})
        pyarrow.parquet.write_table(table, path, compression="zstd", use_dictionary=len(values) > 1)

    return write


def batch(path: Path) -> None:
    made = pyarrow.record_batch({"_id": ["a"], "text": zeros()})
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with (
        pyarrow.OSFile(str(path), "wb") as sink,
        pyarrow.ipc.new_file(sink, made.schema, options=options) as out,
    ):
        out.write_batch(made)


HEADER, NOT_GZIP = b"_id,text\nd0,bees\n", "is not a .gz file"
TOO_LONG, TOO_MUCH = "longer than", "it takes more memory than a reader may have"
INPUTS: dict[str, tuple[str, Write, int, str]] = {
    "a line of 400 MB, gzip": (".jsonl.gz", repeated(GZIP, 400, b"x" * MB), 4, TOO_LONG),
    "a line of 400 MB, zstd": (".jsonl.zst", repeated(ZSTD, 400, b"x" * MB), 4, TOO_LONG),
    "a document of 400 MB": (".jsonl.gz", repeated(GZIP, 400, b" " * MB, b'{"_id": "a", "text": "'), 4, TOO_LONG),
    "only zeros": (".jsonl.zst", repeated(ZSTD, 400, bytes(MB), b""), 4, TOO_LONG),
    "a window of 2 TB": (".jsonl.zst", repeated(PLAIN, 1, b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00", b""), 2, "damaged"),
    "20,000 bad lines": (".jsonl.gz", repeated(GZIP, 20, b"x\n" * 1000), 4, "not JSON"),
    "an archive": (".tar", archive(PLAIN), 4, "invalid"),
    "an archive in gzip": (".tar.gz", archive(GZIP), 4, "invalid"),
    "gzip that is no gzip": (".jsonl.gz", repeated(PLAIN, 0, b""), 2, NOT_GZIP),
    "gzip cut off": (".jsonl.gz", repeated(PLAIN, 1, gzip.compress(GOOD * 100)[:60], b""), 2, "cut off"),
    "gzip in gzip": (".jsonl.gz", repeated(GZIP, 1, gzip.compress(GOOD), b""), 4, "invalid"),
    "a row of 24 MB": (".csv.gz", repeated(GZIP, 24, b',"\n"' * (MB // 4), HEADER + b"d1", b"\n"), 4, TOO_LONG),
    "a cell of 24 MB": (".csv.gz", repeated(GZIP, 24, b'\n""' * (MB // 3), HEADER + b'd1,"', b'"\n'), 4, TOO_LONG),
    "a value of 288 MB": (".parquet", parquet(zeros), 2, TOO_MUCH),
    "values of 16 MB": (".parquet", parquet(lambda: ["x" * (16 * MB)] * 20), 4, TOO_LONG),
    "a batch of 288 MB": (".arrow", batch, 2, TOO_MUCH),
}  # fmt: skip
"""Name -> the ending of its file, what writes it, how the build ends, and what is said."""
LONG: dict[str, tuple[str, Write]] = {
    "a line of 4 GB, gzip": (".jsonl.gz", repeated(GZIP, 4_000, b"x" * MB)),
    "40 MB of line feeds": (".jsonl.gz", repeated(GZIP, 40, b"\n" * MB)),
    "1,000,000 bad lines": (".jsonl.gz", repeated(GZIP, 1_000, b"x\n" * 1_000)),
    "1,000,000 empty members": (".jsonl.gz", repeated(PLAIN, 1_000, gzip.compress(b"") * 1_000, b"")),
}


def place_of(scratch: Path, name: str, suffix: str) -> Path:
    return scratch / name / f"input{suffix}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args()
    scratch, root = options.scratch, options.scratch / "root"
    given = ["--index-root", str(root), "--model", str(options.model), "--threads", "1"]
    for name, (suffix, *_) in (LONG if options.long else INPUTS).items():
        file = place_of(scratch, name, suffix)
        before = {path for path in scratch.rglob("*")}
        done = CliRunner().invoke(app, ["build", "--input", str(file), *given])
        files = (path for path in scratch.rglob("*") if path not in before and path.is_file())
        found = {"name": name, "exit": done.exit_code, "said": done.output, "raised": repr(done.exception)}
        found["left"] = sorted(path.relative_to(scratch).as_posix() for path in files)
        of_readers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        found["peaks_mb"] = [peak_mb(os.getpid()), of_readers]
        print(json.dumps(found), flush=True)  # noqa: T201 - a program
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
