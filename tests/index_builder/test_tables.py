"""CSV and TSV as documents."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glow.errors import InputError
from glow_index_builder.input.source import Source

Run = Callable[..., Any]
TABLE = '_id,title,text,price\nd1,"Bees, honey","They said ""home""\nand flew",3\nd2,Ants,,\n'


def lines(path: Path, most: int = 1_000) -> list[tuple[int, bytes]]:
    return [(line.number, line.data) for line in Source(path.name, path).lines(most)]


ROWS = [
    (2, b'{"_id": "d1", "title": "Bees, honey", "text": "They said \\"home\\"\\nand flew", "price": "3"}'),
    (3, b'{"_id": "d2", "title": "Ants"}'),
]


@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_rows_are_objects_with_the_names_of_the_first_row(tmp_path: Path, start: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes((start + TABLE).encode())
    assert lines(path) == ROWS
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert lines(packed) == ROWS


def test_tabs_separate_the_values_of_a_tsv(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("_id\ttext\nd1\tbees, and ants\n", encoding="utf-8")
    assert lines(path) == [(2, b'{"_id": "d1", "text": "bees, and ants"}')]


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
        lines(path)


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
    assert "1 lines rejected" in done.stdout or "1 line" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("a.jsonl", '{"key": "d1", "text": "bees"}\n', "--rename-field KEY=_id"),
        ("a.txt", "bees\nants\n", "CSV and TSV"),
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
