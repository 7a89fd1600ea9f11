"""Writes and reads plain tar archives strictly: only files and directories.

The format is POSIX ustar, which every tar reads. Sizes of 8 GiB and more are written in base 256, as GNU tar does.
Python's `tarfile` is not used to read, because it accepts links, devices and headers of any size.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from glow.errors import FormatError, IntegrityError

__all__ = ["BLOCK", "Member", "Readable", "end_of_archive", "header", "padding", "read_members"]

BLOCK = 512
NAME_BYTES, PREFIX_BYTES = 100, 155
OCTAL_LIMIT = 8**11
MAX_CHUNK = 1 << 20
_FILE, _FOLDER = b"0", b"5"
_KINDS = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe"}


class Readable(Protocol):
    """Anything that bytes can be read from sequentially."""

    def read(self, size: int, /) -> bytes:
        """Reads at most `size` bytes; empty at the end."""


@dataclass(slots=True)
class Member:
    """A file or directory of an archive that is being read.

    Attributes:
        name: path in the archive, without a trailing slash.
        size_bytes: 0 for a directory.
        is_folder: whether it is a directory.
    """

    name: str
    size_bytes: int
    is_folder: bool
    _source: Readable

    def chunks(self) -> Iterator[bytes]:
        """The content; must be read to the end before the next member is requested.

        Raises:
            IntegrityError: if the archive ends early.
        """
        left = self.size_bytes
        while left:
            chunk = _exactly(self._source, min(left, MAX_CHUNK))
            left -= len(chunk)
            yield chunk
        _exactly(self._source, len(padding(self.size_bytes)))


def read_members(source: Readable) -> Iterator[Member]:
    """Yields the members of an archive in order, up to its end mark.

    Raises:
        FormatError: if it is not a tar archive, or a member is neither a file nor a directory.
        IntegrityError: if a header is damaged, or the archive ends too early.
    """
    while (block := _exactly(source, BLOCK)) != bytes(BLOCK):
        yield _member(block, source)


def header(name: str, size_bytes: int) -> bytes:
    """The header block of a file; it depends only on name and size, and has no owner or time.

    Args:
        name: path in the archive, at most 100 bytes after its last slash and 155 before.
        size_bytes: size of the content.

    Raises:
        FormatError: if the name is too long.
    """
    prefix, tail = _split(name.encode())
    octal = size_bytes < OCTAL_LIMIT
    size = b"%011o\0" % size_bytes if octal else b"\x80" + size_bytes.to_bytes(11, "big")
    fields = (
        tail.ljust(NAME_BYTES, b"\0"),
        b"0000644\0" + b"0000000\0" * 2,
        size,
        b"00000000000\0",
        b" " * 8,
        _FILE,
        bytes(100),
        b"ustar\x0000",
        bytes(64) + b"0000000\0" * 2,
        prefix.ljust(PREFIX_BYTES, b"\0"),
        bytes(12),
    )
    block = b"".join(fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def padding(size_bytes: int) -> bytes:
    """The padding after content of this size."""
    return bytes(-size_bytes % BLOCK)


def end_of_archive() -> bytes:
    """The end mark: two empty blocks."""
    return bytes(2 * BLOCK)


def _split(name: bytes) -> tuple[bytes, bytes]:
    if len(name) <= NAME_BYTES:
        return b"", name
    cut = name.rfind(b"/", 0, PREFIX_BYTES + 1)
    if cut < 1 or len(name) - cut - 1 > NAME_BYTES:
        raise FormatError(f"{name.decode(errors='replace')!r} is too long a name for an archive")
    return name[:cut], name[cut + 1 :]


def _member(block: bytes, source: Readable) -> Member:
    if block[257:262] != b"ustar" or _number(block[148:156]) != sum(block[:148]) + 8 * 32 + sum(block[156:]):
        raise FormatError(
            "this is not a tar archive, or one of its headers is damaged; export the version again"
        )
    kind = block[156:157]
    try:
        parts = [field.partition(b"\0")[0].decode() for field in (block[345:500], block[:NAME_BYTES])]
    except UnicodeDecodeError as error:
        raise FormatError(f"the archive holds a name that is not UTF-8: {block[:20]!r}") from error
    name = "/".join(part for part in parts if part)
    if kind not in (_FILE, b"\0", _FOLDER):
        kind_name = _KINDS.get(kind, f"a member of kind {kind!r}")
        raise FormatError(f"the archive holds {kind_name}, {name[:100]!r}; expected files and directories")
    size = _number(block[124:136])
    if kind == _FOLDER and size:
        raise FormatError(f"the archive holds a folder with content, {name[:100]!r}")
    return Member(name.rstrip("/") if kind == _FOLDER else name, size, kind == _FOLDER, source)


def _number(field: bytes) -> int:
    """Parses an octal number, or one in base 256."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if not all(digit in b"01234567" for digit in digits):
        raise FormatError(f"a header of the archive holds {digits!r}, expected a number in base 8")
    return int(digits or b"0", 8)


def _exactly(source: Readable, size: int) -> bytes:
    """Reads exactly this many bytes, in as many reads as needed."""
    parts = []
    while size:
        chunk = source.read(size)
        if not chunk:
            raise IntegrityError("the archive ends too early; copy or export it again")
        parts.append(chunk)
        size -= len(chunk)
    return b"".join(parts)
