"""Archives that every tar reads, and a reader that takes files and directories."""

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import FormatError, GlowError, IntegrityError
from glow_index_builder.versions.tar import BLOCK, end_of_archive, header, padding, read_members

FILES = {"v/manifest.json": b"{}", "v/empty": b"", "v/model/words.bin": bytes(range(256)) * 5}


def archive(files: dict[str, bytes]) -> bytes:
    parts = [header(name, len(data)) + data + padding(len(data)) for name, data in files.items()]
    return b"".join(parts) + end_of_archive()


def read(data: bytes) -> dict[str, bytes | None]:
    members = read_members(io.BytesIO(data))
    return {each.name: None if each.is_folder else b"".join(each.chunks()) for each in members}


def test_what_is_written_is_read_here_and_by_tarfile() -> None:
    data = archive(FILES)
    assert read(data) == FILES
    with tarfile.open(fileobj=io.BytesIO(data)) as found:
        members = found.getmembers()
        contents = {}
        for member in members:
            file = found.extractfile(member)
            assert file is not None
            contents[member.name] = file.read()
    assert contents == FILES
    assert {(each.mtime, each.uid, each.gid, each.mode) for each in members} == {(0, 0, 0, 0o644)}


def test_what_tarfile_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "v" / "model").mkdir(parents=True)
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.USTAR_FORMAT) as made:
        made.add(tmp_path / "v", "v")
    assert read((tmp_path / "x.tar").read_bytes()) == {**FILES, "v": None, "v/model": None}


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 8**11 - 1, 8**11, 2**60])
def test_sizes_of_any_magnitude_are_understood_by_tarfile(size: int) -> None:
    found = tarfile.TarInfo.frombuf(header("v/file", size), "utf-8", "strict")
    assert (found.name, found.size) == ("v/file", size)
    assert next(read_members(io.BytesIO(header("v/file", size)))).size_bytes == size


def test_long_names_are_split_as_the_format_says() -> None:
    name = f"{'v' * 120}/model/{'w' * 90}"
    assert tarfile.TarInfo.frombuf(header(name, 3), "utf-8", "strict").name == name
    assert list(read(archive({name: b"abc"}))) == [name]
    with pytest.raises(FormatError, match="too long"):
        header("v/" + "w" * 101, 1)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.XHDTYPE, "kind b'x'"),
        (tarfile.GNUTYPE_LONGNAME, "kind b'L'"),
        (tarfile.GNUTYPE_SPARSE, "kind b'S'"),
    ],
)
def test_anything_but_files_and_folders_is_refused(kind: bytes, said: str) -> None:
    info = tarfile.TarInfo("v/x")
    info.type, info.linkname = kind, "/etc/passwd"
    data = info.tobuf(tarfile.USTAR_FORMAT) + end_of_archive()
    with pytest.raises(FormatError, match=said):
        read(data)


@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, 3 * BLOCK, 5 * BLOCK])
def test_an_archive_that_ends_too_early_is_refused(length: int) -> None:
    with pytest.raises(IntegrityError, match="ends too early"):
        read(archive(FILES)[:length])


@given(position=st.integers(0, BLOCK - 1), bit=st.integers(0, 7))
def test_one_changed_bit_of_a_header_is_noticed(position: int, bit: int) -> None:
    data = bytearray(archive(FILES))
    data[position] ^= 1 << bit
    try:
        assert (
            read(bytes(data)) == FILES
        )  # a bit that says nothing, such as white space in the checksum's own field
    except GlowError:
        return
    assert 148 <= position < 156


@given(st.binary(max_size=2000))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read(data)
    except GlowError:
        return
