"""Impacts of eight bits with their causes: written, read, damaged."""

import json
from pathlib import Path

import numpy as np
import pytest

from glow.errors import FormatError
from glow.index.postings import (
    CAUSES_FILE,
    CODES_FILE,
    IMPACTS_HEADER,
    LEARNED_FILES,
    VALUES_FILE,
    ImpactIndex,
    ImpactWriter,
    pack_codes,
)

WORDS = ["delete", "remove", "zebra"]
UNIT = 0.05


def write(folder: Path) -> ImpactIndex:
    """Three documents; the second has no word."""
    with ImpactWriter(folder, WORDS, chunk_postings=2) as writer:
        for words, codes, causes in (([1, 0], [200, 7], [0, 255]), ([], [], []), ([0], [255], [3])):
            packed = pack_codes(np.array(codes, np.uint8), np.array(causes, np.uint8))
            writer.add(words, packed.tolist())
        writer.finish("learned", lambda _words, _rows, values: values, {"unit": UNIT, "budget": 2.0})
    return ImpactIndex.open(folder)


def test_codes_times_the_unit_are_impacts(tmp_path: Path) -> None:
    index = write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(LEARNED_FILES)
    scores, rows = index.search(["delete", "remove", "delete"], 5)
    assert rows.tolist() == [2, 0]
    assert scores.tolist() == pytest.approx([2 * 255 * UNIT, (200 + 2 * 7) * UNIT])
    assert index.score(["delete", "remove", "delete"], rows).tolist() == scores.tolist()
    assert index.largest == pytest.approx(255 * UNIT)
    assert index.bound(["remove", "delete"]) == pytest.approx(455 * UNIT)


def test_each_says_where_it_comes_from(tmp_path: Path) -> None:
    index = write(tmp_path)
    assert [index.cause("delete", row) for row in range(3)] == [255, None, 3]
    assert index.cause("remove", 0) == 0
    assert index.cause("zebra", 0) is index.cause("absent", 0) is None


@pytest.mark.parametrize("name", [CODES_FILE, CAUSES_FILE])
def test_a_file_that_is_cut_off_is_refused_by_name(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[:-1])
    with pytest.raises(FormatError, match=name):
        ImpactIndex.open(tmp_path)


def test_a_code_of_nothing_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    codes = np.load(tmp_path / CODES_FILE)
    codes[1] = 0
    np.save(tmp_path / CODES_FILE, codes)
    with pytest.raises(FormatError, match=CODES_FILE):
        ImpactIndex.open(tmp_path)
    assert not (tmp_path / VALUES_FILE).exists()


@pytest.mark.parametrize("parameters", [{"budget": 2.0}, {"unit": 0.05}, {"unit": 0.0, "budget": 2.0}])
def test_a_header_that_does_not_say_what_a_code_is_worth_is_refused(
    tmp_path: Path, parameters: dict[str, float]
) -> None:
    write(tmp_path)
    path = tmp_path / IMPACTS_HEADER
    path.write_text(json.dumps(json.loads(path.read_text()) | {"parameters": parameters}))
    with pytest.raises(FormatError, match="unit"):
        ImpactIndex.open(tmp_path)
