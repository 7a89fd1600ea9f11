"""Reading loses no good document and names every bad line."""

import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from glow.index.stored_fields import DocumentStore
from glow.runtime import Model
from glow.text import Analyzer
from glow_index_builder.building.corpus import CorpusStats, read_corpus
from glow_index_builder.input.compressed import format_of
from glow_index_builder.input.rejects import RejectLog
from glow_index_builder.input.source import Source
from glow_index_builder.options import BuildOptions


@pytest.fixture(scope="session")
def model(toy_model: Path) -> Model:
    return Model.open(toy_model)


def read(
    model: Model, folder: Path, lines: Iterable[bytes], **options: object
) -> tuple[CorpusStats, DocumentStore, RejectLog, list[dict[str, object]]]:
    """Reads lines; gives statistics, store, log, and the rejects as they lie in the file."""
    path = folder / "input.jsonl"
    with path.open("wb") as file:
        file.writelines(line + b"\n" for line in lines)
    chosen = BuildOptions(model=model.folder, source=str(path), index_root=folder, **options)  # type: ignore[arg-type]
    with RejectLog(folder / "rejects.jsonl") as log:
        stats = read_corpus(
            [Source(path.name, path)],
            model.preprocessor,
            chosen,
            folder / "store",
            log,
            lambda _: None,
            Analyzer(),
        )
    rejects = (folder / "rejects.jsonl").read_bytes().splitlines() if log.count else []
    return stats, DocumentStore(folder / "store"), log, [json.loads(line) for line in rejects]


BAD = {
    b'{"_id": "broken", "title": ': ("not JSON", None),
    b'{"_id": "latin", "title": "\xe4"}': ("not UTF-8", None),
    b'{"title": "no id"}': ("'_id' is missing", None),
    b'{"_id": null, "title": "x"}': ("'_id' must be a string", None),
    b'{"_id": ["a"], "title": "x"}': ("'_id' must be a string", None),
    b'{"_id": "", "title": "x"}': ("'_id' must be text", ""),
    b'{"_id": "half\\ud800", "title": "x"}': ("'_id' must be text", "half\ud800"),
    b'{"_id": "wrong", "title": 7}': ("field 'title' must be a string or a list", "wrong"),
    b'{"_id": "mixed", "anchor": ["a", 1]}': ("field 'anchor' must be a string or a list", "mixed"),
    b'{"_id": "object", "text": {"a": "b"}}': ("field 'text' must be a string or a list", "object"),
    b'["_id", "list"]': ("expected a JSON object", None),
    b"null": ("expected a JSON object", None),
    b'{"_id": "nan", "text": "x", "year": NaN}': ("not JSON", None),
    b'{"_id": "empty"}': ("no text in any field", "empty"),
    b'{"_id": "blank", "title": " \\t", "anchor": ["", "\\n"]}': ("no text in any field", "blank"),
    b'{"_id": "good", "title": "again"}': ("duplicate '_id'", "good"),
    b'{"_id": "long", "text": "' + b"x" * 3000 + b'"}': ("longer than", None),
    b'{"_id": "deep", "text": "x", "a": ' + b"[" * 900 + b"]" * 900 + b"}": ("JSON nested too deep", "deep"),
    b'{"_id": "digits", "text": "x", "a": ' + b"1" * 2000 + b"}": ("the number", "digits"),
    b"\0\0\0": ("not JSON", None),
}


def test_every_bad_line_is_named_and_no_good_one_is_lost(model: Model, tmp_path: Path) -> None:
    good = [
        json.dumps({"_id": f"good{number}", "title": f"bees {number}"}).encode() for number in range(len(BAD))
    ]
    mixed = [b'{"_id": "good", "title": "first"}']
    for bad, line in zip(BAD, good, strict=True):
        mixed += [bad, line]
    stats, store, log, rejects = read(model, tmp_path, mixed, max_line_bytes=2500)
    assert [document.id for document in store.scan()] == ["good", *(f"good{n}" for n in range(len(BAD)))]
    assert store.get("good").fields["title"] == ("first",)
    assert stats.documents == store.count == len(BAD) + 1
    assert log.count == len(rejects) == len(BAD)
    for number, (reject, (line, (reason, identifier))) in enumerate(zip(rejects, BAD.items(), strict=True)):
        assert str(reject["reason"]).startswith(reason), reject
        assert (reject["file"], reject["line"]) == ("input.jsonl", 2 * number + 2)
        assert reject["id"] == identifier, reject
        assert reject["start"] == line.decode(errors="replace")[:200]


def test_a_document_without_text_says_which_fields_are_read_and_which_keys_are_there(
    model: Model, tmp_path: Path
) -> None:
    _, _, _, rejects = read(model, tmp_path, [b'{"_id": "d", "headline": "T", "content": "C"}'])
    assert rejects[0]["reason"] == (
        "no text in any field: the model reads title, anchor, clicked_queries, url, text; "
        "other keys here: headline, content"
    )


def test_keys_are_renamed_the_id_too(model: Model, tmp_path: Path) -> None:
    rename = {"headline": "title", "doc": "_id"}
    lines = [
        b'{"doc": "d", "headline": "T", "year": 1}',
        b'{"doc": "e", "headline": "T", "title": "U"}',
        b'{"doc": "d", "headline": "V"}',
    ]
    _, store, _, rejects = read(model, tmp_path, lines, rename=rename)
    (document,) = store.scan()
    assert (document.id, document.fields, document.metadata) == ("d", {"title": ("T",)}, {"year": 1})
    assert [reject["id"] for reject in rejects] == ["e", "d"]


def test_statistics_count_stored_documents_only(model: Model, tmp_path: Path) -> None:
    lines = [
        b'{"_id": "a", "title": "bees and bees", "text": "honey"}',
        b'{"_id": "a", "title": "bees"}',
        b'{"_id": "b", "title": "bees"}',
        b'{"_id": 7, "title": ["owls", "whales"]}',
        b'{"_id": "c"}',
    ]
    stats, store, _, _ = read(model, tmp_path, lines)
    assert [document.id for document in store.scan()] == ["a", "b", "7"]
    assert stats.terms.documents == 3
    assert dict(stats.terms.items()) == {"and": 1, "bees": 2, "honey": 1, "owls": 1, "whales": 1}
    assert stats.terms.lengths == {"title": 2.0, "text": 1.0}


def test_the_term_table_is_bounded(model: Model, tmp_path: Path) -> None:
    lines = [
        json.dumps({"_id": str(number), "title": f"bees word{number}"}).encode() for number in range(200)
    ]
    stats, _, _, _ = read(model, tmp_path, lines, max_words=10)
    assert len(stats.terms) == 10
    assert stats.terms.df("bees") == 200
    assert stats.terms.dropped_words > 0


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(
        st.one_of(
            st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"")),
            st.fixed_dictionaries(
                {"_id": st.one_of(st.text(max_size=4), st.integers(0, 5), st.none())},
                optional={
                    "title": st.one_of(st.text(max_size=8), st.none(), st.integers()),
                    "anchor": st.lists(st.text(max_size=4), max_size=2),
                    "extra": st.recursive(
                        st.one_of(st.none(), st.floats(), st.text(max_size=3)), st.lists, max_leaves=4
                    ),
                },
            ).map(lambda value: json.dumps(value).encode()),
        ),
        max_size=12,
    )
)
def test_whatever_the_lines_each_is_a_document_or_a_reject(
    model: Model, tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    # A file that begins as a compressed one does is one, and damaged.
    assume(not format_of(b"\n".join(lines)[:4], "input.jsonl"))
    stats, store, log, rejects = read(model, tmp_path_factory.mktemp("corpus"), lines)
    # bytes.strip and the reader agree on what a blank line is
    assert stats.documents + log.count == sum(bool(line.strip()) for line in lines)
    assert stats.documents == store.count == len({document.id for document in store.scan()})
    assert len(rejects) == log.count == log.faults.total()


def test_memory_does_not_grow_with_the_corpus(model: Model, tmp_path: Path) -> None:
    text = "bees find the way home by the sun " * 20

    def peak(count: int) -> int:
        folder = tmp_path / str(count)
        folder.mkdir()
        tracemalloc.start()
        read(model, folder, (json.dumps({"_id": f"d{n}", "text": text}).encode() for n in range(count)))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(50)  # caches of words are filled here
    # 600 documents more have 400,000 bytes of text; what stays of each is its id (some 85 bytes)
    assert peak(800) < peak(200) + 600 * 110
