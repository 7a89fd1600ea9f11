"""Input is read line by line in bounded memory, from a file, a folder or standard input."""

import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import InputError
from glow_index_builder.input.source import Line, Source, open_sources


def lines(path: Path, max_line_bytes: int = 10) -> list[Line]:
    return list(Source(path.name, path).lines(max_line_bytes))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "input.jsonl"


def test_lines_are_counted_from_one_and_blank_ones_are_passed_over(file: Path) -> None:
    file.write_bytes(b"one\n\n  \t\ntwo\r\n\r\nthree")
    assert [(line.number, line.data) for line in lines(file)] == [(1, b"one"), (4, b"two"), (6, b"three")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_of_just_the_limit_is_read_and_one_more_byte_is_too_long(file: Path, end: bytes) -> None:
    file.write_bytes(b"x" * 10 + end)
    assert [(line.data, line.is_too_long) for line in lines(file)] == [(b"x" * 10, False)]
    for extra in (1, 2, 3, 100_000):
        file.write_bytes(b"x" * (10 + extra) + end)
        (line,) = lines(file)
        assert line.is_too_long
        assert line.data.startswith(b"x" * 10)


def test_the_line_after_a_long_one_is_whole(file: Path) -> None:
    file.write_bytes(b"x" * 300_000 + b"\nnext\n" + b"y" * 11 + b"\nlast\n")
    found = [(line.number, line.data, line.is_too_long) for line in lines(file)]
    assert [(number, data) for number, data, is_too_long in found if not is_too_long] == [
        (2, b"next"),
        (4, b"last"),
    ]


def test_a_long_line_takes_no_memory(file: Path) -> None:
    with file.open("wb") as out:
        for _ in range(30):
            out.write(b"x" * (1 << 20))
    tracemalloc.start()
    try:
        assert [line.is_too_long for line in lines(file, 1000)] == [True]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(
    content=st.lists(
        st.sampled_from([b"\n", b"\r\n", b"\r", b" ", b"abc", b"0123456789", b"\x00"]), max_size=30
    )
)
def test_every_byte_of_a_file_belongs_to_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes]
) -> None:
    file = tmp_path_factory.mktemp("lines") / "input"
    file.write_bytes(b"".join(content))
    found = lines(file)
    expected = [line.strip(b"\r") for line in b"".join(content).split(b"\n")]
    kept = [(number, data) for number, data in enumerate(expected, start=1) if data.strip()]
    assert [line.number for line in found] == [number for number, _ in kept]
    for line, (_, data) in zip(found, kept, strict=True):
        if not line.is_too_long:
            assert line.data.strip(b"\r") == data
    assert sum(line.read_bytes for line in found) <= file.stat().st_size


def test_a_beir_folder_is_its_corpus(tmp_path: Path) -> None:
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / name).write_text("{}\n")
    assert [source.name for source in open_sources(str(tmp_path))] == ["corpus.jsonl"]


def test_another_folder_is_all_its_files_by_name(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "notes.txt"):
        (tmp_path / name).write_text("{}\n")
    assert [source.name for source in open_sources(str(tmp_path))] == ["a.jsonl", "b.jsonl"]


def test_standard_input_and_a_pipe_have_no_size(tmp_path: Path) -> None:
    (source,) = open_sources("-")
    assert (source.name, source.size_bytes) == ("stdin", None)
    os.mkfifo(tmp_path / "pipe")
    assert open_sources(str(tmp_path / "pipe"))[0].size_bytes is None


def test_input_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no input at .*missing"):
        open_sources(str(tmp_path / "missing"))
    with pytest.raises(InputError, match=r"neither corpus\.jsonl nor"):
        open_sources(str(tmp_path))


def test_a_file_that_goes_away_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read gone\.jsonl: No such file"):
        list(Source("gone.jsonl", tmp_path / "gone.jsonl").lines(10))
