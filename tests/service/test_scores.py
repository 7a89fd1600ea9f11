"""Scores that are probabilities, how sure the first hit is, and filters that change neither score nor order."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glow.artifact import CALIBRATION_FILE, IndexRoot
from glow.errors import FormatError
from glow.index import DEFAULT_FUSION, CalibratedFusion, Calibration, Index
from glow.index.vectors import VECTORS
from glow_index_builder.versions.writer import derive
from glow_service.search.plan import plan_search
from glow_service.search.request import SearchRequest, parsed
from glow_service.search.run import SearchSession
from glow_service.settings import Settings
from tests.made_index import deleted, documents, upserted
from tests.service import asking
from tests.service.asking import BuildIndex, Serve, live_index, without_times

NIGHT = "how do bees find home at night"
MADE = Calibration(sharpness=50.0, standing=0.5, evidence=3.0, openness=-0.7, constant=-1.0)


def calibrate(root: IndexRoot, text: str = "") -> None:
    """Publishes the live version with a calibration."""
    fusion = CalibratedFusion(weights=DEFAULT_FUSION.weights, calibration=MADE)

    def add(folder: Path) -> None:
        fusion.save(folder / CALIBRATION_FILE)
        if text:
            (folder / CALIBRATION_FILE).write_text(text)

    root.publish(derive(root, root.current(), {}, {}, add))


@pytest.fixture(scope="module")
def client(build_index: BuildIndex, serve: Serve) -> Iterator[httpx.Client]:
    root = IndexRoot(build_index(documents(), index="flat"))
    calibrate(root)
    with serve(root.path) as client:
        yield client


def ask(client: httpx.Client, query: str = NIGHT, **more: Any) -> dict[str, Any]:
    return asking.ask(client, query, **{"top_k": 50, **more})


def scores(found: dict[str, Any]) -> dict[str, float]:
    return {hit["id"]: hit["score"] for hit in found["hits"]}


def test_scores_are_probabilities_in_the_order_of_the_evidence(client: httpx.Client) -> None:
    found = ask(client)
    assert all(0 < hit["score"] < 1 for hit in found["hits"])
    evidence = [hit["scores"]["fused"] for hit in found["hits"]]
    assert evidence == sorted(evidence, reverse=True) and found["confidence"] == "high"
    assert without_times(ask(client)) == without_times(found)
    least = found["hits"][9]["score"] - 1e-6  # it was rounded
    kept = ask(client, min_score=least)
    assert scores(kept) == {name: score for name, score in scores(found).items() if score >= least}


def test_where_scores_are_no_probabilities_nothing_is_said(client: httpx.Client, http: httpx.Client) -> None:
    kinds = ({"retriever": "dense"}, {"retriever": "lexical"}, {"fusion": {"method": "rrf"}})
    for more in (*kinds, {"fusion": {"weights": {"dense": 1, "lexical": 3}}}):
        found = ask(client, **more)
        assert "confidence" not in found and "fused" not in found["hits"][0]["scores"]
    assert "confidence" not in ask(http)


def test_the_first_hit_decides_how_sure_an_answer_is(client: httpx.Client) -> None:
    for query in (NIGHT, "steam engines", "why is the sky blue in gardens"):
        found = ask(client, query, typos="off", sort=[{"field": "year"}])
        first = ask(client, query, typos="off", top_k=1)
        assert found["confidence"] == first["confidence"]
    title = first["hits"][0]["fields"]["title"]
    assert ask(client, title, retriever="hybrid")["confidence"] == "high"
    assert ask(client, filter={"field": "lang", "eq": "xx"})["confidence"] == "none"


def test_a_damaged_calibration_is_refused_by_name(index_copy: Path) -> None:
    first = IndexRoot(index_copy).current()
    for text in ("{", '{"format": 2}', '{"calibration": {"sharpness": 1}}'):
        IndexRoot(index_copy).publish(first)
        calibrate(IndexRoot(index_copy), text)
        with pytest.raises(FormatError, match=r"calibration\.json"):
            live_index(index_copy)


def test_a_re_ranker_adds_to_evidence(rerank_index: Path, serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    shutil.copytree(rerank_index, folder)
    with serve(folder) as client:
        before = ask(client, rerank=True)
    calibrate(IndexRoot(folder))
    with serve(folder) as client:
        reranked = ask(client, rerank=True)
        assert scores(reranked) == scores(before) and "confidence" not in reranked
        assert "confidence" in ask(client)


def test_reasons_say_what_each_column_gave(client: httpx.Client) -> None:
    for hit in ask(client, "bees that find home", explain=True, top_k=5)["hits"]:
        gave = hit["explanation"]["fused"]
        fused = pytest.approx(hit["scores"]["fused"], abs=3e-4)
        assert set(gave) == {"dense", "words"} and sum(gave.values()) == fused
        assert gave["words"] >= -1e-4 and (gave["words"] > 1e-4) == (hit["scores"]["lexical"] > 0)


# A filter, a tenant's key or `min_score` changes neither score nor order of the hits that it keeps.

Json = dict[str, Any]
COUNT, ALL = 150, 400
"""Documents of the made corpus, and more candidates than any version holds documents."""
SETTINGS = Settings(index_root=Path("unused"), max_top_k=ALL)
QUERIES = ("how do bees find home at night", "tea grows in gardens", "volcano", "owls of the north")
FIELDS = st.sampled_from(
    [
        {"field": "lang", "eq": "en"},
        {"field": "lang", "in": ["de", "fr"]},
        {"field": "year", "gte": 2004},
        {"field": "year", "lt": 2002},
        {"field": "open", "exists": True},
        {"field": "tags", "eq": "t2"},
    ]
)
PAIRS = st.lists(FIELDS, min_size=2, max_size=2)
FILTERS = st.one_of(
    FIELDS,
    FIELDS.map(lambda each: {"not": each}),
    PAIRS.map(lambda each: {"and": each}),
    PAIRS.map(lambda each: {"or": each}),
)
MORE = st.sampled_from(
    [
        {},
        {"boosts": [{"filter": {"field": "lang", "eq": "fr"}, "factor": 3}]},
        {"fusion": {"method": "convex", "weights": {"dense": 0.2, "lexical": 0.8}}},
        {"params": {"exact": True}},
    ]
)


@pytest.fixture(scope="module", params=["ivf-pq", "passages", "learned", "flat"])
def index(
    request: pytest.FixtureRequest, build_index: BuildIndex, toy_model: Path, learned_model: Path
) -> Index:
    """A base with a delta that replaces, adds and deletes."""
    model = learned_model if request.param == "learned" else toy_model
    kinds: dict[str, Json] = {
        "ivf-pq": {"index": "ivf-pq"},
        "passages": {"passages": True, "index": "hnsw"},
        "learned": {"learned": True, "index": "flat"},
        "flat": {"index": "flat"},
    }
    root = IndexRoot(build_index(documents(COUNT), model=model, **kinds[request.param]))
    new = documents(COUNT + 20)[COUNT - 20 :]
    upserted(root, model, [{**each, "title": f"{each['title']} in the end"} for each in new])
    deleted(root, *(f"d/{number}" for number in range(3, COUNT, 17)))
    return live_index(root.path)


def hits(index: Index, body: Json) -> dict[str, float]:
    """Id -> score as it is ranked by, unrounded, best first."""
    request = parsed(SearchRequest, {"candidates": ALL, "top_k": ALL, "typos": "off", "match": "any", **body})
    call = plan_search(request, SETTINGS, index)
    session = SearchSession(index, call)
    found = session.run().found.hits
    assert session.ranked is not None
    scores = session.ranked.scores[: len(found)].tolist()
    return dict(zip([hit.id for hit in found], scores, strict=True))


def require_kept(whole: dict[str, float], kept: dict[str, float]) -> None:
    """What both have has the same scores, to the bit, in the same order."""
    both = [name for name in whole if name in kept]
    assert [name for name in kept if name in whole] == both
    assert {name: kept[name] for name in both} == {name: whole[name] for name in both}


@settings(max_examples=12)
@given(
    query=st.sampled_from(QUERIES),
    wanted=FILTERS,
    more=MORE,
    retriever=st.sampled_from(("hybrid", "hybrid", "dense", "lexical")),
)
def test_a_filter_changes_no_score_and_no_order(
    index: Index, query: str, wanted: Json, more: Json, retriever: str
) -> None:
    body = {"query": query, "retriever": retriever, **(more if retriever == "hybrid" else {})}
    whole = hits(index, body)
    kept = hits(index, {**body, "filter": wanted})
    require_kept(whole, kept)
    if index[VECTORS].kind == "flat" and retriever == "hybrid":
        assert kept.keys() <= whole.keys()
    few = hits(index, {**body, "filter": wanted, "candidates": 20, "top_k": 20})
    if index[VECTORS].kind == "flat":  # the others go deeper when they are asked for more
        require_kept(whole, few)
    if retriever == "dense":
        vector = index.encoder.run([index.preprocessor.query(query)])[0].tolist()
        for without in ({"vector": vector}, {"like": {"id": "d/12"}}):
            require_kept(hits(index, without), hits(index, {**without, "filter": wanted}))
    least = float(np.median(list(whole.values()) or [0.0]))
    above = {name: score for name, score in whole.items() if score >= least}
    assert hits(index, {**body, "min_score": least}) == above
    require_kept(whole, hits(index, {**body, "filter": wanted, "min_score": least}))
