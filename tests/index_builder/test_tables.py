"""Tables as spreadsheets write them: separators, encodings, rows of another length, types of columns."""

import codecs
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from glow.errors import ConfigError
from glow.index.stored_fields import STORED_FIELDS
from glow_index_builder.input.source import Source
from glow_index_builder.input.tables import TextFormat, typed_value
from glow_index_builder.options import BuildOptions
from glow_service.app import create_app
from glow_service.settings import Settings
from tests.index_builder.conftest import Live, Run, report_of
from tests.until import until

SHOP = (
    "id;title;price;stock;active;added;zip;version\r\n"
    "1;Café chair;12,50;3;TRUE;2024-01-02;00135;1.2\r\n"
    "2;Table;9;;false;2024-05-06T10:00:00Z;10115;1,3\r\n"
    ";;;;;;;\r\n"
)


def rows(path: Path, **form: Any) -> list[Any]:
    found = Source(path.name, path, text=TextFormat(**form)).lines(10_000)
    return [line.fault or json.loads(line.data) for line in found]


@pytest.mark.parametrize(
    "content",
    [
        b"id,text\r\n1,caf\xc3\xa9\r\n",
        b"id;text;;\n1;caf\xc3\xa9;;\n;;;\n",
        b"id\ttext\n1\tcaf\xc3\xa9\n\n",
        b"id|text\r1|caf\xc3\xa9\r",
        b"sep=:\r\nid:text\r\n1:caf\xc3\xa9\r\n",
        b'"id;a,b,c",text\n1,caf\xc3\xa9\n'.replace(b'"id;a,b,c"', b"id"),
        codecs.BOM_UTF8 + b"sep=;\nid;text\n1;caf\xc3\xa9\n",
        codecs.BOM_UTF16_LE + "id\ttext\r\n1\tcafé\r\n".encode("utf-16-le"),
        codecs.BOM_UTF16_BE + "id;text\n1;café".encode("utf-16-be"),
    ],
)
def test_separator_and_encoding_are_found(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert rows(tmp_path / "a.csv") == [{"id": "1", "text": "café"}]


def test_quotes_hide_separators_and_a_given_one_decides(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'id,"a;b;c"\n1,2\n')
    assert rows(tmp_path / "a.csv") == [{"id": "1", "a;b;c": "2"}]
    (tmp_path / "a.txt").write_bytes(b"id,a;b,c\n1,2;3,4\n")
    assert rows(tmp_path / "a.txt", delimiter=";") == [{"id,a": "1,2", "b,c": "3,4"}]


def test_bytes_outside_of_the_encoding_cost_their_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,text\n1,caf\xe9\n2,\x81\n3,x\n")
    assert rows(path, encoding="windows-1252") == [
        {"id": "1", "text": "café"},
        "not windows-1252",
        {"id": "3", "text": "x"},
    ]
    cut = codecs.BOM_UTF16_LE + "id,text\n1,a\n2,\ud800\n3,b".encode("utf-16-le", "surrogatepass")
    path.write_bytes(cut + b"!")
    assert rows(path) == [{"id": "1", "text": "a"}, "not UTF-8", "not UTF-8"]


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
    told = {
        "price": 12.5,
        "stock": 3,
        "active": True,
        "added": "2024-01-02",
        "zip": "00135",
        "version": "1.2",
    }
    assert first.metadata == told
    assert (second.metadata["price"], "stock" in second.metadata) == (9, False)
    assert index.manifest.parameters["field_types"]["price"] == "number"
    assert report_of(output / index.manifest.name)["options"]["field_types"]["added"] == "date"
    asked = {
        "query": "chair",
        "match": "any",
        "filter": {"price": {"lt": 13}, "added": {"gte": "2024"}},
        "sort": "price",
    }
    with TestClient(create_app(Settings(index_root=output), on_failure=lambda: None)) as client:
        until(lambda: client.get("/readyz").status_code == 200)
        assert [hit["id"] for hit in client.post("/search", json=asked).json()["hits"]] == ["2", "1"]
    path.write_text("id,title,price,active\n3,Stool,7.5,true\n4,Lamp,cheap,true\n")
    done = run(
        "upsert", "--input", path, "--index-root", output, "--model", toy_model, "--max-reject-ratio", "0.5"
    )
    assert done.exit_code == 0 and "1 new" in done.stdout, done.output
    rejects = next(output.glob("rejects-*.jsonl")).read_text()
    assert "column 'price' is number, found 'cheap'" in rejects
    path.write_text("id,title,price,active\n5,Desk,9.5,true\n")
    options = ("--model", toy_model, "--field-type", "active=string")
    assert run("upsert", "--input", path, "--index-root", output, *options).exit_code == 0
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
