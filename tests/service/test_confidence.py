"""Scores that are probabilities, how sure the first hit is, and words that no document holds, over HTTP."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from glow.artifact import CALIBRATION_FILE, IndexRoot
from glow.contract import SearchResult
from glow.errors import FormatError
from glow.index import DEFAULT_FUSION, Calibration, Calibrations, Index
from glow_index_builder.deltas import CompactOptions, UpsertOptions, compact, upsert
from glow_index_builder.progress import Stages
from glow_index_builder.versions.writer import derive
from glow_service.app import create_app
from glow_service.settings import Settings
from tests.made_index import documents, made, write
from tests.records import read_whole

QUERY = "how do bees find home at night"
LATE = Calibration(
    sharpness=50.0, standing=0.5, evidence=3.0, openness=-0.7, constant=-1.0, high=0.5, none=0.2
)
PLAIN = LATE.model_copy(update={"constant": -2.0})
Serve = Callable[..., AbstractContextManager[httpx.Client]]


def calibrate(root: IndexRoot, text: str | None = None) -> None:
    """Publishes the live version with a calibration."""
    made_of = Calibrations(weights=DEFAULT_FUSION.weights, with_late=LATE, without_late=PLAIN)

    def add(folder: Path) -> None:
        if text is None:
            made_of.save(folder / CALIBRATION_FILE)
        else:
            (folder / CALIBRATION_FILE).write_text(text)

    root.publish(derive(root, root.current(), {}, {}, add))


@pytest.fixture(scope="module")
def root(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> IndexRoot:
    folder = tmp_path_factory.mktemp("calibrated")
    found = made(toy_model, write(folder / "made.jsonl", documents()), folder / "index", index="flat")
    calibrate(found)
    return found


@pytest.fixture
def serve(serve_app: Callable[[FastAPI], AbstractContextManager[httpx.Client]]) -> Serve:
    """Serves an index in a thread of this process."""

    @contextmanager
    def served(root: IndexRoot, **options: Any) -> Iterator[httpx.Client]:
        app = create_app(Settings(index_root=root.path, **options), on_failure=lambda: None)
        with serve_app(app) as client:
            yield client

    return served


def ask(client: httpx.Client, query: str = QUERY, **more: Any) -> dict[str, Any]:
    response = client.post("/search", json={"query": query, "top_k": 50, **more})
    assert response.status_code == 200, response.text
    read_whole(response.content, SearchResult)
    found: dict[str, Any] = response.json()
    return found


def scores(found: dict[str, Any]) -> dict[str, float]:
    return {hit["id"]: hit["score"] for hit in found["hits"]}


def test_scores_are_probabilities_in_the_order_of_the_evidence(root: IndexRoot, serve: Serve) -> None:
    with serve(root, cache_entries=100) as client:
        found = ask(client)
        assert all(0 < hit["score"] < 1 for hit in found["hits"])
        evidence = [hit["scores"]["fused"] for hit in found["hits"]]
        assert evidence == sorted(evidence, reverse=True) and found["confidence"] == "high"
        assert ask(client) | {"request_id": "", "took_ms": 0, "timings_ms": {}} == found | {
            "request_id": "", "took_ms": 0, "timings_ms": {},
        }  # fmt: skip
        without = ask(client, rerank=False)
        assert "confidence" in without and scores(without) != scores(found)
        least = found["hits"][9]["score"] - 1e-6  # it was rounded
        kept = ask(client, min_score=least)
        assert scores(kept) == {name: score for name, score in scores(found).items() if score >= least}


def test_a_filter_changes_no_score(root: IndexRoot, serve: Serve) -> None:
    with serve(root) as client:
        every = scores(ask(client, top_k=100, candidates=240))
        for wanted in (
            {"field": "lang", "eq": "de"}, {"field": "year", "gte": 2010}, {"field": "tags", "eq": "t4"},
        ):  # fmt: skip
            kept = ask(client, filter=wanted, top_k=100, candidates=240)
            assert kept["hits"] and "confidence" in kept
            both = {name: score for name, score in scores(kept).items() if name in every}
            assert both == {name: every[name] for name in both} and len(both) > 5


def test_where_scores_are_no_probabilities_nothing_is_said(
    root: IndexRoot, toy_index: Path, serve: Serve
) -> None:
    with serve(root) as client:
        for more in ({"retriever": "dense"}, {"retriever": "lexical"}, {"fusion": {"method": "rrf"}},
                     {"fusion": {"weights": {"dense": 1, "lexical": 3}}}):  # fmt: skip
            found = ask(client, **more)
            assert "confidence" not in found and "fused" not in found["hits"][0]["scores"]
    with serve(IndexRoot(toy_index)) as client:
        assert "confidence" not in ask(client)


def test_words_that_no_document_holds_are_named(root: IndexRoot, serve: Serve) -> None:
    with serve(root) as client:
        found = ask(client, "the zyzzyva and bees quuxify zyzzyva", typos="off")
        assert found["query"]["unknown"] == ["zyzzyva", "quuxify"]
        assert "unknown" not in ask(client)["query"]
        nothing = ask(client, "zzqx wvvk", typos="off")
        assert nothing["query"]["unknown"] == ["zzqx", "wvvk"] and nothing["hits"]


def test_the_first_hit_decides_how_sure_an_answer_is(root: IndexRoot, serve: Serve) -> None:
    with serve(root) as client:
        for query in (QUERY, "steam engines", "zzqx wvvk", "why is the sky blue in gardens"):
            found = ask(client, query, typos="off", sort=[{"field": "year"}])
            first = ask(client, query, typos="off")["hits"][0]["score"]
            expected = "high" if first >= LATE.high else "none" if first < LATE.none else "low"
            assert found["confidence"] == expected
        assert ask(client, filter={"field": "lang", "eq": "xx"})["confidence"] == "none"


def test_a_delta_and_its_compaction_keep_the_calibration(
    toy_model: Path, toy_corpus: Path, serve: Serve, tmp_path: Path
) -> None:
    root = made(toy_model, toy_corpus, tmp_path / "index")
    calibrate(root)
    new = tmp_path / "new"
    new.write_text('{"_id": "z", "text": "a zebra in the snow at night"}\n')
    upsert(
        UpsertOptions(index_root=root.path, source=str(new), model=toy_model),
        Stages((tmp_path / "log").open("w")),
    )
    with serve(root) as client:
        changed = ask(client)
    compact(CompactOptions(index_root=root.path), Stages((tmp_path / "log").open("w")))
    with serve(root) as client:
        assert scores(ask(client)) == scores(changed) and changed["confidence"]


@pytest.mark.parametrize("text", ["{", '{"format": 2}', '{"with_late": {"sharpness": 1}}'])
def test_a_damaged_calibration_is_refused_by_name(
    text: str, toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    root = made(toy_model, toy_corpus, tmp_path / "index")
    calibrate(root, text)
    with pytest.raises(FormatError, match=r"calibration\.json"):
        Index.open(root.folder(root.current()))


def test_a_re_ranker_adds_to_evidence(rerank_index: Path, serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    shutil.copytree(rerank_index, folder)
    with serve(IndexRoot(folder)) as client:
        before = ask(client, rerank=True)
    calibrate(IndexRoot(folder))
    with serve(IndexRoot(folder)) as client:
        assert scores(ask(client, rerank=True)) == scores(before) and "confidence" not in ask(
            client, rerank=True
        )
        assert "confidence" in ask(client)


def test_reasons_say_what_each_column_gave(root: IndexRoot, serve: Serve) -> None:
    with serve(root) as client:
        for more, columns in (({}, {"dense", "late", "words"}), ({"rerank": False}, {"dense", "words"})):
            found = ask(client, "bees that find home", explain=True, top_k=5, **more)
            for hit in found["hits"]:
                gave = hit["explanation"]["fused"]
                assert set(gave) == columns and sum(gave.values()) == pytest.approx(
                    hit["scores"]["fused"], abs=3e-4
                )
                assert gave["words"] >= -1e-4 and (gave["words"] > 1e-4) == (hit["scores"]["lexical"] > 0)
