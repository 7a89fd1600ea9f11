"""`glow tune`: a new version of the same files with a fusion of its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import glow_index_builder.versions.tune
from glow.artifact import IndexRoot, verify
from glow.index import UNCALIBRATED, Fusion, Index
from glow.index.stored_fields import STORED_FIELDS
from glow.search import rank_hybrid
from tests.asked import asked_of

Invoke = Callable[..., Any]
QUERIES = {
    "q-bees": ("how do bees find home", "toy/0"),
    "q-ants": ("ants trail of scent to food", "toy/1"),
    "q-owls": ("soft feathers at night", "toy/3"),
    "q-none": ("nothing here is relevant", None),
}


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    folder = tmp_path / "judged"
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": name, "text": text}) for name, (text, _) in QUERIES.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    rows = [
        f"{name}\t{document or 'toy/2'}\t{int(document is not None)}"
        for name, (_, document) in QUERIES.items()
    ]
    (folder / "qrels" / "dev.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))
    return folder


def test_a_tuned_version_shares_its_files_and_is_published(
    build: Invoke, run: Invoke, output: Path, toy_corpus: Path, judged: Path, tmp_path: Path
) -> None:
    assert build(toy_corpus).exit_code == 0
    root = IndexRoot(output)
    source = root.current()
    report_file = tmp_path / "tuned.json"
    done = run("tune", "--index-root", output, "--data", judged, "--split", "dev", "--json", report_file)
    assert done.exit_code == 0, done.output
    version = root.current()
    assert version != source
    manifest = verify(root.folder(version), "index")
    assert manifest.parents["version"] == {"name": source, "hash": root.manifest(source).hash}
    assert manifest.hashes == root.manifest(source).hashes
    index = Index.open(root.folder(version))
    report = json.loads(report_file.read_bytes())
    assert index.fusion == Fusion.model_validate(report["fusion"])
    assert (report["version"], report["tuned_version"], report["published"]) == (version, source, True)
    assert report["nDCG@10"]["queries"] == 3  # the fourth has no relevant document
    assert report["calibrated"] is False and index.calibrations == UNCALIBRATED
    assert report["nDCG@10"]["fitted"] >= report["nDCG@10"]["default"]
    for name in ("vectors.faiss", "impacts/rows.npy"):
        old, new = (root.folder(some) / name for some in (source, version))
        assert old.stat().st_ino == new.stat().st_ino


def test_enough_queries_calibrate_the_fusion_that_they_chose(
    build: Invoke, run: Invoke, output: Path, toy_corpus: Path, judged: Path, tmp_path: Path
) -> None:
    assert build(toy_corpus).exit_code == 0
    documents = [json.loads(line) for line in toy_corpus.read_text().splitlines()]
    asked, rows = [], ["query-id\tcorpus-id\tscore"]
    for number in range(120):
        document, other = documents[number % len(documents)], documents[(number * 7 + 3) % len(documents)]
        words = document["text"].split()[number % 4 :][:5]
        asked.append(json.dumps({"_id": f"q{number}", "text": " ".join(words)}))
        rows.append(
            f"q{number}\t{(document if number % 3 else other)['_id']}\t1"
        )  # a third are answered by chance alone
    (judged / "queries.jsonl").write_text("\n".join(asked))
    (judged / "qrels" / "dev.tsv").write_text("\n".join(rows))
    report_file = tmp_path / "tuned.json"
    done = run("tune", "--index-root", output, "--data", judged, "--split", "dev", "--json", report_file)
    assert done.exit_code == 0, done.output
    root, report = IndexRoot(output), json.loads(report_file.read_bytes())
    index = Index.open(root.folder(root.current()))
    assert report["fusion"]["method"] == "convex" and report["calibrated"] is True
    for late in (True, False):
        made = index.calibrations.of(index.fusion, late=late)
        assert made is not None and made.standing + made.evidence > 0 and 0 < made.none <= made.high <= 1
    likely, right = [], 0
    for line, row in zip(asked, rows[1:], strict=True):
        found = rank_hybrid(index, asked_of(index, json.loads(line)["text"]), 10, calibrates=True)
        assert found.calibration is not None
        likely.append(float(found.scores[0]))
        right += index[STORED_FIELDS].rows(found.rows[:1].tolist())[0].id == row.split("\t")[1]
    assert sum(likely) / 120 == pytest.approx(right / 120, abs=0.12)


def test_what_is_published_while_a_fusion_is_fitted_stays_live(
    build: Invoke,
    run: Invoke,
    output: Path,
    toy_corpus: Path,
    judged: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deletion that was published meanwhile must not be undone by a version made of the one before it."""
    assert build(toy_corpus).exit_code == 0
    root = IndexRoot(output)
    source = root.current()

    def fit(*arguments: Any) -> Any:
        monkeypatch.undo()
        assert build(toy_corpus).exit_code == 0
        return tune(*arguments)

    tune = glow_index_builder.versions.tune.tune  # type: ignore[attr-defined]  # the part itself, behind its view
    monkeypatch.setattr(glow_index_builder.versions.tune, "tune", fit)
    done = run("tune", "--index-root", output, "--data", judged, "--split", "dev")
    assert done.exit_code == 4, done.output
    assert "tune again" in done.output
    assert len(root.versions()) == 2
    assert root.current() != source


def test_tuning_again_leaves_the_older_fusion_as_it_was(
    build: Invoke, run: Invoke, output: Path, toy_corpus: Path, judged: Path
) -> None:
    assert build(toy_corpus).exit_code == 0
    root = IndexRoot(output)
    tune = ("tune", "--index-root", output, "--data", judged, "--split", "dev")
    assert run(*tune).exit_code == 0
    first = root.current()
    before = (root.folder(first) / "fusion.json").read_bytes()
    assert run(*tune, "--no-publish", "--candidates", 10).exit_code == 0
    assert root.current() == first
    assert len(root.versions()) == 3
    assert (root.folder(first) / "fusion.json").read_bytes() == before
    for version in root.versions():
        verify(root.folder(version), "index")


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        (("--candidates", 9), 2, "--candidates must be at least 10, found 9"),
        (("--split", "test"), 2, "no qrels/SPLIT.tsv for test"),
        (("--split", "few"), 2, "has 1 queries with a word and a relevant document"),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    build: Invoke,
    run: Invoke,
    output: Path,
    toy_corpus: Path,
    judged: Path,
    options: tuple[object, ...],
    exit_code: int,
    message: str,
) -> None:
    (judged / "qrels" / "few.tsv").write_text("query-id\tcorpus-id\tscore\nq-bees\ttoy/0\t1\n")
    assert build(toy_corpus).exit_code == 0
    done = run("tune", "--index-root", output, "--data", judged, "--split", "dev", *options)
    assert done.exit_code == exit_code
    assert message in done.output
    assert len(IndexRoot(output).versions()) == 1


def test_an_index_without_words_cannot_be_tuned(
    build: Invoke, run: Invoke, output: Path, toy_corpus: Path, judged: Path
) -> None:
    assert build(toy_corpus, "--no-lexical").exit_code == 0
    done = run("tune", "--index-root", output, "--data", judged, "--split", "dev")
    assert done.exit_code == 3
    assert "build it with --lexical" in done.output
