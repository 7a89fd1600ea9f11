"""`glow tune`: the better part gets the weight, the gain is that of queries that did not choose, a new version has it."""

import json
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest

import glow_index_builder.versions.tune
from glow.artifact import IndexRoot, verify
from glow.evaluation.measures import dcg
from glow.index import DEFAULT_FUSION, UNCALIBRATED, Fusion, Index, Ranking
from glow.index.stored_fields import STORED_FIELDS
from glow.search import rank_hybrid
from glow_index_builder.versions.tune import Candidates, ndcg, settings, tune
from tests.asked import asked_of
from tests.index_builder.conftest import Run, report_of, write_judged
from tests.made_index import opened

DOCUMENTS = 40


def query(relevant: dict[int, int], good_part: str | None, seed: int) -> Candidates:
    """A query whose relevant documents one part ranks first, while the other ranks at random."""
    generator = np.random.default_rng(seed)
    parts: dict[str, Ranking] = {}
    scores: dict[str, np.ndarray] = {}  # type: ignore[type-arg]
    for name in ("dense", "lexical"):
        drawn = generator.random(DOCUMENTS).astype(np.float32) * 0.5
        if name == good_part:
            drawn[list(relevant)] += 0.5
        ranked = np.argsort(-drawn, kind="stable")
        scores[name], parts[name] = drawn, (drawn[ranked], ranked)
    best, rows = dcg(sorted(relevant.values(), reverse=True)[:10]), np.arange(DOCUMENTS)
    known = (scores["dense"], scores["lexical"], 1.0, relevant, best)
    return Candidates(parts["dense"], parts["lexical"], rows, *known)


def queries(good_part: str | None, count: int = 60) -> list[Candidates]:
    generator = np.random.default_rng(7)
    return [
        query({int(row): 1 for row in generator.choice(DOCUMENTS, 3, replace=False)}, good_part, seed)
        for seed in range(count)
    ]


@pytest.mark.parametrize("part", ["dense", "lexical"])
def test_the_part_that_ranks_well_gets_the_weight(part: str) -> None:
    tuned = tune(queries(part), None)
    assert tune(queries(part), None) == tuned
    weights = tuned.fusion.weights.model_dump()
    assert weights[part] > 3 * min(weights.values())
    assert max(tuned.dense, tuned.lexical) == pytest.approx(1.0)
    assert tuned.fitted == pytest.approx(1.0)
    assert tuned.validated == pytest.approx(1.0, abs=0.01)
    assert tuned.gain == pytest.approx(tuned.validated - tuned.default)
    assert tuned.low <= tuned.gain <= tuned.high
    if part == "lexical":  # the default goes by the vectors, which are wrong here
        assert tuned.low > 0.05


def test_where_nothing_can_be_learned_the_gain_is_not_told_from_none() -> None:
    tuned = tune(queries(None, count=25), None)
    assert tuned.fitted >= tuned.default  # the best of many settings looks better than it is
    assert tuned.low < 0 < tuned.high
    assert tuned.validated < tuned.fitted


def test_of_equals_the_default_stays() -> None:
    alike = [query({}, None, seed) for seed in range(6)]
    tuned = tune(alike, None)
    assert tuned.fusion == DEFAULT_FUSION == settings()[0]
    assert (tuned.gain, tuned.low, tuned.high) == (0.0, 0.0, 0.0)


def test_ndcg_is_that_of_ir_measures() -> None:
    """The reference, graded and with more relevant documents than the cut-off holds."""
    for seed in range(10):
        generator = np.random.default_rng(seed)
        count = int(generator.integers(1, 15))
        rows = generator.choice(DOCUMENTS, count, replace=False).tolist()
        some = query({row: int(generator.integers(1, 4)) for row in rows}, None, seed)
        ranked = some.dense[1]
        qrels = [ir_measures.Qrel("q", str(row), grade) for row, grade in some.grades.items()]
        places = enumerate(ranked.tolist())
        run = [ir_measures.ScoredDoc("q", str(row), -float(place)) for place, row in places]
        expected = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)
        assert ndcg(ranked, some) == pytest.approx(expected[ir_measures.nDCG @ 10], abs=1e-9)


QUERIES = (
    ("q-bees", "how do bees find home", "toy/0", 1),
    ("q-ants", "ants trail of scent to food", "toy/1", 1),
    ("q-owls", "soft feathers at night", "toy/3", 1),
    ("q-none", "nothing here is relevant", "toy/2", 0),
)


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    return write_judged(tmp_path / "judged", QUERIES)


@pytest.fixture
def tune_root(run: Run, output: Path, judged: Path) -> Run:
    return lambda *options: run("tune", "--index-root", output, "--data", judged, "--split", "dev", *options)


def test_a_tuned_version_shares_its_files_and_is_published(
    root: IndexRoot, tune_root: Run, tmp_path: Path
) -> None:
    source, report_file = root.current(), tmp_path / "tuned.json"
    done = tune_root("--json", report_file)
    assert done.exit_code == 0, done.output
    version = root.current()
    assert version != source
    manifest = verify(root.folder(version), "index")
    assert manifest.parents["version"] == {"name": source, "hash": root.manifest(source).hash}
    assert manifest.hashes == root.manifest(source).hashes
    index = Index.open(root.folder(version))
    report = report_of(report_file)
    assert index.fusion == Fusion.model_validate(report["fusion"])
    assert (report["version"], report["tuned_version"], report["published"]) == (version, source, True)
    assert report["nDCG@10"]["queries"] == 3  # the fourth has no relevant document
    assert report["calibrated"] is False and index.calibration == UNCALIBRATED
    assert report["nDCG@10"]["fitted"] >= report["nDCG@10"]["default"]
    for name in ("vectors.faiss", "impacts/rows.npy"):
        old, new = (root.folder(some) / name for some in (source, version))
        assert old.stat().st_ino == new.stat().st_ino


def test_enough_queries_calibrate_the_fusion_that_they_chose(
    root: IndexRoot, tune_root: Run, toy_corpus: Path, judged: Path, tmp_path: Path
) -> None:
    documents = [json.loads(line) for line in toy_corpus.read_text().splitlines()]
    asked: list[tuple[str, str, str, int]] = []
    for number in range(240):
        document, other = documents[number % len(documents)], documents[(number * 7 + 3) % len(documents)]
        words = document["text"].split()[number % 4 :][:5]
        right = (document if number % 3 else other)["_id"]  # a third are answered by chance alone
        asked.append((f"q{number}", " ".join(words), right, 1))
    write_judged(judged, asked)
    done = tune_root("--json", tmp_path / "tuned.json")
    assert done.exit_code == 0, done.output
    index, report = opened(root), report_of(tmp_path / "tuned.json")
    assert report["fusion"]["method"] == "convex" and report["calibrated"] is True
    made = index.calibration.of(index.fusion)
    assert made is not None and made.standing + made.evidence > 0
    likely, hits = [], 0
    for _, text, right, _ in asked:
        found = rank_hybrid(index, asked_of(index, text), 10, calibrates=True)
        likely.append(float(found.scores[0]))
        hits += index[STORED_FIELDS].rows(found.rows[:1].tolist())[0].id == right
    assert sum(likely) / 240 == pytest.approx(hits / 240, abs=0.12)


def test_what_is_published_while_a_fusion_is_fitted_stays_live(
    build: Run, root: IndexRoot, tune_root: Run, toy_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion that was published meanwhile must not be undone by a version made of the one before it."""
    source = root.current()

    def fit(*arguments: Any) -> Any:
        monkeypatch.undo()
        assert build(toy_corpus).exit_code == 0
        return tune(*arguments)

    tune = glow_index_builder.versions.tune.tune  # type: ignore[attr-defined]  # the part itself, behind its view
    monkeypatch.setattr(glow_index_builder.versions.tune, "tune", fit)
    done = tune_root()
    assert done.exit_code == 4, done.output
    assert "tune again" in done.output
    assert len(root.versions()) == 2
    assert root.current() != source


def test_tuning_again_leaves_the_older_fusion_as_it_was(root: IndexRoot, tune_root: Run) -> None:
    assert tune_root().exit_code == 0
    first = root.current()
    before = (root.folder(first) / "fusion.json").read_bytes()
    assert tune_root("--no-publish", "--candidates", 10).exit_code == 0
    assert root.current() == first
    assert len(root.versions()) == 3
    assert (root.folder(first) / "fusion.json").read_bytes() == before
    for version in root.versions():
        verify(root.folder(version), "index")


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        (("--candidates", 9), 2, "--candidates: Input should be greater than or equal to 10, found 9"),
        (("--split", "test"), 2, "no qrels/SPLIT.tsv for test"),
        (("--split", "few"), 2, "has 1 queries with a word and a relevant document"),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    root: IndexRoot, tune_root: Run, judged: Path, options: tuple[object, ...], exit_code: int, message: str
) -> None:
    (judged / "qrels" / "few.tsv").write_text("query-id\tcorpus-id\tscore\nq-bees\ttoy/0\t1\n")
    done = tune_root(*options)
    assert done.exit_code == exit_code and message in done.output
    assert len(root.versions()) == 1


def test_an_index_without_words_cannot_be_tuned(build: Run, tune_root: Run, toy_corpus: Path) -> None:
    assert build(toy_corpus, "--no-lexical").exit_code == 0
    done = tune_root()
    assert done.exit_code == 3 and "build it with --lexical" in done.output
