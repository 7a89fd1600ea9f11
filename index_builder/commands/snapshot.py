"""Commands that copy a version to another index root: export and import."""

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from glow.artifact import IndexRoot
from glow.commands import IndexRootOptions, JsonOptions, command, option, say, write_report
from glow.errors import BuildError, ConfigError, InputError, IntegrityError
from glow_index_builder.input import ZSTD, decompressed, format_of, require_package
from glow_index_builder.objects import RemoteFile, is_remote, write_remote
from glow_index_builder.versions import export_version, import_version, publish_judged

__all__ = ["export_command", "import_command"]

STREAM = "-"
SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst")
GZIP_LEVEL = 6
START_BYTES = 4


class ExportOptions(JsonOptions, IndexRootOptions):
    """Which version to write, and where."""

    version: str | None = option(
        None, "Version name; default: the live one.", is_argument=True, metavar="[VERSION]"
    )
    to: str = option(
        ...,
        "FILE.tar, .tar.gz or .tar.zst, here or at s3://, gs:// or az://; or - for standard output.",
        metavar="FILE",
    )


class ImportOptions(JsonOptions, IndexRootOptions):
    """Which archive to read, and whether to publish what it holds."""

    source: str = option(
        ...,
        "What `glow export-index` wrote, here or at s3://, gs://, az:// or https://; or - for standard input.",
        is_argument=True,
        metavar="FILE",
    )
    publish: bool = option(False, "Make the version live.")
    force: bool = option(False, "Publish even if the gate refuses; the manifest records who did.")


@command(ExportOptions)
def export_command(options: ExportOptions) -> None:
    """Writes a version (default: the live one) as one archive."""
    root = IndexRoot(options.index_root)
    version = options.version or root.current()
    root.manifest(version)
    with _target(options.to) as target:
        manifest = export_version(root, version, target)
    write_report(
        options.json_file,
        {"status": "exported", "version": version, "hash": manifest.hash, "to": options.to},
    )
    if options.to != STREAM:
        say(f"exported {version} to {options.to}")


@command(ImportOptions)
def import_command(options: ImportOptions) -> None:
    """Adds the version of an archive to an index root."""
    root = IndexRoot(options.index_root)
    with _source(options.source) as archive:
        imported = import_version(root, archive)
    version = imported.manifest.name
    if options.publish:
        publish_judged(root, version, force=options.force)
    values = {"version": version, "was_there": imported.was_there, "published": options.publish}
    write_report(options.json_file, {"status": "imported", **values})
    say(f"{version} was there already" if imported.was_there else f"imported {version}")
    if options.publish:
        say(f"published {version}")


@contextmanager
def _target(to: str) -> Iterator[BinaryIO]:
    """Opens the archive to write; a file gets its final name when it is complete."""
    if to == STREAM:
        yield cast(BinaryIO, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    if not to.endswith(SUFFIXES):
        raise ConfigError(f"--to {to}: expected a name that ends in {', '.join(SUFFIXES)}, or -")
    if is_remote(to):
        with write_remote(to) as remote, _compressed(remote, to) as packed:
            yield packed
        return
    path = Path(to)
    partial = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with partial.open("wb") as file:
            with _compressed(file, path.name) as packed:
                yield packed
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise BuildError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _compressed(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Compresses as the name says, without a timestamp, so that equal versions give equal bytes."""
    if name.endswith(".zst"):
        zstd = require_package(ZSTD, name)
        with zstd.ZstdFile(file, "wb", options={zstd.CompressionParameter.checksum_flag: 1}) as packed:
            yield packed
    elif name.endswith("gz"):
        with gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) as packed:
            yield cast(BinaryIO, packed)
    else:
        yield file


@contextmanager
def _source(name: str) -> Iterator["_Archive"]:
    """Opens an archive and decompresses it; the first bytes tell the format."""
    if name == STREAM:
        yield _Archive(sys.stdin.buffer, "standard input")
        return
    try:
        file = RemoteFile(name).open() if is_remote(name) else Path(name).open("rb")
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from error
    with file:
        yield _Archive(file, Path(name).name)


class _Archive:
    """The bytes of an archive; a decompression error is reported as a damaged archive, not as a disk error."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name = name
        start = self._guarded(file.read, START_BYTES)
        kind = format_of(start, "" if name.endswith(".tgz") else name)
        whole = cast(BinaryIO, io.BufferedReader(_After(start, file)))
        self._file = decompressed(whole, kind, name)

    def read(self, size: int, /) -> bytes:
        """Reads at most `size` bytes; empty at the end."""
        return self._guarded(self._file.read, size)

    def _guarded(self, read: Any, size: int) -> bytes:
        try:
            data: bytes = read(size)
        except (EOFError, OSError, zlib.error) as error:
            raise IntegrityError(
                f"{self._name} is damaged or cut off ({error}); copy or export it again"
            ) from error
        return data


class _After(io.RawIOBase):
    """A stream whose first bytes were already read, from its start; a pipe cannot seek back."""

    def __init__(self, start: bytes, file: BinaryIO) -> None:
        self._start = start
        self._file = file

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer."""
        data = self._start[: len(buffer)] or self._file.read(len(buffer))
        self._start = self._start[len(data) :]
        buffer[: len(data)] = data
        return len(data)
