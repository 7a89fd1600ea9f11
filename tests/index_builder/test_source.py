"""Every form of input is read line by line: plain, compressed, CSV and TSV, Parquet and Arrow."""

import gzip
import io
import json
import os
import sys
import tracemalloc
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import DependencyError, InputError
from glow_index_builder.input.lines import Line
from glow_index_builder.input.source import Source, open_sources


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
    for name in ("b.jsonl", "a.jsonl", "notes.log"):
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


def compressed_lines(path: Path, max_line_bytes: int = 100) -> list[Line]:
    return list(Source(path.name, path).lines(max_line_bytes))


def packed_frames(data: bytes, size: int = 4096) -> bytes:
    """Frames of `size` bytes each, as parallel compressors write them, with an empty and a skippable one between."""
    compress = partial(zstd.compress, options={zstd.CompressionParameter.checksum_flag: 1})
    frames = [compress(data[start : start + size]) for start in range(0, len(data), size)]
    return (b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + compress(b"")).join(frames)


COMPRESS = {".gz": gzip.compress, ".zst": packed_frames}
NUMBERED = b"".join(b'{"_id": "%d"}\n' % number for number in range(2000))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_lines_are_the_plain_ones(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "plain.jsonl").write_bytes(NUMBERED)
    (tmp_path / f"packed.jsonl{suffix}").write_bytes(COMPRESS[suffix](NUMBERED))
    packed = compressed_lines(tmp_path / f"packed.jsonl{suffix}", 100)
    assert packed == compressed_lines(tmp_path / "plain.jsonl", 100)
    assert len(packed) == 2000


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_that_is_cut_off_anywhere_is_refused_with_the_place(
    tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"cut.jsonl{suffix}"
    whole = COMPRESS[suffix](NUMBERED)
    for size in (5, 12, len(whole) // 2, len(whole) - 5, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(InputError, match=rf"cut\.jsonl{suffix} is damaged or cut off after line \d+: "):
            compressed_lines(file, 100)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_with_a_changed_byte_is_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"bad.jsonl{suffix}"
    damaged = bytearray(COMPRESS[suffix](NUMBERED))
    damaged[len(damaged) // 2] ^= 0xFF
    file.write_bytes(damaged)
    with pytest.raises(InputError, match=r"is damaged or cut off after line \d+: .+; fetch it again"):
        compressed_lines(file, 100)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_bomb_of_one_line_takes_little_memory(tmp_path: Path, suffix: str) -> None:
    data = b"x" * (64 << 20)
    packed = gzip.compress(data) if suffix == ".gz" else zstd.compress(data)
    (tmp_path / f"bomb{suffix}").write_bytes(packed)
    del data
    tracemalloc.start()
    try:
        assert [line.is_too_long for line in compressed_lines(tmp_path / f"bomb{suffix}", 1000)] == [True]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_standard_input_may_be_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    for pack in COMPRESS.values():
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(pack(NUMBERED))))
        (source,) = open_sources("-")
        assert len(list(source.lines(100))) == 2000


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    for suffix in (".gz", ".zst", ".parquet"):
        file = tmp_path / f"x{suffix}"
        file.write_bytes(NUMBERED)
        with pytest.raises(
            InputError, match=rf"x{suffix} is not a {suffix} file: it begins with 7b 22 5f 69"
        ):
            open_sources(str(file))


def test_a_folder_may_mix_formats_and_beir_s_corpus_may_be_compressed(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(NUMBERED))
    (tmp_path / "a.jsonl").write_bytes(NUMBERED)
    (tmp_path / "c.jsonl.zst").write_bytes(packed_frames(NUMBERED))
    found = open_sources(str(tmp_path))
    assert [source.name for source in found] == ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst"]
    assert [source.size_bytes for source in found] == [len(NUMBERED), None, None]
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress(NUMBERED))
    assert [source.name for source in open_sources(str(tmp_path))] == ["corpus.jsonl.gz"]


def test_a_format_whose_package_is_missing_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.jsonl.zst").write_bytes(packed_frames(NUMBERED))
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with pytest.raises(
        DependencyError, match=r"x\.jsonl\.zst needs the package backports\.zstd.*extra `formats`"
    ):
        open_sources(str(tmp_path / "x.jsonl.zst"))


Run = Callable[..., Any]
TABLE = '_id,title,text,price\nd1,"Bees, honey","They said ""home""\nand flew",3\nd2,Ants,,\n'


def tables_lines(path: Path, most: int = 1_000) -> list[tuple[int, bytes]]:
    return [(line.number, line.data) for line in Source(path.name, path).lines(most)]


ROWS = [
    (2, b'{"_id": "d1", "title": "Bees, honey", "text": "They said \\"home\\"\\nand flew", "price": "3"}'),
    (3, b'{"_id": "d2", "title": "Ants"}'),
]


@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_rows_are_objects_with_the_names_of_the_first_row(tmp_path: Path, start: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes((start + TABLE).encode())
    assert tables_lines(path) == ROWS
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert tables_lines(packed) == ROWS


def test_tabs_separate_the_values_of_a_tsv(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("_id\ttext\nd1\tbees, and ants\n", encoding="utf-8")
    assert tables_lines(path) == [(2, b'{"_id": "d1", "text": "bees, and ants"}')]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "expected distinct column names"),
        (b"_id,_id\n1,2\n", "expected distinct column names"),
        (b"_id,\xff\nd1,a\n", "not UTF-8 in its first row"),
        (b"_id," + b"x" * 2_000 + b"\n", "first row, .*too long"),
        (b'_id,text\nd1,"open\n', "not a table"),
        (b'_id,text\nd1,"open\n' + b"d2,a\n" * 1_000, "row 2: a quote is not closed"),
        (b'_id,text\nd1,"open\n' + b'd2,"a"\n' * 1_000, "not a table"),
        (b'_id,text\nd1,"' + b"x" * 1_500 + b'"x"\n', "row 2: a quote is missing"),
    ],
)
def test_an_invalid_table_is_refused_with_an_explanation(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason):
        tables_lines(path)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (b"d1,\xff\n", "not UTF-8"),
        (b"d1," + b"x" * 2_000 + b"\n", ""),
        (b'd1,"' + b"x" * 990 + b"\n" + b"y" * 990 + b'\n""z"\n', ""),
        (b'd1,"' + b'\n""' * 50_000 + b'"\n', ""),
    ],
)
def test_a_bad_cell_costs_its_row(tmp_path: Path, row: bytes, fault: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"_id,text\n" + row + b'd2,"ants\nand bees"\n')
    bad, good = Source(path.name, path).lines(1_000)
    assert (bad.number, bad.is_too_long, bad.read_bytes) == (2, not fault, len(row))
    assert bad.fault.startswith(fault) and bad.data.startswith(b"d1,") and len(bad.data) <= 1_001
    assert (good.number, good.data) == (3, b'{"_id": "d2", "text": "ants\\nand bees"}')


def test_a_row_of_another_length_is_a_reject_and_the_rest_is_built(build: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("_id,text\nd1,bees\nd2,bees,and more\nd3,ants\n", encoding="utf-8")
    done = build(path, "--max-reject-ratio", 0.5)
    assert done.exit_code == 0, done.stderr
    assert "1 line rejected" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("a.log", "bees\nants\n", "CSV and TSV"),
        (
            "a.jsonl",
            '{"kind": 1, "name": "A bee", "sku": "1", "text": "bees"}\n{"kind": 1, "name": "An ant", "sku": 2, "text": "bees"}',
            "its keys sku and name would do: --id-field sku",
        ),
        ("b.jsonl", '{"kind": 1, "text": "a"}\n{"kind": 1, "text": "a"}\n', "--generate-ids takes a hash"),
    ],
)
def test_a_build_without_documents_says_what_to_do(
    build: Run, tmp_path: Path, name: str, content: str, hint: str
) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    done = build(path)
    assert done.exit_code == 4
    assert hint in done.stderr


def parquet_lines(path: Path, max_line_bytes: int = 100) -> list[Line]:
    return list(Source(path.name, path).lines(max_line_bytes))


def test_rows_of_parquet_are_lines(tmp_path: Path) -> None:
    rows = [
        {
            "_id": f"d{number}",
            "title": "bees",
            "anchor": ["a", "b"],
            "day": date(2024, 1, 2),
            "price": Decimal("1.50"),
            "size": float("nan"),
            "raw": "ü".encode(),
            "place": {"city": "Ulm"},
        }
        for number in range(300)
    ]
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=100)
    found = parquet_lines(path, 200)
    assert [line.number for line in found] == list(range(1, 301))
    assert json.loads(found[299].data) == {
        "_id": "d299",
        "title": "bees",
        "anchor": ["a", "b"],
        "day": "2024-01-02",
        "price": 1.5,
        "size": None,
        "raw": "ü",
        "place": {"city": "Ulm"},
    }
    assert all(line.is_too_long and len(line.data) == 21 for line in parquet_lines(path, 20))


def test_damaged_parquet_is_refused_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pyarrow.table({"_id": [str(number) for number in range(1000)]})
    pyarrow.parquet.write_table(table, path, row_group_size=500, compression="zstd", use_dictionary=False)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(InputError, match=r"rows\.parquet is damaged or not a Parquet file, in its footer: "):
        parquet_lines(path, 100)
    damaged = bytearray(whole)
    damaged[60:200] = bytes(140)
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="in row group 0: "):
        parquet_lines(path, 100)
