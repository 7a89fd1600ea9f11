"""The files of an inverted index: the same whatever the chunks, and refused when damaged."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from glow.errors import FormatError
from glow.index.postings import (
    CAUSES_FILE,
    CODES_FILE,
    IMPACTS_FILES,
    IMPACTS_HEADER,
    LEARNED_FILES,
    VALUES_FILE,
    ImpactIndex,
    ImpactWriter,
    pack_codes,
)
from glow.storage import new_array

WORDS = ["ant", "bee", "cow", "dog", "owl"]
DOCUMENTS = [{1: 2.0, 4: 1.0}, {}, {0: 3.0}, {4: 2.5, 0: 1.5, 1: 0.5}]


def write(folder: Path, chunk_postings: int = 1 << 20) -> Path:
    with ImpactWriter(folder, WORDS, chunk_postings) as writer:
        for document in DOCUMENTS:
            writer.add(document.keys(), document.values())
        writer.finish("bm25", lambda _words, _rows, values: values, {"scale": 1.0})
    return folder


def test_postings_lie_by_word_with_rows_ascending(tmp_path: Path) -> None:
    folder = write(tmp_path)
    assert {
        name: np.load(folder / f"{name}.npy").tolist() for name in ("starts", "rows", "impacts", "maxima")
    } == {
        "starts": [0, 2, 4, 6],
        "rows": [2, 3, 0, 3, 0, 3],
        "impacts": [3.0, 1.5, 2.0, 0.5, 1.0, 2.5],
        "maxima": [3.0, 2.0, 2.5],
    }
    assert (folder / "words.bin").read_bytes() == b"antbeeowl"  # cow and dog have no posting
    assert json.loads((folder / "impacts.json").read_bytes()) == {
        "format": 1,
        "kind": "bm25",
        "analyzer": "plain",
        "layout": "plain",
        "fields": {"text": [], "weak": False},
        "documents": 4,
        "words": 3,
        "postings": 6,
        "parameters": {"scale": 1.0},
    }


@pytest.mark.parametrize("chunk_postings", [1, 2, 3, 5])
def test_the_size_of_the_chunks_changes_no_byte(tmp_path: Path, chunk_postings: int) -> None:
    whole, cut = write(tmp_path / "whole"), write(tmp_path / "cut", chunk_postings)
    assert {path.name for path in cut.iterdir()} == set(IMPACTS_FILES)  # the working file is gone
    for name in IMPACTS_FILES:
        assert (cut / name).read_bytes() == (whole / name).read_bytes()


def test_the_working_file_goes_when_the_build_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), ImpactWriter(tmp_path, WORDS):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def replaced(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:  # type: ignore[type-arg]
    return lambda folder: np.save(folder / name, change(np.load(folder / name)))


def header(**values: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "impacts.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), **values}))

    return change


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def put(index: int, value: float) -> Callable[[np.ndarray], np.ndarray]:  # type: ignore[type-arg]
    def change(array: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        array[index] = value
        return array

    return change


def pickled(folder: Path) -> None:
    np.save(folder / "rows.npy", np.array([{}], object), allow_pickle=True)


DAMAGE: dict[str, tuple[str, Callable[[Path], None]]] = {
    **{
        f"no {name}": (name, lambda folder, name=name: (folder / name).unlink())
        for name in IMPACTS_FILES
        if name != "words.bin"
    },
    "no words": ("impacts/", lambda folder: (folder / "words.bin").unlink()),
    "header is no JSON": ("impacts.json", cut("impacts.json", 20)),
    "a format of the future": ("impacts.json", header(format=2)),
    "an unknown kind": ("impacts.json", header(kind="magic")),
    "another count of words": ("impacts.json", header(words=2)),
    "another count of postings": ("starts.npy", header(postings=7)),
    "fewer documents than rows name": ("rows.npy", header(documents=3)),
    "words cut short": ("offsets.npy", cut("words.bin", 5)),
    "offsets that fall": ("offsets.npy", replaced("offsets.npy", put(1, 9))),
    "starts of another type": ("starts.npy", replaced("starts.npy", lambda array: array.astype(np.int32))),
    "starts that fall": ("starts.npy", replaced("starts.npy", put(1, 5))),
    "starts beyond the postings": ("starts.npy", replaced("starts.npy", put(-1, 9))),
    "rows cut short": ("rows.npy", cut("rows.npy", 140)),
    "rows of objects": ("rows.npy", pickled),
    "rows in two dimensions": ("rows.npy", replaced("rows.npy", lambda array: array.reshape(2, 3))),
    "an impact that is no number": ("impacts.npy", replaced("impacts.npy", put(-1, np.nan))),
    "an impact of nothing": ("impacts.npy", replaced("impacts.npy", put(0, 0.0))),
    "an infinite maximum": ("maxima.npy", replaced("maxima.npy", put(0, np.inf))),
}


@pytest.mark.parametrize("fault", DAMAGE)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, fault: str) -> None:
    folder = write(tmp_path / "impacts")
    name, damage = DAMAGE[fault]
    damage(folder)
    with pytest.raises(FormatError, match=name if name.endswith("/") else f"{name}|vocabulary") as error:
        ImpactIndex.open(folder)
    assert "impacts" in str(error.value)


def test_a_new_array_has_its_room_on_the_disk_before_it_is_written(tmp_path: Path) -> None:
    """Else a full disk would end the process by a signal."""
    found = new_array(tmp_path / "a.npy", np.uint32, 1 << 20)
    assert (tmp_path / "a.npy").stat().st_blocks * 512 >= 4 << 20
    assert not found.any() and len(new_array(tmp_path / "b.npy", np.uint32, 0)) == 0


LEARNED_WORDS = ["delete", "remove", "zebra"]
UNIT = 0.05


def write_learned(folder: Path) -> ImpactIndex:
    """Three documents; the second has no word."""
    with ImpactWriter(folder, LEARNED_WORDS, chunk_postings=2) as writer:
        for words, codes, causes in (([1, 0], [200, 7], [0, 255]), ([], [], []), ([0], [255], [3])):
            writer.add(words, pack_codes(np.array(codes, np.uint8), np.array(causes, np.uint8)).tolist())
        writer.finish("learned", lambda _words, _rows, values: values, {"unit": UNIT, "budget": 2.0})
    return ImpactIndex.open(folder)


def test_codes_times_the_unit_are_impacts(tmp_path: Path) -> None:
    index = write_learned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(LEARNED_FILES)
    scores, rows = index.search(["delete", "remove", "delete"], 5)
    assert rows.tolist() == [2, 0]
    assert scores.tolist() == pytest.approx([2 * 255 * UNIT, (200 + 2 * 7) * UNIT])
    assert index.score(["delete", "remove", "delete"], rows).tolist() == scores.tolist()
    assert index.largest == pytest.approx(255 * UNIT)
    assert index.bound(["remove", "delete"]) == pytest.approx(455 * UNIT)


def test_each_says_where_it_comes_from(tmp_path: Path) -> None:
    index = write_learned(tmp_path)
    assert [index.cause("delete", row) for row in range(3)] == [255, None, 3]
    assert index.cause("remove", 0) == 0
    assert index.cause("zebra", 0) is index.cause("absent", 0) is None


@pytest.mark.parametrize("name", [CODES_FILE, CAUSES_FILE])
def test_a_file_that_is_cut_off_is_refused_by_name(tmp_path: Path, name: str) -> None:
    write_learned(tmp_path)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-1])
    with pytest.raises(FormatError, match=name):
        ImpactIndex.open(tmp_path)


def test_a_code_of_nothing_is_refused(tmp_path: Path) -> None:
    write_learned(tmp_path)
    codes = np.load(tmp_path / CODES_FILE)
    codes[1] = 0
    np.save(tmp_path / CODES_FILE, codes)
    with pytest.raises(FormatError, match=CODES_FILE):
        ImpactIndex.open(tmp_path)
    assert not (tmp_path / VALUES_FILE).exists()


@pytest.mark.parametrize("parameters", [{"budget": 2.0}, {"unit": 0.05}, {"unit": 0.0, "budget": 2.0}])
def test_a_header_without_a_codes_worth_is_refused(tmp_path: Path, parameters: dict[str, float]) -> None:
    write_learned(tmp_path)
    path = tmp_path / IMPACTS_HEADER
    path.write_text(json.dumps(json.loads(path.read_text()) | {"parameters": parameters}))
    with pytest.raises(FormatError, match="unit"):
        ImpactIndex.open(tmp_path)
