"""Tables: CSV as spreadsheets write it, and Parquet; separators, encodings, rows of another length, types of columns."""

import codecs
import gzip
import json
import os
import threading
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet
import pytest
from starlette.testclient import TestClient

from glow.errors import ConfigError, InputError
from glow.index.stored_fields import STORED_FIELDS
from glow_index_builder.input.tables import typed_value
from glow_index_builder.options import BuildOptions
from glow_service.app import create_app
from glow_service.settings import Settings
from tests.index_builder.conftest import Live, Run, lines_of, records_of, report_of
from tests.until import until

SHOP = (
    "id;title;price;stock;active;added;zip;version\r\n"
    "1;Café chair;12,50;3;TRUE;2024-01-02;00135;1.2\r\n"
    "2;Table;9;;false;2024-05-06T10:00:00Z;10115;1,3\r\n"
    ";;;;;;;\r\n"
)
TABLE = '_id,title,text,price\nd1,"Bees, honey","They said ""home""\nand flew",3\nd2,Ants,,\n'
ROWS = [
    (2, b'{"_id": "d1", "title": "Bees, honey", "text": "They said \\"home\\"\\nand flew", "price": "3"}'),
    (3, b'{"_id": "d2", "title": "Ants"}'),
]


@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_rows_are_objects_with_the_names_of_the_first_row(tmp_path: Path, start: str) -> None:
    data = (start + TABLE).encode()
    for name, content in (("a.csv", data), ("a.csv.gz", gzip.compress(data))):
        (tmp_path / name).write_bytes(content)
        assert [(line.number, line.data) for line in lines_of(tmp_path / name)] == ROWS


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
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=reason):
        lines_of(tmp_path / "a.csv")


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
    bad, good = lines_of(path)
    assert (bad.number, bad.is_too_long, bad.read_bytes) == (2, not fault, len(row))
    assert bad.fault.startswith(fault) and bad.data.startswith(b"d1,") and len(bad.data) <= 1_001
    assert (good.number, good.data) == (3, b'{"_id": "d2", "text": "ants\\nand bees"}')


@pytest.mark.parametrize(
    "content",
    [
        b"id,text\r\n1,caf\xc3\xa9\r\n",
        b"id;text;;\n1;caf\xc3\xa9;;\n;;;\n",
        b"id\ttext\n1\tcaf\xc3\xa9\n\n",
        b"id|text\r1|caf\xc3\xa9\r",
        b"sep=:\r\nid:text\r\n1:caf\xc3\xa9\r\n",
        b'"id",text\n1,caf\xc3\xa9\n',
        codecs.BOM_UTF8 + b"sep=;\nid;text\n1;caf\xc3\xa9\n",
        codecs.BOM_UTF16_LE + "id\ttext\r\n1\tcafé\r\n".encode("utf-16-le"),
        codecs.BOM_UTF16_BE + "id;text\n1;café".encode("utf-16-be"),
    ],
)
def test_separator_and_encoding_are_found(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ("a.tsv" if content.startswith(b"id\t") else "a.csv")
    path.write_bytes(content)
    assert records_of(path) == [{"id": "1", "text": "café"}]


def test_quotes_hide_separators_and_a_given_one_decides(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'id,"a;b;c"\n1,2\n')
    assert records_of(tmp_path / "a.csv") == [{"id": "1", "a;b;c": "2"}]
    (tmp_path / "a.txt").write_bytes(b"id,a;b,c\n1,2;3,4\n")
    assert records_of(tmp_path / "a.txt", delimiter=";") == [{"id,a": "1,2", "b,c": "3,4"}]


def test_bytes_outside_of_the_encoding_cost_their_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,text\n1,caf\xe9\n2,\x81\n3,x\n")
    first, second, third = records_of(path, encoding="windows-1252")
    assert (first["text"], second, third["text"]) == ("café", "not windows-1252", "x")
    cut = codecs.BOM_UTF16_LE + "id,text\n1,a\n2,\ud800\n3,b".encode("utf-16-le", "surrogatepass")
    path.write_bytes(cut + b"!")
    assert records_of(path) == [{"id": "1", "text": "a"}, "not UTF-8", "not UTF-8"]


def test_a_file_of_another_encoding_or_shape_is_told_in_its_terms(build: Run, tmp_path: Path) -> None:
    cases = {
        "a.csv": (b"id,text\n1,caf\xe9\n", "looks like windows-1252: --encoding windows-1252"),
        "b.csv": (b"id,t\xe9xt\n1,a\n", "looks like windows-1252: --encoding windows-1252"),
        "c.jsonl": (b'{"id": 1, "text": "caf\xe9"}\n', "looks like windows-1252"),
        "d.csv": ("id,text\n1,пчёлы живут\n".encode("koi8-r"), "--encoding NAME"),
        "e.csv": (b"id,text,price\n1,a\n", "2 cells, the header has 3 columns: id, text, price"),
    }
    for name, (content, said) in cases.items():
        (tmp_path / name).write_bytes(content)
        done = build(tmp_path / name)
        assert done.exit_code != 0 and said in done.stderr, done.stderr


def test_columns_have_types_which_filters_and_upserts_use(
    build: Run, run: Run, tmp_path: Path, live: Live, output: Path, toy_model: Path
) -> None:
    path = tmp_path / "shop.csv"
    path.write_bytes(SHOP.encode("windows-1252"))
    done = build(path, "--encoding", "windows-1252")
    assert done.exit_code == 0, done.output
    assert "ids from `id`" in done.stdout
    assert "columns: price number, stock number, active boolean, added date\n" in done.stdout
    index = live()
    first, second = index[STORED_FIELDS].scan()
    assert first.fields["title"] == ("Café chair",)
    typed = {"price": 12.5, "stock": 3, "active": True, "added": "2024-01-02"}
    assert first.metadata == {**typed, "zip": "00135", "version": "1.2"}
    assert (second.metadata["price"], "stock" in second.metadata) == (9, False)
    assert index.manifest.parameters["field_types"]["price"] == "number"
    assert report_of(output / index.manifest.name)["options"]["field_types"]["added"] == "date"
    wanted = {"price": {"lt": 13}, "added": {"gte": "2024"}}
    asked = {"query": "chair", "match": "any", "filter": wanted, "sort": "price"}
    with TestClient(create_app(Settings(index_root=output), on_failure=lambda: None)) as client:
        until(lambda: client.get("/readyz").status_code == 200)
        assert [hit["id"] for hit in client.post("/search", json=asked).json()["hits"]] == ["2", "1"]
    path.write_text("id,title,price,active\n3,Stool,7.5,true\n4,Lamp,cheap,true\n")
    upsert = ("upsert", "--input", path, "--index-root", output, "--model", toy_model)
    done = run(*upsert, "--max-reject-ratio", "0.5")
    assert done.exit_code == 0 and "1 new" in done.stdout, done.output
    rejects = next(output.glob("rejects-*.jsonl")).read_text()
    assert "column 'price' is number, found 'cheap'" in rejects
    path.write_text("id,title,price,active\n5,Desk,9.5,true\n")
    assert run(*upsert, "--field-type", "active=string").exit_code == 0
    assert live()[STORED_FIELDS].get("5").metadata == {"price": 9.5, "active": "true"}


def test_types_are_merged_over_tables_and_given_ones_decide(build: Run, tmp_path: Path, live: Live) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "a.csv").write_text("id,text,price,size,code\n1,a,1.5,1,007\n")
    (folder / "b.csv").write_text("id;text;price;size;code\n2;b;1,5;large;8\n")
    assert build(folder, "--field-type", "code=string").exit_code == 0
    first, second = live()[STORED_FIELDS].scan()
    assert first.metadata == {"price": 1.5, "size": "1", "code": "007"}
    assert second.metadata == {"price": 1.5, "size": "large", "code": "8"}
    for flag, said in (
        ("prise=number", "no table has a value in a column of this name"),
        ("text=number", "stays a string"),
        ("price=dear", "for example price=number"),
    ):
        done = build(folder, "--field-type", flag)
        assert done.exit_code == 2 and said in done.stderr


def test_a_pipe_is_copied_to_be_read_twice(build: Run, tmp_path: Path, live: Live) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("id,text,n\n1,a,5\n",))
    writer.start()
    assert build(pipe).exit_code == 0
    writer.join()
    assert live()[STORED_FIELDS].get("1").metadata == {"n": 5}
    assert build("-", "--delimiter", ";", stdin=b"id;text;n\n2;a;6\n").exit_code == 0
    assert live()[STORED_FIELDS].get("2").metadata == {"n": 6}


@pytest.mark.parametrize(
    "bad", [{"delimiter": "ab"}, {"delimiter": '"'}, {"encoding": "no-such"}, {"encoding": "hex"}]
)
def test_options_that_cannot_be_meant_are_refused(bad: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        BuildOptions(source="x", index_root=tmp_path, **bad)


@pytest.mark.parametrize(
    ("cell", "has_commas", "value"),
    [
        ("1.249,00", True, 1249.0),
        ("1.249", True, 1.249),
        ("1.249.000,5", True, 1_249_000.5),
        ("12.49,00", True, None),
        ("1,249.00", False, 1249.0),
        ("1,249", False, None),
        ("0012", False, None),
    ],
)
def test_thousands_are_marked_before_decimals_only(cell: str, has_commas: bool, value: float | None) -> None:
    assert typed_value(cell, "number", has_commas) == value


def test_rows_of_parquet_are_lines(tmp_path: Path) -> None:
    row = {"title": "bees", "anchor": ["a", "b"], "place": {"city": "Ulm"}}
    odd = {"day": date(2024, 1, 2), "price": Decimal("1.50"), "size": float("nan"), "raw": "ü".encode()}
    rows = [{"_id": f"d{number}", **row, **odd} for number in range(300)]
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=100)
    found = lines_of(path, 200)
    assert [line.number for line in found] == list(range(1, 301))
    read = {"day": "2024-01-02", "price": 1.5, "size": None, "raw": "ü"}
    assert json.loads(found[299].data) == {"_id": "d299", **row, **read}
    assert all(line.is_too_long and len(line.data) == 21 for line in lines_of(path, 20))
