"""What the first stage makes of input: documents, rejects, and statistics."""

import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest

from glow.artifact import IndexRoot
from glow.errors import BuildError
from glow.index.postings import PostingsRules
from glow.index.stored_fields import STORED_FIELDS, DocumentStore
from glow.runtime import Model
from glow_index_builder.building.documents import CorpusStats, read_corpus
from glow_index_builder.input.lines import MAX_FAULTS, MAX_WRITTEN, RejectLog
from glow_index_builder.input.source import Source
from glow_index_builder.options import BuildOptions
from tests.index_builder.conftest import LinesFile, Live, Run, names, report_of, search


def log_of(path: Path, count: int) -> RejectLog:
    log = RejectLog(path)
    for number in range(1, count + 1):
        log.add("input.jsonl", number, f"not JSON: Expecting value at character {number}", b"{")
    return log


def test_rejects_are_counted_by_fault_not_by_detail(tmp_path: Path) -> None:
    with log_of(tmp_path / "rejects.jsonl", 5) as log:
        log.add("f", 6, "'_id' has 600 bytes, expected at most 512", b"")
        log.add("f", 7, "'_id' has 700 bytes, expected at most 512", b"")
        log.add("f", 8, "field 'title' must be a string, found a number", b"")
        log.add("f", 9, "longer than 1000000 bytes; --max-line-bytes sets it", b"")
    counts = {"not JSON": 5, "'_id' has … bytes": 2}
    assert log.faults == {**counts, "field 'title' must be a string": 1, "longer than … bytes": 1}


def test_rejects_without_end_take_bounded_memory_and_the_first_are_written(tmp_path: Path) -> None:
    """Two kilobytes unpack to a million bad lines."""
    with log_of(tmp_path / "rejects.jsonl", MAX_WRITTEN - 5) as log:
        before = log.counts
    with RejectLog(tmp_path / "rejects.jsonl", before) as log:
        for number in range(50_000):
            fault = f"fault {'x' * (number % 500)}{chr(97 + number % 26)}" + "y" * 10_000
            log.add("more.jsonl", number, fault, b"z" * 10_000)
        with pytest.raises(BuildError, match=rf"The first {MAX_WRITTEN} are in .*kept. The live") as caught:
            log.require_share(1, 0.5, tmp_path / "kept")
    assert f"{MAX_WRITTEN + 49_995} of" in str(caught.value)
    assert len(log.faults) == MAX_FAULTS + 1
    assert log.faults.total() == log.count == MAX_WRITTEN + 49_995
    assert len((tmp_path / "kept").read_text().splitlines()) == MAX_WRITTEN


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
        given = ([Source(path.name, path)], model.preprocessor, chosen, folder / "store", log)
        stats = read_corpus(*given, lambda _: None, PostingsRules(analyzer="plain"))
    rejects = (folder / "rejects.jsonl").read_bytes().splitlines() if log.count else []
    return stats, DocumentStore(folder / "store"), log, [json.loads(line) for line in rejects]


BAD = {
    b'{"_id": "broken", "title": ': ("not JSON", None),
    b'{"_id": "latin", "title": "\xe4"}': ("not UTF-8", None),
    b'{"title": "no id"}': ("no id", None),
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
    mixed = [b'{"_id": "good", "title": "first"}']
    for number, bad in enumerate(BAD):
        mixed += [bad, json.dumps({"_id": f"good{number}", "title": f"bees {number}"}).encode()]
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
    *_, (reject,) = read(model, tmp_path, [b'{"_id": "d", "headline": "T", "content": "C"}'])
    assert reject["reason"] == (
        "no text in any field: the model reads title, anchor, clicked_queries, url, text; "
        "other keys here: headline, content"
    )


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
    records = [{"_id": str(number), "title": f"bees word{number}"} for number in range(200)]
    stats, *_ = read(model, tmp_path, (json.dumps(each).encode() for each in records), max_words=10)
    assert len(stats.terms) == 10
    assert stats.terms.df("bees") == 200
    assert stats.terms.dropped_words > 0


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


def test_a_plain_beir_folder_is_built(build: Run, tmp_path: Path, live: Live) -> None:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "bees"}\n')
    (folder / "corpus.jsonl").write_text(
        '{"_id": "1", "title": "", "text": "Bees find the way home.", "metadata": {}}\n'
        '{"_id": "2", "title": "Owls", "text": "Owls hunt at night."}\n'
    )
    assert build(folder).exit_code == 0
    assert search(live(), "owls at night", 1) == ["2"]


def test_several_files_are_one_corpus_and_an_id_counts_across_them(
    build: Run, output: Path, tmp_path: Path, live: Live
) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "b.jsonl").write_text('{"_id": "2", "title": "owls"}\n{"_id": "1", "title": "again"}\n')
    (folder / "a.jsonl").write_text('{"_id": "1", "title": "bees"}\n')
    assert build(folder, "--max-reject-ratio", 0.5).exit_code == 0
    index = live()
    assert [document.id for document in index[STORED_FIELDS].scan()] == ["1", "2"]
    (reject,) = (output / index.version / "rejects.jsonl").read_text().splitlines()
    reason = "duplicate '_id': '1' came before, the first one is kept"
    found = {"file": "b.jsonl", "line": 2, "id": "1", "reason": reason}
    assert json.loads(reject) == {**found, "start": json.loads(reject)["start"]}


def test_keys_are_mapped_to_fields(build: Run, lines_file: LinesFile, live: Live, output: Path) -> None:
    record = {"key": "1", "headline": "bees", "body": "home", "year": 1}
    pairs = ("headline=title", "body=text", "key=_id", "links=anchor")
    options = [part for pair in pairs for part in ("--rename-field", pair)]
    done = build(
        lines_file([record, {"key": "2", "text": "a", "body": "b"}, record]),
        *options,
        "--max-reject-ratio",
        0.7,
    )
    assert done.exit_code == 0, done.stderr
    assert "no record has the key 'links' of --rename-field\n" in done.stdout and "'body'" not in done.stdout
    (found,) = live()[STORED_FIELDS].scan()
    assert (found.id, found.fields) == ("1", {"title": ("bees",), "text": ("home",)})
    assert found.metadata == {"year": 1}
    rejects = (output / live().version / "rejects.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in rejects] == ["2", "1"]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["headline"], "--rename-field takes FOUND=WANTED"),
        (["=title"], "--rename-field takes FOUND=WANTED"),
        (["headline=titel"], "the model reads _id, title, anchor, clicked_queries, url, text, not 'titel'"),
        (["a=title", "b=title"], "mapped twice"),
        (["a=title", "a=text"], "mapped twice"),
    ],
)
def test_a_map_that_cannot_be_meant_is_refused(
    build: Run, output: Path, toy_corpus: Path, pairs: list[str], message: str
) -> None:
    done = build(toy_corpus, *(part for pair in pairs for part in ("--rename-field", pair)))
    assert done.exit_code == 2 and message in done.stderr
    assert names(output) == []


@pytest.mark.parametrize("text", ["\u200b\u200d", "!?…東京\U0001f41d", "a" * 5000, "\0", "\ud800"])
def test_one_odd_document_is_enough_for_an_index(
    build: Run, lines_file: LinesFile, text: str, live: Live
) -> None:
    done = build(lines_file([{"_id": "odd", "text": text}]))
    assert done.exit_code == 0, done.stderr
    assert live()[STORED_FIELDS].count == 1


def test_rejects_up_to_a_share_lie_in_the_version_and_are_counted(
    build: Run, output: Path, lines_file: LinesFile, tmp_path: Path, live: Live
) -> None:
    good = ({"_id": str(number), "title": "bees"} for number in range(8))
    done = build(lines_file([*good, b"{broken", {"title": "no id"}]), "--json", tmp_path / "r.json")
    assert done.exit_code == 0
    index = live()
    rejects = output / index.version / "rejects.jsonl"
    assert [json.loads(line)["line"] for line in rejects.read_text().splitlines()] == [9, 10]
    assert "rejects.jsonl" in index.manifest.files
    report = report_of(tmp_path / "r.json")
    counts = {"documents": 8, "reused": 0, "rejects": 2, "lines": 10, "read_bytes": 0}
    assert report["counts"] | {"read_bytes": 0} == counts
    assert report["rejects"] == {"not JSON": 1, "no id": 1}
    assert f"2 lines rejected: 1 x not JSON, 1 x no id; all are in {rejects}" in done.stdout


def test_too_many_rejects_fail_and_leave_the_live_version(
    build: Run, output: Path, lines_file: LinesFile, toy_corpus: Path, tmp_path: Path
) -> None:
    assert build(toy_corpus).exit_code == 0
    before = {name: (output / name).stat().st_mtime_ns for name in names(output)}
    done = build(lines_file([{"_id": "a", "title": "bees"}, b"{", b"["]), "--json", tmp_path / "r.json")
    assert done.exit_code == 4
    assert "2 of 3 input lines are invalid (limit: 20%, --max-reject-ratio)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("glow: ")
    (kept,) = output.glob("rejects-*.jsonl")
    assert str(kept) in done.stderr
    assert len(kept.read_text().splitlines()) == 2
    assert {name: (output / name).stat().st_mtime_ns for name in names(output) if name != kept.name} == before
    report = report_of(tmp_path / "r.json")
    assert (report["status"], report["code"]) == ("failed", "build_failed")
    for part in (report["error"], "input.jsonl line 2: not JSON: ", f"All are in {kept}. The live index is"):
        assert part in done.stderr


NO_ID = '{"kind": 1, "text": "a"}\n'
NAMED = '{"kind": 1, "name": "A bee", "sku": "1", "text": "a"}\n{"kind": 1, "name": "An ant", "sku": 2, "text": "a"}'


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", "", "the input holds no document"),
        ("a.jsonl", "\n \n", "the input holds no document"),
        ("a.jsonl", '{"_id": "a"}\n', "1 of 1 input lines are invalid (so there is no document)"),
        ("a.jsonl", NO_ID * 2, "--generate-ids takes a hash"),
        ("a.jsonl", NAMED, "its keys sku and name would do: --id-field sku"),
        ("a.log", "bees\nants\n", "CSV and TSV"),
    ],
)
def test_input_without_a_document_fails_and_says_what_to_do(
    build: Run, output: Path, tmp_path: Path, name: str, content: str, said: str
) -> None:
    (tmp_path / name).write_text(content)
    done = build(tmp_path / name, "--max-reject-ratio", 1.0)
    assert done.exit_code == 4 and said in done.stderr
    assert not IndexRoot(output).versions()


def test_ids_come_from_id_a_named_key_or_the_content(
    build: Run, run: Run, lines_file: LinesFile, live: Live, output: Path, toy_model: Path
) -> None:
    """A key that is named wins and stays metadata; `id` does not. Upserts use what the build recorded."""
    given: list[dict[str, object]] = [
        {"id": 7, "sku": "a-1", "text": "bees", "year": 1},
        {"_id": "x", "id": 8, "sku": "a-2", "text": "ants"},
    ]
    cases: dict[tuple[str, ...], tuple[str, list[str], list[list[str]]]] = {
        (): ("ids from `id`, `_id`", ["7", "x"], [["sku", "year"], ["id", "sku"]]),
        ("--id-field", "sku"): ("ids from `sku`", ["a-1", "a-2"], [["id", "sku", "year"], ["id", "sku"]]),
    }
    for flags, (said, ids, keys) in cases.items():
        done = build(lines_file(given), *flags)
        assert done.exit_code == 0 and said in done.stdout, done.output
        documents = list(live()[STORED_FIELDS].scan())
        assert [each.id for each in documents] == ids
        assert [sorted(each.metadata) for each in documents] == keys
    changed = lines_file([{"id": 70, "sku": "a-1", "text": "bees and wasps"}])
    done = run("upsert", "--input", changed, "--index-root", output, "--model", toy_model)
    assert done.exit_code == 0 and "1 replaced" in done.stdout, done.output


def test_equal_content_without_id_is_one_document(build: Run, lines_file: LinesFile, live: Live) -> None:
    lines = [b'{"text": "bees", "year": 1}', b'{"year": 1, "text": "bees"}', b'{"text": "ants"}']
    done = build(lines_file(lines), "--generate-ids", "--max-reject-ratio", "0.5")
    assert done.exit_code == 0, done.output
    assert "ids from a hash of the content" in done.stdout and "1 x duplicate content" in done.stdout
    assert [len(each.id) for each in live()[STORED_FIELDS].scan()] == [20, 20]
