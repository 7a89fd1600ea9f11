"""Judgment files of both formats are read; other lines are refused with their number."""

from pathlib import Path

import pytest

from glow.errors import InputError, RecordError
from glow.evaluation import read_judgements
from glow.records import Qrel

WANTED = [Qrel("q1", "d1", 2), Qrel("q1", "d2", 0), Qrel("q2", "d1", -1)]


@pytest.mark.parametrize(
    "text",
    [
        "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td1\t-1\n",
        "q1 0 d1 2\nq1 0 d2 0\n\nq2 0 d1 -1\n",
        "q1\tQ0\td1\t2\r\nq1\tQ0\td2\t0\r\nq2\tQ0\td1\t-1\r\n",
    ],
    ids=["beir", "trec", "trec with tabs"],
)
def test_both_forms_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "qrels").write_text(text)
    assert read_judgements(tmp_path / "qrels") == WANTED


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"q1 0 d1 2\nq1 0 d2\n", "line 2: expected `query-id 0 document-id grade`"),
        (b"q1 0 d1 2\nq1 0 d2 high\n", "line 2: expected `query-id 0"),
        (b"q1 0 d1 2\nq1 0 \xff 1\n", "not UTF-8"),
        (b"header\nq1 0 d1 2\n", "line 2: expected query-id, corpus-id"),
    ],
)
def test_what_is_no_judgement_is_refused_by_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "qrels").write_bytes(content)
    with pytest.raises(RecordError, match=message):
        read_judgements(tmp_path / "qrels")


def test_missing_and_empty_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_judgements(tmp_path / "none")
    for text in ("", "query-id\tcorpus-id\tscore\n"):
        (tmp_path / "qrels").write_text(text)
        with pytest.raises(InputError, match="has no judgments"):
            read_judgements(tmp_path / "qrels")
