"""A version travels as one archive; an archive that is anything else leaves no trace."""

import io
import json
import random
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glow.artifact import IndexRoot, verify, write_artifact
from glow.errors import FormatError, GlowError, IntegrityError, MismatchError
from glow_index_builder.versions.snapshot import export_version, import_version
from glow_index_builder.versions.tar import end_of_archive, header, padding

Run = Callable[..., click.testing.Result]
Members = list[tuple[str, bytes, bytes]]
"""Name, kind and content."""
VERSION = "20260101T000000Z-aaaa"


def make(path: Path, version: str = VERSION, **parameters: Any) -> IndexRoot:
    with write_artifact(path / version, "index") as writer:
        (writer.folder / "vectors.bin").write_bytes(random.Random(0).randbytes(3_000))  # noqa: S311 - any bytes
        (writer.folder / "model").mkdir()
        (writer.folder / "model" / "words.bin").write_bytes(b"bees")
        (writer.folder / "empty").write_bytes(b"")
        writer.parameters = parameters
    return IndexRoot(path)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> IndexRoot:
    return make(tmp_path_factory.mktemp("source") / "root")


@pytest.fixture(scope="module")
def archive(source: IndexRoot) -> bytes:
    file = io.BytesIO()
    export_version(source, VERSION, file)
    return file.getvalue()


@pytest.fixture(scope="module")
def members(archive: bytes) -> Members:
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        return [(each.name, b"0", _content(found, each)) for each in found.getmembers()]


def _content(found: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = found.extractfile(member)
    assert file is not None
    return file.read()


def packed(members: Members) -> bytes:
    return b"".join(_blocks(members)) + end_of_archive()


def _blocks(members: Members) -> Iterator[bytes]:
    for name, kind, content in members:
        block = header(name, len(content) if kind in (b"0", b"L", b"x") else 0)
        block = block[:148] + b" " * 8 + kind + block[157:]
        yield block[:148] + b"%06o\0 " % sum(block) + block[156:]
        yield content + padding(len(content))


def read(root: Path, data: bytes) -> IndexRoot:
    import_version(IndexRoot(root), io.BytesIO(data))
    return IndexRoot(root)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_version_comes_out_as_it_went_in_and_is_not_published(
    source: IndexRoot, archive: bytes, tmp_path: Path
) -> None:
    root = read(tmp_path / "new", archive)
    assert verify(root.folder(VERSION), "index").hash == source.manifest(VERSION).hash
    assert names(root.folder(VERSION)) == names(source.folder(VERSION))
    assert root.live() is None
    assert names(root.path) == sorted(
        [".lock", VERSION, *(f"{VERSION}/{name}" for name in names(root.folder(VERSION)))]
    )


def test_the_same_version_gives_the_same_bytes_manifest_first(
    source: IndexRoot, archive: bytes, tmp_path: Path
) -> None:
    again = io.BytesIO()
    export_version(read(tmp_path / "new", archive), VERSION, again)
    assert again.getvalue() == archive
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        assert found.getnames() == [
            f"{VERSION}/{name}" for name in ("manifest.json", "empty", "model/words.bin", "vectors.bin")
        ]


def test_what_is_there_already_is_left_as_it_is(archive: bytes, tmp_path: Path) -> None:
    root = read(tmp_path / "new", archive)
    assert import_version(root, io.BytesIO(archive)).was_there
    other = make(tmp_path / "other", kind="another")
    before = other.manifest(VERSION)
    with pytest.raises(MismatchError, match="another version"):
        read(other.path, archive)
    assert verify(other.folder(VERSION), "index") == before
    assert not list(other.path.glob(".2026*"))


def test_a_damaged_version_is_not_exported(tmp_path: Path) -> None:
    root = make(tmp_path / "root")
    path = root.folder(VERSION) / "vectors.bin"
    for content in (path.read_bytes()[:-1] + b"x", path.read_bytes()[:-1]):
        path.write_bytes(content)
        with pytest.raises(IntegrityError, match=r"vectors\.bin"):
            export_version(root, VERSION, io.BytesIO())
    path.unlink()
    with pytest.raises(IntegrityError, match=r"vectors\.bin"):
        export_version(root, VERSION, io.BytesIO())


def hostile() -> dict[str, Callable[[Members], Members]]:
    top = f"{VERSION}/"
    return {
        "a path up": lambda m: [*m, (f"{top}../../escaped", b"0", b"x")],
        "an absolute path": lambda m: [*m, ("/tmp/escaped", b"0", b"x")],  # noqa: S108 - must not be written
        "another folder": lambda m: [*m, ("other/file", b"0", b"x")],
        "a file beside": lambda m: [*m, ("CURRENT", b"0", VERSION.encode())],
        "a file more": lambda m: [*m, (f"{top}more", b"0", b"x")],
        "a folder more": lambda m: [*m, (f"{top}more", b"5", b"")],
        "a link": lambda m: [(f"{top}model", b"2", b""), *m],
        "a link later": lambda m: [m[0], (f"{top}model", b"2", b""), *m[1:]],
        "a hard link": lambda m: [*m[:-1], (m[-1][0], b"1", b"")],
        "a device": lambda m: [*m[:-1], (m[-1][0], b"3", b"")],
        "a pipe": lambda m: [*m[:-1], (m[-1][0], b"6", b"")],
        "a long name": lambda m: [m[0], ("././@LongLink", b"L", b"x" * 300), *m[1:]],
        "a header of its own": lambda m: [m[0], ("pax", b"x", b"30 path=../../escaped\n"), *m[1:]],
        "a file twice": lambda m: [*m, m[-1]],
        "the manifest twice": lambda m: [*m, m[0]],
        "the manifest last": lambda m: [*m[1:], m[0]],
        "no manifest": lambda m: m[1:],
        "a file less": lambda m: m[:-1],
        "a larger file": lambda m: [*m[:-1], (m[-1][0], b"0", m[-1][2] + b"x")],
        "a smaller file": lambda m: [*m[:-1], (m[-1][0], b"0", m[-1][2][1:])],
        "another content": lambda m: [*m[:-1], (m[-1][0], b"0", bytes(len(m[-1][2])))],
        "another name": lambda m: [(name.replace("aaaa", "bbbb"), kind, data) for name, kind, data in m],
        "a hidden version": lambda m: [(f".{name}", kind, data) for name, kind, data in m],
        "a damaged manifest": lambda m: [(m[0][0], b"0", m[0][2].replace(b"flat", b"falt") + b" "), *m[1:]],
        "nothing": lambda m: [],
    }


@pytest.mark.parametrize("name", hostile())
def test_an_archive_of_anything_else_is_refused_without_a_trace(
    members: Members, tmp_path: Path, name: str
) -> None:
    (tmp_path / "root").mkdir()
    with pytest.raises((FormatError, IntegrityError, GlowError)):
        read(tmp_path / "root", packed(hostile()[name](members)))
    assert names(tmp_path) in (["root", "root/.lock"], ["root"])
    assert not Path("/tmp/escaped").exists()  # noqa: S108


@pytest.mark.parametrize(
    "files", [["manifest.json"], ["a", "./a"], ["a", "a/b"], ["a//b", "a/b"], ["../a"], ["a\0b"]]
)
def test_a_manifest_that_names_what_cannot_be_is_refused(tmp_path: Path, files: list[str]) -> None:
    """Its checksum is right: whoever can make an archive can make that, too."""
    manifest = make(tmp_path / "made").manifest(VERSION)
    record = manifest.files["empty"]
    content = manifest.model_copy(update={"files": dict.fromkeys(files, record)}).to_bytes()
    others = [(f"{VERSION}/{name.partition(chr(0))[0]}", b"0", b"") for name in files]
    archive = packed([(f"{VERSION}/manifest.json", b"0", content), *others])
    (tmp_path / "root").mkdir()
    with pytest.raises(GlowError):
        read(tmp_path / "root", archive)
    assert names(tmp_path / "root") in ([], [".lock"])


CHANGES: dict[str, Callable[[Members, int, str], Members]] = {
    "rename": lambda m, at, name: [*m[:at], (name, *m[at][1:]), *m[at + 1 :]],
    "kind": lambda m, at, name: [
        *m[:at],
        (m[at][0], b"0123456\0xLSg"[len(name) % 12 :][:1], m[at][2]),
        *m[at + 1 :],
    ],
    "drop": lambda m, at, name: [*m[:at], *m[at + 1 :]],
    "twice": lambda m, at, name: [*m, m[at]],
    "content": lambda m, at, name: [*m[:at], (*m[at][:2], m[at][2] + name.encode()), *m[at + 1 :]],
    "last": lambda m, at, name: [*m[:at], *m[at + 1 :], m[at]],
}
STRANGE = [
    "../x",
    "/x",
    "x",
    "model",
    "CURRENT",
    f"{VERSION}/vectors.bin",
    f"{VERSION}/../x",
    f"{VERSION}/./empty",
    "",
]
FAST = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


def require_whole_or_nothing(folder: Path, data: bytes) -> None:
    try:
        root = read(folder / "root", data)
    except GlowError:
        assert names(folder) in ([], ["root", "root/.lock"])
    else:
        verify(root.folder(VERSION), "index")
        assert root.versions() == [VERSION]
        assert [path.name for path in folder.iterdir()] == ["root"]


@FAST
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(CHANGES)), st.integers(0, 3), st.sampled_from(STRANGE)), max_size=3
    )
)
def test_whatever_an_archive_holds_it_is_the_version_or_refused(
    members: Members, tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int, str]]
) -> None:
    found = list(members)
    for change, place, name in changes:
        found = CHANGES[change](found, place % len(found), name) if found else []
    require_whole_or_nothing(tmp_path_factory.mktemp("root"), packed(found))


@FAST
@given(data=st.data())
def test_whichever_bytes_are_changed_or_missing_it_is_the_version_or_refused(
    archive: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    changed = bytearray(archive)
    for place, bit in data.draw(
        st.lists(st.tuples(st.integers(0, len(archive) - 1), st.integers(0, 7)), max_size=3)
    ):
        changed[place] ^= 1 << bit
    cut = data.draw(st.integers(0, len(archive)) | st.just(len(archive)))
    require_whole_or_nothing(tmp_path_factory.mktemp("root"), bytes(changed[:cut]))


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz", ".tar.zst"])
def test_the_commands_carry_a_version_from_root_to_root(
    run: Run, source: IndexRoot, tmp_path: Path, suffix: str
) -> None:
    if suffix == ".tar.zst":
        pytest.importorskip("backports.zstd")
    file, target = tmp_path / f"v{suffix}", tmp_path / "target"
    for _ in range(2):
        done = run("export", "--index-root", source.path, VERSION, "--to", file)
        assert done.exit_code == 0, done.stderr
    first = file.read_bytes()
    run("export", "--index-root", source.path, VERSION, "--to", file)
    assert file.read_bytes() == first
    done = run("import", "--index-root", target, file, "--publish", "--json", tmp_path / "r.json")
    assert (done.exit_code, done.stdout) == (0, f"imported {VERSION}\npublished {VERSION}\n")
    assert json.loads((tmp_path / "r.json").read_text()) == {
        "status": "imported",
        "version": VERSION,
        "was_there": False,
        "published": True,
    }
    assert IndexRoot(target).current() == VERSION
    assert run("import", "--index-root", target, file).stdout == f"{VERSION} was there already\n"
    for cut in (0, 1, 20, len(first) // 2, len(first) * 3 // 4):
        file.write_bytes(first[:cut])
        done = run("import", "--index-root", tmp_path / "cut", file)
        assert done.exit_code in (2, 3), (cut, done.stderr, done.stdout)
        assert not IndexRoot(tmp_path / "cut").versions()
    assert {path.name for path in tmp_path.iterdir()} - {"cut"} == {"r.json", "target", f"v{suffix}"}


def test_standard_streams_will_do(run: Run, source: IndexRoot, archive: bytes, tmp_path: Path) -> None:
    done = run("export", "--index-root", source.path, VERSION, "--to", "-")
    assert done.stdout_bytes == archive
    done = run("import", "--index-root", tmp_path / "target", "-", stdin=archive)
    assert (done.exit_code, IndexRoot(tmp_path / "target").versions()) == (0, [VERSION])


def test_names_that_say_no_format_and_files_that_are_not_there_are_refused(
    run: Run, source: IndexRoot, tmp_path: Path
) -> None:
    assert run("export", "--index-root", source.path, VERSION, "--to", tmp_path / "v.zip").exit_code == 2
    assert run("export", "--index-root", source.path, "v9", "--to", tmp_path / "v.tar").exit_code == 3
    done = run("export", "--index-root", source.path, VERSION, "--to", tmp_path / "no" / "v.tar")
    assert (done.exit_code, "cannot write" in done.stderr) == (4, True)
    assert run("import", "--index-root", tmp_path / "x", tmp_path / "v.tar").exit_code == 2
    assert not list(tmp_path.iterdir())


def test_two_imports_at_once_give_one_version(archive: bytes, tmp_path: Path) -> None:
    """Each through a root of its own, so that the lock on the disk decides."""
    found: list[bool] = []
    barrier = threading.Barrier(3)

    def load() -> None:
        barrier.wait()
        found.append(import_version(IndexRoot(tmp_path / "root"), io.BytesIO(archive)).was_there)

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False, True, True]
    root = IndexRoot(tmp_path / "root")
    verify(root.folder(VERSION), "index")
    assert sorted(path.name for path in root.path.iterdir()) == [".lock", VERSION]
