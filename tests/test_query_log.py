"""Reading the lines of the query log; tests/service/test_query_log.py writes them."""

import json
from pathlib import Path

import pytest

from glow.errors import InputError
from glow.query_log import LoggedQuery, SkippedLines, numbered, read_query_log

QUERY = LoggedQuery(
    "r1", "bees", "dense", 10, 0, "v1", 3.25, {"field": "x", "eq": 1}, ("timeout",), ("d1",), "now"
)


def line(**changes: object) -> str:
    return json.dumps({**QUERY.values(), **changes}) + "\n"


def test_a_line_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(line())
    assert list(read_query_log(path)) == [QUERY]


def test_full_files_come_first_the_oldest_before_all(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for number, name in ((0, "newest"), (1, "newer"), (2, "oldest")):
        (numbered(path, number) if number else path).write_text(line(query=name))
    assert [query.query for query in read_query_log(path)] == ["oldest", "newer", "newest"]


@pytest.mark.parametrize(
    "bad",
    [
        line(query=5),
        line(query=None),
        line(hits=None),
        line(more=1),
        "[" * 100_000 + "\n",
        '{"query": NaN}\n',
        "\n",
        line().encode().decode().replace('"query": "bees", ', ""),
    ],
)
def test_a_line_of_something_else_is_skipped_and_named(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(line() + bad + line(query="owls"))
    skipped = SkippedLines()
    assert [query.query for query in read_query_log(path, skipped)] == ["bees", "owls"]
    assert skipped.count == 1
    assert skipped.first.startswith("log.jsonl:2: not a line of a query log")
    assert "1 damaged lines of the logs were skipped" in str(skipped)


def test_a_log_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the log"):
        list(read_query_log(tmp_path / "log.jsonl"))
