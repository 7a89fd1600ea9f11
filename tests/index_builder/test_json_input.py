"""JSON arrays, pretty-printed objects and exports of Elasticsearch are read as documents."""

import gzip
import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import InputError
from glow.index.stored_fields import STORED_FIELDS
from glow_index_builder.input.json_input import json_items
from glow_index_builder.input.lines import Line
from glow_index_builder.input.source import Source
from tests.index_builder.conftest import Live, Run

RECORDS: list[dict[str, Any]] = [
    {"_id": "1", "text": 'a "bee" \\ {', "n": 12345678901234567, "x": [1.10, {"y": "]"}]},
    {"_id": "2", "text": "ants ü"},
]


def lines(path: Path, most: int = 1_000) -> list[Line]:
    return list(Source(path.name, path).lines(most))


def records(path: Path) -> list[Any]:
    return [line.fault or json.loads(line.data) for line in lines(path)]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(RECORDS),
        "\ufeff \n" + json.dumps(RECORDS, indent=2) + "\n",
        "\n".join(json.dumps(each, indent=1) for each in RECORDS),
        "\n".join(json.dumps(each) for each in RECORDS),
    ],
)
def test_an_array_pretty_objects_and_lines_are_the_same(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(content, encoding="utf-8")
    assert records(path) == RECORDS
    packed = tmp_path / "b.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert records(packed) == RECORDS


@given(
    st.lists(
        st.dictionaries(st.text(), st.recursive(st.text() | st.integers(-(2**63), 2**63 - 1), st.lists)),
        max_size=5,
    ),
    st.booleans(),
)
def test_any_array_is_cut_into_its_objects(items: list[dict[str, Any]], is_ascii: bool) -> None:
    data = json.dumps(items, ensure_ascii=is_ascii, indent=1).encode(errors="replace")
    with suppress(InputError):  # a lone surrogate is not JSON for every parser
        found = list(json_items(io.BytesIO(data), "a", 1 << 20))
        assert [json.loads(each.data) for each in found] == json.loads(data)


def test_a_long_item_costs_itself_and_one_without_end_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"_id": 1}, {"_id": 2, "t": "' + "x" * 5_000 + '"}, 3]')
    first, second, third = lines(path)
    assert (first.number, second.is_too_long, len(second.data), third.data) == (1, True, 1_001, b"3")
    path.write_text('[{"_id": 1}, {"_id": 2, "t": "' + "x" * 20_000_000 + '"}, 3]')
    with pytest.raises(InputError, match="more than"):
        lines(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[{"_id": 1}, {"_id": 2, ', "cut off after item 1"),
        ('[{"_id": 1}', "cut off after item 1"),
        ('[{"_id": 1}, nonsense]', "after item 1: .*nonsense"),
        ('{\n"_id": 1}\n{"_id": 2,\n "x"}', "after item 1"),
        ("[" * 100_000, "after item 0"),
    ],
)
def test_what_is_not_json_has_its_place(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        lines(path)


PRODUCTS = '[{"sku": 1, "text": "bees"}, {"sku": 2, "text": "ants"}]'


@pytest.mark.parametrize(
    ("content", "key", "options"),
    [
        (f'{{"total": 2, "products": {PRODUCTS}}}', "products", []),
        (f'{{"data": {{"products": {PRODUCTS}}}}}', "data.products", []),
        (f'{{\n "products": {PRODUCTS}\n}}', "products", []),
        ('{"products": [\n{"sku": 1},\n{"sku": 2}\n]}', "products", []),
        (f'{{"products": {PRODUCTS}}}', "products", ["--max-line-bytes", 40]),
        (f'{{\n"products": [{{"sku": 1}}, "{"x" * 70_000}"]}}', "products", ["--max-line-bytes", 100]),
    ],
)
def test_documents_below_a_key_are_refused_by_its_name(
    content: str, key: str, options: list[Any], build: Run, tmp_path: Path
) -> None:
    path = tmp_path / "products.json"
    path.write_text(content)
    done = build(path, *options)
    assert done.exit_code in (2, 4), done.stderr
    assert f"The key '{key}' holds a list" in done.stderr and f"jq -c '.{key}[]' FILE" in done.stderr


BULK = """{"index": {"_index": "shop", "_id": "1"}}
{"text": "bees", "id": 7}
{"create": {}}
{"_id": "2", "text": "ants"}
{"delete": {"_id": "3"}}
{"update": {"_id": "4"}}
{"doc": {"text": "x"}}

{"index": {"_id": 5}}
{}
"""
DUMP = '{"_index": "shop", "_type": "_doc", "_id": "1", "_score": 1, "_source": {"text": "bees", "id": 7}}\n'


def test_exports_of_elasticsearch_are_read_and_named(build: Run, tmp_path: Path, live: Live) -> None:
    path = tmp_path / "bulk.json"
    path.write_text(BULK)
    told = records(path)
    assert told[:2] == [{"_id": "1", "text": "bees", "id": 7}, {"_id": "2", "text": "ants"}]
    assert "'delete'" in told[2] and "'update'" in told[3] and told[4] == {"_id": 5}
    done = build(path, "--max-reject-ratio", "0.9")
    assert done.exit_code == 0 and "input: Elasticsearch's bulk format" in done.stdout, done.output
    assert live()[STORED_FIELDS].get("1").metadata == {"id": 7}
    for stdin in (DUMP.encode(), json.dumps([{"_id": "1", "text": "bees", "id": 7}], indent=2).encode()):
        done = build("-", stdin=stdin)
        assert done.exit_code == 0 and ("elasticdump" in done.stdout) == (stdin == DUMP.encode())
        assert live()[STORED_FIELDS].get("1").metadata == {"id": 7}
