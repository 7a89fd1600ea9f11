"""Filters match what tests/search/filter_cases.jsonl and the table of docs/filters.md say."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.collection import parse_document
from glow.index.columns import Columns, build_columns
from glow.index.columns.filters import parse_filter
from glow.index.columns.masks import evaluate
from glow.index.stored_fields import DocumentStore, DocumentWriter

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "filters.md"


def columns_of(folder: Path, lines: Sequence[str]) -> tuple[list[str], Columns]:
    with DocumentWriter(folder / "documents.sqlite") as writer:
        for line in lines:
            writer.add(parse_document(line.encode(), ["title"]))
    store = DocumentStore(folder / "documents.sqlite")
    build_columns(store, folder)
    return [document.id for document in store.scan()], Columns.open(folder, store.count)


def mask_of(expression: Any, columns: Columns) -> NDArray[np.bool_]:
    return evaluate(parse_filter(expression, columns), columns)


@pytest.fixture
def made(tmp_path: Path) -> tuple[list[str], Columns]:
    lines = (HERE / "filter_documents.jsonl").read_text(encoding="utf-8").splitlines()
    return columns_of(tmp_path, lines)


@pytest.mark.parametrize("line", (HERE / "filter_cases.jsonl").read_text(encoding="utf-8").splitlines())
def test_a_filter_matches_what_its_case_says(made: tuple[list[str], Columns], line: str) -> None:
    ids, columns = made
    case = json.loads(line)
    mask = mask_of(case["filter"], columns)
    assert [name for name, fits in zip(ids, mask, strict=True) if fits] == case["matches"]


def test_the_table_of_the_page_is_true(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (document,) = re.findall(r'^\{"_id": .*$', text, re.MULTILINE)
    rows = re.findall(r"^\|`(\{.*\})`\|(yes|no)\|$", text, re.MULTILINE)
    assert len(rows) >= 4
    _, columns = columns_of(tmp_path, [document])
    for expression, matches in rows:
        assert mask_of(json.loads(expression), columns).tolist() == [matches == "yes"], expression
