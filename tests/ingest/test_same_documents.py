"""What a build refuses, a write refuses, with the same reason; what both take is the same document."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.artifact import IndexRoot
from glow.collection import MAX_DOCUMENT_BYTES
from glow.errors import DocumentNotFoundError
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow_index_builder.ingest import Ingester, IngestOptions
from tests.ingest.conftest import WRITE, root_in, serving_writes
from tests.made_index import made, stages

LINES = {**WRITE, "Content-Type": "application/x-ndjson"}
JSON = {**WRITE, "Content-Type": "application/json"}
MARK = b"\xef\xbb\xbf"
"""A byte order mark, with which a body or a file may begin."""


def with_text(identifier: str, more: bytes) -> bytes:
    return b'{"_id": "%b", "text": "a vole", %b}' % (identifier.encode(), more)


def of_bytes(identifier: str, size: int) -> bytes:
    start = b'{"_id": "%b", "text": "' % identifier.encode()
    return start + b"v" * (size - len(start) - 2) + b'"}'


DOCUMENTS: dict[str, bytes] = {
    # id, or what stands for it -> the document
    "plain": with_text("plain", b'"n": 1'),
    "no-id": b'{"text": "a vole"}',
    "named": b'{"sku": "named", "id": "other", "text": "a vole"}',
    "no-text": b'{"_id": "no-text", "other": "words", "n": 3}',
    "blank-text": b'{"_id": "blank-text", "text": " \\n "}',
    "id-number": b'{"_id": 17, "text": "a vole"}',
    "id-float": b'{"_id": 1.5, "text": "a vole"}',
    "id-blank": b'{"_id": "  ", "text": "a vole"}',
    "id-nul": b'{"_id": "id\\u0000nul", "text": "a vole"}',
    "id\nlf": b'{"_id": "id\\nlf", "text": "a vole"}',
    "id-surrogate": b'{"_id": "id\\ud800", "text": "a vole"}',
    "i" * 512: b'{"_id": "%b", "text": "a vole"}' % (b"i" * 512),
    "id-513": b'{"_id": "%b", "text": "a vole"}' % (b"i" * 513),
    "text-number": b'{"_id": "text-number", "text": 3}',
    "text-list": b'{"_id": "text-list", "text": ["a", "vole"], "title": null}',
    "text-mixed": b'{"_id": "text-mixed", "text": ["a", 3]}',
    "surrogate": b'{"_id": "surrogate", "text": "a vole \\udc00", "m": {"\\ud83d": ["\\ud83d"]}}',
    "astral": '{"_id": "astral", "text": "a vole \U0001f42d \\ud83d\\ude00"}'.encode(),
    "not-utf8": b'{"_id": "not-utf8", "text": "\xff"}',
    "cesu": b'{"_id": "cesu", "text": "\xed\xa0\x80"}',
    "control": b'{"_id": "control", "text": "a\tvole"}',
    "integer-64": with_text("integer-64", b'"n": 9223372036854775807, "m": -9223372036854775807'),
    "integer-65": with_text("integer-65", b'"n": 9223372036854775808'),
    "integer-30": with_text("integer-30", b'"n": 123456789012345678901234567890'),
    "integer-inside": with_text("integer-inside", b'"n": {"m": [1, -123456789012345678901]}'),
    "integer-5000": with_text("integer-5000", b'"n": ' + b"7" * 5_000),
    "float": with_text("float", b'"n": [1e22, -0.0, 1.5e-300, 0.1]'),
    "float-large": with_text("float-large", b'"n": 1e400'),
    "nan": with_text("nan", b'"n": NaN'),
    "infinity": with_text("infinity", b'"n": [-Infinity]'),
    "duplicate-key": with_text("duplicate-key", b'"n": 1, "n": 2, "text": "another vole"'),
    "deep-63": with_text("deep-63", b'"m": ' + b"[" * 63 + b"]" * 63),
    "deep-64": with_text("deep-64", b'"m": ' + b"[" * 64 + b"]" * 64),
    "deep-300": with_text("deep-300", b'"m": ' + b'{"a":' * 300 + b"1" + b"}" * 300),
    "deep-960": with_text("deep-960", b'"m": ' + b"[" * 960 + b"]" * 960),
    "deep-text": b'{"_id": "deep-text", "text": ' + b"[" * 900 + b"]" * 900 + b"}",
    "longest": of_bytes("longest", MAX_DOCUMENT_BYTES),
    "too-long": of_bytes("too-long", MAX_DOCUMENT_BYTES + 1),
    "far-too-long": of_bytes("far-too-long", 3 * MAX_DOCUMENT_BYTES),
    "many-items": with_text("many-items", b'"m": [' + b"1," * 600 + b"1]"),
    "list": b'[{"_id": "list", "text": "a vole"}]',
    "string": b'"a vole"',
    "null": b"null",
    "separators": '{"_id": "separators", "text": "a\u2028vole\u2029and\u0085more"}'.encode(),
    "lone-cr": b'{"_id": "lone-cr",\r"text": "a vole"}',
}
BROKEN: dict[str, bytes] = {
    "cut-off": b'{"_id": "cut-off", "text": "a vole"',
    "bad-escape": b'{"_id": "bad-escape", "text": "\\x"}',
    "vertical-tab": b'{"_id": "vertical-tab",\x0b"text": "a vole"}',
    # Only line feeds end lines.
    "carriage-return": b'{"_id": "e/1", "text": "a vole"}\r{"_id": "e/2", "text": "a vole"}',
    "form-feed": b'{"_id": "e/3", "text": "a vole"}\x0c{"_id": "e/4", "text": "a vole"}',
    "line-separator": '{"_id": "e/5", "text": "a vole"}\u2028'.encode(),
    "too-deep": with_text("too-deep", b'"m": ' + b"[" * 5_000 + b"]" * 5_000),
    "bare-word": b'{"_id": "bare-word", "text": vole}',
}
"""What cannot be read as JSON: in a list it costs the whole body, because nobody can say where the next one begins."""


@pytest.fixture(scope="module")
def built(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, dict[str, str]]:
    """What a build makes of the documents, and why it refused the others, by the names above."""
    folder = tmp_path_factory.mktemp("built")
    every = {**DOCUMENTS, **BROKEN}
    (folder / "lines.jsonl").write_bytes(MARK + b"\r\n".join(every.values()))
    root = made(toy_model, folder / "lines.jsonl", folder / "index", max_reject_share=1.0, id_field="sku")
    version, names = root.folder(root.current()), list(every)
    rejects = (version / "rejects.jsonl").read_text(encoding="utf-8").split("\n")
    lines = [json.loads(line) for line in rejects if line]
    # A build also guesses the encoding of a file.
    return Index.open(version), {
        names[each["line"] - 1]: each["reason"].partition("; looks like")[0] for each in lines
    }


@pytest.fixture(scope="module")
def root(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> IndexRoot:
    return root_in(tmp_path_factory.mktemp("served"), toy_model, 10, id_field="sku")


@pytest.fixture(scope="module")
def http(root: IndexRoot) -> Iterator[httpx.Client]:
    with serving_writes(root) as client:
        yield client


def refused(answer: httpx.Response, names: list[str]) -> dict[str, str]:
    assert answer.status_code == 202, answer.text
    return {names[each["place"]]: each["reason"] for each in answer.json()["rejects"]}


def test_lines_are_judged_as_lines_of_a_build(
    built: tuple[Index, dict[str, str]], http: httpx.Client
) -> None:
    assert len(DOCUMENTS) + len(BROKEN) - len(built[1]) > 12 and len(built[1]) > 20
    every = {**DOCUMENTS, **BROKEN}
    answer = http.post("/documents", content=MARK + b"\r\n".join(every.values()), headers=LINES)
    assert refused(answer, list(every)) == built[1]


def test_a_list_of_documents_is_judged_so_and_each_costs_itself_alone(
    built: tuple[Index, dict[str, str]], http: httpx.Client
) -> None:
    body = MARK + b' {"documents": [%b]}\r\n' % b" , ".join(DOCUMENTS.values())
    answer = http.post("/documents", content=body, headers=JSON)
    expected = {name: reason for name, reason in built[1].items() if name in DOCUMENTS}
    assert refused(answer, list(DOCUMENTS)) == expected
    for broken in BROKEN.values():
        body = b'{"documents": [%b, %b]}' % (DOCUMENTS["plain"], broken)
        answer = http.post("/documents", content=body, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_json")


def test_so_is_a_document_alone(built: tuple[Index, dict[str, str]], http: httpx.Client) -> None:
    for name, document in DOCUMENTS.items():
        answer = http.post("/documents", content=document, headers=JSON)
        if name not in built[1]:
            assert answer.status_code == 202, name
        elif document.startswith(b"{"):
            assert answer.status_code == 422, name
            assert answer.json()["detail"].endswith(f"the first: {built[1][name]}"), name
        else:
            assert "expected a document" in answer.json()["detail"]
    for document in BROKEN.values():
        assert http.post("/documents", content=document, headers=JSON).json()["code"] == "malformed_json"


@pytest.mark.parametrize(
    ("headers", "body"),
    [(LINES, b"{\n" * 1_000_000), (JSON, b'{"documents": [' + b"{}," * 1_000_000 + b"{}]}")],
)
def test_too_many_documents_are_refused_before_they_are_read(
    headers: dict[str, str], body: bytes, http: httpx.Client
) -> None:
    began = time.monotonic()
    answer = http.post("/documents", content=body, headers=headers)
    assert answer.status_code == 422 and "at most 1000 documents" in answer.json()["detail"]
    assert time.monotonic() - began < 2.0, "reading each of them took 3 s"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "not JSON"),
        (b"[]", 422, "expected a document"),
        (b'{"documents": {}}', 422, "expected a list"),
        (b'{"documents": [], "more": 1}', 422, "no other member"),
        (b'{"more": 1, "documents": []}', 422, "no other member"),
        (b'{"documents": [{"_id": "x", "text": "y"},]}', 400, "Expecting value"),
        (b'{"documents": [{"_id": "x", "text": "y"}', 400, "expected ','"),
        (b'{"documents": [{"_id": "x", "text": "y"}]} {}', 400, "the end of the list and of the body"),
        (b'{"_id": "x", "text": "y"} {}', 400, "more than one value"),
        (b'{"documents": [{"_id": ' + b"[" * 5_000 + b'"' + b'\\"' * 2_000_000, 400, "nested too deep"),
    ],
)
def test_a_body_of_another_form_is_refused(body: bytes, status: int, words: str, http: httpx.Client) -> None:
    answer = http.post("/documents", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["detail"].count(words)) == (status, 1), answer.text


def test_what_was_taken_becomes_the_document_that_a_build_makes(
    built: tuple[Index, dict[str, str]], http: httpx.Client, root: IndexRoot, toy_model: Path
) -> None:
    """Last: until now nothing was applied."""
    options = IngestOptions(index_root=root.path, model=toy_model, threads=1)
    assert Ingester(options, stages()).apply_waiting() > 0
    written = Index.open(root.folder(root.current()))
    expected: dict[str, Any] = {document.id: document for document in built[0][STORED_FIELDS].scan()}
    for identifier, document in expected.items():
        found = written[STORED_FIELDS].get(identifier)
        assert found == document, identifier
        assert repr(found.metadata) == repr(document.metadata)  # 1 is no 1.0, 0.0 no -0.0
    for identifier in built[1]:
        with pytest.raises(DocumentNotFoundError):
            written[STORED_FIELDS].get(identifier)
