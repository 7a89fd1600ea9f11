"""Corpus, query and judgment files and query logs: every bad line has its reason, and no good one is lost."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.collection import (
    MAX_DEPTH,
    MAX_ID_BYTES,
    RecordKeys,
    has_text,
    parse_document,
    parse_object,
    read_documents,
    read_qrels,
    read_queries,
)
from glow.errors import InputError, RecordError
from glow.query_log import LoggedQuery, SkippedLines, numbered, read_query_log
from glow.records import Document, Qrel, Query

FIELDS = ("title", "anchor", "text")


def parse(line: str | bytes, rename: dict[str, str] | None = None) -> Document:
    keys = RecordKeys(rename or {})
    return parse_document(line if isinstance(line, bytes) else line.encode(), FIELDS, keys)


@pytest.mark.parametrize(
    ("line", "fields", "metadata"),
    [
        (
            '{"_id": "d", "title": "T", "anchor": ["x", "y"], "year": 2024, "tags": {"k": [null, true]}}',
            {"title": ("T",), "anchor": ("x", "y")},
            {"year": 2024, "tags": {"k": [None, True]}},
        ),
        ('{"_id": "d", "title": null, "text": "", "anchor": []}', {}, {}),
        ('{"_id": "d", "x": 1e300, "y": 9223372036854775807}', {}, {"x": 1e300, "y": 2**63 - 1}),
        (
            r'{"_id": "d", "title": "a\ud800b", "x": {"\udfff": ["\ud83d"]}, "y": "\ud83d\ude00"}',
            {"title": ("a\ufffdb",)},
            {"x": {"\ufffd": ["\ufffd"]}, "y": "😀"},
        ),
    ],
)
def test_a_document_has_fields_and_metadata(
    line: str, fields: dict[str, tuple[str, ...]], metadata: dict[str, object]
) -> None:
    """Lone surrogates are replaced."""
    document = parse(line)
    assert (document.id, document.metadata) == ("d", metadata)
    assert document.fields == dict.fromkeys(FIELDS, ()) | fields


@pytest.mark.parametrize("blank", [None, "", " ", "\n\t", "\u2003", [], ["", " "]])
def test_white_space_is_no_text(blank: object) -> None:
    assert not has_text(parse(json.dumps({"_id": "d", "text": blank})))
    assert has_text(parse(json.dumps({"_id": "d", "text": blank, "title": "x"})))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON: .*character 1"),
        (b"", "not JSON"),
        (b"bees", "not JSON"),
        (b'{"_id": "d"} x', "not JSON: Extra data"),
        (b"[1]", "expected a JSON object, found a list of a number"),
        (b'"d"', "expected a JSON object, found a string"),
        (b"null", "expected a JSON object, found null"),
        (b'{"_id": "d", "title": "\xff"}', "not UTF-8: byte 0xff at position 23"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"_id": "d", "x": NaN}', "NaN is not allowed"),
        (b'{"_id": "d", "x": -Infinity}', "-Infinity is not allowed"),
        (b'{"_id": "d", "x": 1e999}', "the number inf is out of range"),
        (b'{"_id": "d", "x": [{"y": 9223372036854775808}]}', "9223372036854775808 is out of range"),
        (b'{"_id": "d", "x": ' + b"9" * 5000 + b"}", "not usable JSON: .*digits"),
        (b'{"_id": "d", "x": ' + b"[" * 65 + b"]" * 65 + b"}", "nested too deep, expected at most 64"),
        (b'{"_id": "d", "x": ' + b'{"k":' * 400 + b"1" + b"}" * 401, "nested too deep"),
        (b'{"title": "no id"}', "no id"),
        (b'{"_id": null}', "'_id' must be a string, found null"),
        (b'{"_id": ["d"]}', "'_id' must be a string, found a list of a string"),
        (b'{"_id": true}', "'_id' must be a string, found a boolean"),
        (b'{"_id": 1.5}', "'_id' must be a string, found a number"),
        (b'{"_id": ""}', "'_id' must be text"),
        (b'{"_id": " "}', "'_id' must be text"),
        (b'{"_id": "a\\u0000b"}', "'_id' must be text without NUL"),
        (b'{"_id": "\\ud800"}', "'_id' must be text without NUL and lone surrogates"),
        (json.dumps({"_id": "x" * 513}).encode(), "'_id' has 513 bytes, expected at most 512"),
        (json.dumps({"_id": "é" * 257}).encode(), "'_id' has 514 bytes"),
        (b'{"_id": "d", "title": 5}', "field 'title' must be a string or a list of strings, found a number"),
        (b'{"_id": "d", "title": {"a": 1}}', "field 'title' .* found an object"),
        (b'{"_id": "d", "title": false}', "field 'title' .* found a boolean"),
        (b'{"_id": "d", "anchor": ["a", 1, null]}', "found a list of a number, a string, null"),
        (b'{"_id": "d", "anchor": [["a"]]}', "found a list of a list"),
    ],
    ids=lambda value: ascii(value[:30]),
)
def test_a_bad_line_has_its_reason(line: bytes, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        parse(line)


def test_a_reason_is_short_however_long_the_line() -> None:
    for line in (
        json.dumps({"_id": "\0" * 10**6}),
        json.dumps({"_id": "d", "title": [1] * 10**5}),
        "9" * 10**6,
    ):
        with pytest.raises(RecordError) as caught:
            parse(line)
        assert len(str(caught.value)) < 300


@given(st.binary())
def test_any_bytes_are_an_object_or_a_record_error(line: bytes) -> None:
    try:
        assert isinstance(parse_object(line), dict)
    except RecordError as error:
        assert str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["_id", "title", "anchor", "x"]), inner),
)


@given(st.dictionaries(st.sampled_from(["_id", "title", "anchor", "text", "x"]), JSON))
def test_any_json_object_is_a_document_or_a_record_error(value: dict[str, object]) -> None:
    """And a document can be written as UTF-8 and as strict JSON again."""
    try:
        document = parse(json.dumps(value))
    except RecordError as error:
        assert str(error)
    else:
        json.dumps(document.metadata, allow_nan=False, ensure_ascii=False).encode()
        for texts in document.fields.values():
            "".join(texts).encode()


def test_numbers_are_taken_as_ids_and_an_id_may_fill_its_bytes() -> None:
    assert [parse(f'{{"_id": {number}}}').id for number in (471, -1)] == ["471", "-1"]
    assert len(parse(json.dumps({"_id": "x" * MAX_ID_BYTES})).id) == MAX_ID_BYTES


def test_metadata_may_be_as_deep_as_the_limit() -> None:
    nested = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    with pytest.raises(RecordError, match="too deep"):
        parse(b'{"_id": "d", "x": ' + nested + b"}")
    parse(b'{"_id": "d", "x": ' + nested[1:-1] + b"}")


def test_a_byte_order_mark_is_passed_over_at_the_head_of_a_file_and_nowhere_else(tmp_path: Path) -> None:
    path, line = tmp_path / "corpus.jsonl", b'{"_id": "d", "text": "bees"}\n'
    path.write_bytes(b"\xef\xbb\xbf" + line)
    assert [document.id for document in read_documents(path, ("text",))] == ["d"]
    path.write_bytes(line + b"\xef\xbb\xbf" + line)
    with pytest.raises(RecordError, match=r"corpus.jsonl line 2: .*BOM"):
        list(read_documents(path, ("text",)))


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-32"])
def test_only_utf8_is_read(coding: str) -> None:
    with pytest.raises(RecordError, match=r"not UTF-8|not JSON"):
        parse('{"_id": "d", "text": "bees"}'.encode(coding))


def test_keys_are_renamed_first_and_may_be_exchanged() -> None:
    rename = {"docid": "_id", "headline": "title", "body": "text"}
    document = parse('{"docid": "d", "headline": "T", "body": "B", "k": 1}', rename)
    assert (document.id, document.fields["title"], document.fields["text"]) == ("d", ("T",), ("B",))
    assert document.metadata == {"k": 1}
    exchange = {"title": "text", "text": "title", "_id": "_id"}
    document = parse('{"_id": "d", "title": "x", "text": "y"}', exchange)
    assert (document.fields["title"], document.fields["text"]) == (("y",), ("x",))


@pytest.mark.parametrize(
    "line", ['{"_id": "d", "headline": "a", "title": "b"}', '{"title": 1, "headline": 2}']
)
def test_two_keys_of_one_name_are_refused(line: str) -> None:
    with pytest.raises(RecordError, match="two keys of the line have the name 'title'"):
        parse(line, {"headline": "title"})


def test_files_are_read_in_order_and_blank_lines_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(
        b'{"_id": "a", "title": "x"}\r\n\n  \n{"_id": "empty", "title": " "}\n{"_id": "b", "text": "y"}'
    )
    assert [document.id for document in read_documents(path, FIELDS)] == ["a", "b"]


@pytest.mark.parametrize(
    ("bad", "reason"), [("{", "not JSON"), ('{"title": "x"}', "no id"), ("[]", "an empty list")]
)
def test_a_bad_corpus_line_is_named_by_file_and_number(bad: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(f'{{"_id": "a", "title": "x"}}\n\n{bad}\n')
    documents = read_documents(path, FIELDS)
    assert next(documents).id == "a"
    with pytest.raises(RecordError, match=rf"corpus\.jsonl line 3: .*{reason}"):
        next(documents)


def test_queries_and_judgments_are_read(tmp_path: Path) -> None:
    queries, judgments = tmp_path / "queries.jsonl", tmp_path / "test.tsv"
    queries.write_text('{"_id": "q1", "text": "find \\ud800", "metadata": {}}\n{"_id": 2, "text": ""}\n')
    assert list(read_queries(queries)) == [Query("q1", "find \ufffd"), Query("2", "")]
    judgments.write_bytes(b'query-id\tcorpus-id\tscore\r\nq1\ta "b\t2\r\n\nq2\td/1\t-1\n')
    assert list(read_qrels(judgments)) == [Qrel("q1", 'a "b', 2), Qrel("q2", "d/1", -1)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"_id": "q"}', "'text' must be a string, found null"),
        ('{"_id": "q", "text": ["a"]}', "'text' must be a string, found a list of a string"),
        ('{"text": "a"}', "no id"),
        ("x", "not JSON"),
    ],
)
def test_a_bad_query_line_is_named(bad: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_text(f"\n{bad}\n")
    with pytest.raises(RecordError, match=rf"queries\.jsonl line 2: {reason}"):
        list(read_queries(path))


HEADER = b"query-id\tcorpus-id\tscore\n"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        *(
            (HEADER + b"q\td\t1\n" + bad, "line 3: expected query-id")
            for bad in (b"q\td", b"q\td\t1.5", b"q\td\t", b"q\td\t1\t2", b"q 0 d 1", b"q\td\t" + b"9" * 5000)
        ),
        (b"q1\td1\t1\nq2\td2\t1\n", "line 1: expected a header"),  # a judgment there would be lost
        (HEADER + b"q\xff\td\t1\n", "line 2: not UTF-8"),
    ],
)
def test_a_bad_judgment_is_named(content: bytes, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=rf"dev\.tsv {fault}") as caught:
        list(read_qrels(path))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "read", [lambda path: read_documents(path, FIELDS), read_queries, read_qrels, read_query_log]
)
def test_a_file_that_cannot_be_read_is_named(read: object, tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            list(read(path))


QUERY = LoggedQuery(
    "r1", "bees", "dense", 10, 0, "v1", 3.25, {"field": "x", "eq": 1}, ("timeout",), ("d1",), "now"
)


def line_of(**changes: object) -> str:
    return json.dumps({**QUERY.values(), **changes}) + "\n"


def test_a_logged_query_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(line_of())
    assert list(read_query_log(path)) == [QUERY]


def test_full_logs_come_first_the_oldest_before_all(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for number, name in ((0, "newest"), (1, "newer"), (2, "oldest")):
        (numbered(path, number) if number else path).write_text(line_of(query=name))
    assert [query.query for query in read_query_log(path)] == ["oldest", "newer", "newest"]


@pytest.mark.parametrize(
    "bad",
    [
        line_of(query=5),
        line_of(query=None),
        line_of(hits=None),
        line_of(more=1),
        "[" * 100_000 + "\n",
        '{"query": NaN}\n',
        "\n",
        line_of().replace('"query": "bees", ', ""),
    ],
)
def test_a_line_of_something_else_is_skipped_and_named(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(line_of() + bad + line_of(query="owls"))
    skipped = SkippedLines()
    assert [query.query for query in read_query_log(path, skipped)] == ["bees", "owls"]
    assert skipped.count == 1
    assert skipped.first.startswith("log.jsonl:2: not a line of a query log")
    assert "1 damaged lines of the logs were skipped" in str(skipped)
