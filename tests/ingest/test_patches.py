"""Patches: metadata of a document changes by a JSON merge patch."""

from pathlib import Path
from typing import Any

import pytest

from glow.ingest import INGEST_FOLDER, IngestLog, IngestState, merged, read_accepted

# RFC 7396, appendix A: the original, the patch, the result.
CASES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ({"a": "foo"}, "bar", "bar"),
    (["a", "b"], {"a": "b"}, {"a": "b"}),
]


@pytest.mark.parametrize(("value", "patch", "result"), CASES)
def test_a_patch_merges_as_the_standard_says(value: Any, patch: Any, result: Any) -> None:
    assert merged(value, patch) == result


def test_the_log_keeps_the_nulls_of_a_patch(tmp_path: Path) -> None:
    log = IngestLog(tmp_path / INGEST_FOLDER, 1 << 20)
    log.append("patch", id="d/1", metadata={"price": 5, "stock": None})
    (found,) = read_accepted(tmp_path / INGEST_FOLDER, IngestState())
    assert found.operation is not None and found.operation.kind == "patch"
    assert (found.operation.id, found.operation.metadata) == ("d/1", {"price": 5, "stock": None})
