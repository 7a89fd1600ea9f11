"""The examples of docs/filters.md match what the page says."""

import json
import re
from pathlib import Path

from glow.collection import parse_document
from glow.index.columns import Columns, build_columns
from glow.index.columns.filters import evaluate, parse_filter
from glow.index.stored_fields import DocumentStore, DocumentWriter

PAGE = Path(__file__).parents[2] / "docs" / "filters.md"


def test_the_examples_match_what_the_page_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```jsonl\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    documents, examples = (block.splitlines() for block in blocks)
    with DocumentWriter(tmp_path / "documents.sqlite") as writer:
        for line in documents:
            writer.add(parse_document(line.encode(), ["title"]))
    store = DocumentStore(tmp_path / "documents.sqlite")
    build_columns(store, tmp_path)
    columns = Columns.open(tmp_path, store.count)
    ids = [document.id for document in store.scan()]
    assert len(examples) > 15
    for line in examples:
        example = json.loads(line)
        mask = evaluate(parse_filter(example["filter"], columns), columns)
        assert [name for name, fits in zip(ids, mask, strict=True) if fits] == example["matches"], line
