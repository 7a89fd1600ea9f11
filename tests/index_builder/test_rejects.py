"""Rejected lines are kept with place and reason, counted by fault, and too many of them fail a build."""

import json
from pathlib import Path

import pytest

from glow.errors import BuildError
from glow_index_builder.input.rejects import MAX_FAULTS, MAX_WRITTEN, RejectLog


def log_of(path: Path, count: int) -> RejectLog:
    log = RejectLog(path)
    for number in range(1, count + 1):
        log.add("input.jsonl", number, f"not JSON: Expecting value at character {number}", b"{")
    return log


def test_a_reject_has_file_line_id_reason_and_the_start_of_the_line(tmp_path: Path) -> None:
    with RejectLog(tmp_path / "rejects.jsonl") as log:
        log.add("input.jsonl", 7, "duplicate '_id': 'd' came before", "ü".encode() * 500, "d")
        log.add("input.jsonl", 8, "not UTF-8: byte 0xff at position 0", b"\xff\x00tail")
    first, second = (json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines())
    assert first == {
        "file": "input.jsonl",
        "line": 7,
        "id": "d",
        "reason": "duplicate '_id': 'd' came before",
        "start": "ü" * 200,
    }
    assert second["id"] is None
    assert second["start"] == "\ufffd\0tail"


def test_a_lone_surrogate_in_an_id_can_be_written(tmp_path: Path) -> None:
    with RejectLog(tmp_path / "rejects.jsonl") as log:
        log.add("input.jsonl", 1, "bad id \ud800", b"", "\ud800")
    assert json.loads((tmp_path / "rejects.jsonl").read_text())["id"] == "\ud800"


def test_no_reject_leaves_no_file(tmp_path: Path) -> None:
    with RejectLog(tmp_path / "rejects.jsonl"):
        pass
    assert not list(tmp_path.iterdir())


def test_rejects_are_counted_by_fault_not_by_detail(tmp_path: Path) -> None:
    with log_of(tmp_path / "rejects.jsonl", 5) as log:
        log.add("f", 6, "'_id' has 600 bytes, expected at most 512", b"")
        log.add("f", 7, "'_id' has 700 bytes, expected at most 512", b"")
        log.add("f", 8, "field 'title' must be a string, found a number", b"")
        log.add("f", 9, "longer than 1000000 bytes; --max-line-bytes sets it", b"")
    assert log.faults == {
        "not JSON": 5,
        "'_id' has … bytes": 2,
        "field 'title' must be a string": 1,
        "longer than … bytes": 1,
    }


def test_even_faults_without_end_take_bounded_memory(tmp_path: Path) -> None:
    with RejectLog(tmp_path / "rejects.jsonl") as log:
        for number in range(10_000):
            log.add(
                "f",
                number,
                f"fault {'x' * (number % 500)}{chr(97 + number % 26)}" + "y" * 10_000,
                b"z" * 10_000,
            )
    assert len(log.faults) == MAX_FAULTS + 1
    assert log.faults.total() == log.count == 10_000
    assert (tmp_path / "rejects.jsonl").stat().st_size < 10_000 * 1000


@pytest.mark.parametrize(("documents", "rejects", "share"), [(8, 2, 0.2), (1, 0, 0.0), (1, 99, 1.0)])
def test_rejects_up_to_the_share_are_accepted(
    tmp_path: Path, documents: int, rejects: int, share: float
) -> None:
    with log_of(tmp_path / "rejects.jsonl", rejects) as log:
        log.require_share(documents, share, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_too_many_rejects_fail_with_counts_first_reasons_and_the_file(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught, log_of(tmp_path / "rejects.jsonl", 3) as log:
        log.require_share(8, 0.2, tmp_path / "kept")
    message = str(caught.value)
    assert "3 of 11 input lines are invalid (limit: 20%" in message
    assert "3 x not JSON" in message
    assert "input.jsonl line 1: not JSON: Expecting value at character 1" in message
    assert f"All are in {tmp_path / 'kept'}. The live index is unchanged" in message
    assert len((tmp_path / "kept").read_text().splitlines()) == 3


def test_no_document_at_all_fails_whatever_the_share(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="2 of 2 input lines are invalid \\(so there is no document\\)"):
        log_of(tmp_path / "rejects.jsonl", 2).require_share(0, 1.0, tmp_path / "kept")
    with pytest.raises(BuildError, match="the input holds no document"):
        log_of(tmp_path / "rejects.jsonl", 0).require_share(0, 1.0, tmp_path / "other")


def test_rejects_without_end_are_counted_and_the_first_are_written(tmp_path: Path) -> None:
    """Two kilobytes unpack to a million bad lines."""
    path = tmp_path / "rejects.jsonl"
    with log_of(path, MAX_WRITTEN - 5) as log:
        before = log.counts
    with RejectLog(path, before) as log:
        for number in range(50_000):
            log.add("more.jsonl", number, "not JSON: Expecting value", b"x")
        with pytest.raises(BuildError, match=rf"The first {MAX_WRITTEN} are in .*kept. The live") as caught:
            log.require_share(1, 0.5, tmp_path / "kept")
    assert f"{MAX_WRITTEN + 49_995} of" in str(caught.value)
    assert len((tmp_path / "kept").read_text().splitlines()) == MAX_WRITTEN
