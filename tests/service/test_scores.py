"""Scores that are probabilities, how sure the first hit is, and filters that change neither score nor order."""

import io
import json
import random
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
from glow_index_builder.deltas.compaction import compact
from glow_index_builder.deltas.plan import CompactOptions, DeleteOptions, UpsertOptions
from glow_index_builder.deltas.upsert import delete, upsert
from glow_index_builder.progress import Stages
from glow_index_builder.versions.writer import derive
from glow_service.search.plan import plan_search
from glow_service.search.request import SearchRequest, parsed
from glow_service.search.run import SearchSession
from glow_service.settings import Settings
from tests.made_index import documents, made, write
from tests.service import asking
from tests.service.asking import Serve, live_index

NIGHT = "how do bees find home at night"
MADE = Calibration(sharpness=50.0, standing=0.5, evidence=3.0, openness=-0.7, constant=-1.0)


def calibrate(root: IndexRoot, text: str | None = None) -> None:
    """Publishes the live version with a calibration."""
    made_of = CalibratedFusion(weights=DEFAULT_FUSION.weights, calibration=MADE)

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


@pytest.fixture(scope="module")
def client(root: IndexRoot, serve: Serve) -> Iterator[httpx.Client]:
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
    assert ask(client) | {"request_id": "", "took_ms": 0, "timings_ms": {}} == found | {
        "request_id": "", "took_ms": 0, "timings_ms": {},
    }  # fmt: skip
    least = found["hits"][9]["score"] - 1e-6  # it was rounded
    kept = ask(client, min_score=least)
    assert scores(kept) == {name: score for name, score in scores(found).items() if score >= least}


def test_where_scores_are_no_probabilities_nothing_is_said(client: httpx.Client, http: httpx.Client) -> None:
    kinds = ({"retriever": "dense"}, {"retriever": "lexical"}, {"fusion": {"method": "rrf"}})
    for more in (*kinds, {"fusion": {"weights": {"dense": 1, "lexical": 3}}}):
        found = ask(client, **more)
        assert "confidence" not in found and "fused" not in found["hits"][0]["scores"]
    assert "confidence" not in ask(http)


def test_words_that_no_document_holds_are_named(client: httpx.Client) -> None:
    found = ask(client, "the zyzzyva and bees quuxify zyzzyva", typos="off")
    assert found["query"]["unknown"] == ["zyzzyva", "quuxify"]
    assert "unknown" not in ask(client)["query"]
    nothing = ask(client, "zzqx wvvk", typos="off")
    assert nothing["query"]["unknown"] == ["zzqx", "wvvk"] and nothing["hits"]


def test_the_first_hit_decides_how_sure_an_answer_is(client: httpx.Client) -> None:
    for query in (NIGHT, "steam engines", "why is the sky blue in gardens"):
        found = ask(client, query, typos="off", sort=[{"field": "year"}])
        first = ask(client, query, typos="off", top_k=1)
        assert found["confidence"] == first["confidence"]
    title = first["hits"][0]["fields"]["title"]
    assert ask(client, title, retriever="hybrid")["confidence"] == "high"
    assert ask(client, filter={"field": "lang", "eq": "xx"})["confidence"] == "none"


def test_a_delta_is_seen_everywhere_and_its_compaction_changes_nothing(
    toy_model: Path, index_copy: Path, serve: Serve, tmp_path: Path
) -> None:
    root, stages = IndexRoot(index_copy), Stages(io.StringIO())
    calibrate(root)
    zebra = {"_id": "z", "title": "Zebras", "text": "a zebra in the snow at night", "lang": "is"}
    new = write(tmp_path / "new.jsonl", [zebra, {"_id": "toy/1", "text": "nothing of the kind"}])
    (tmp_path / "ids").write_text("toy/0\n")
    upsert(UpsertOptions(index_root=root.path, source=str(new), model=toy_model), stages)
    delete(DeleteOptions(index_root=root.path, source=str(tmp_path / "ids")), stages)
    looks = []
    for _ in range(2):
        with serve(root.path) as client:
            assert client.get("/info").json()["index"]["documents"] == 50
            assert client.get("/documents/toy/0").status_code == 404
            assert client.get("/documents/toy/1").json()["fields"] == {"text": "nothing of the kind"}
            for retriever in ("dense", "lexical", "hybrid"):
                first = ask(client, "zebra", retriever=retriever, filter={"field": "lang", "eq": "is"})
                assert asking.ids(first) == ["z"]
            whole = ask(client, facets=[{"field": "lang"}], explain=True, highlight=True, top_k=20)
            assert "toy/0" not in scores(whole) and whole["confidence"]
            assert {"value": "is", "count": 1} in whole["facets"]["lang"]["values"]
            looks.append((whole["hits"], whole["facets"]))
        compact(CompactOptions(index_root=root.path), stages)
    assert looks[0] == looks[1]


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
QUERIES = (
    "how do honey bees find the way home",
    "ants trail of scent",
    "boil an egg",
    "volcano",
    "the birds of the north",
)
FIELDS = st.sampled_from(
    [
        {"field": "lang", "eq": "en"},
        {"field": "lang", "in": ["de", "fr"]},
        {"field": "year", "gte": 2004},
        {"field": "year", "lt": 2002},
        {"field": "rare", "exists": True},
        {"field": "owner", "eq": "bob"},
    ]
)
FILTERS = st.one_of(
    FIELDS,
    st.builds(lambda each: {"not": each}, FIELDS),
    st.builds(lambda each: {"and": each}, st.lists(FIELDS, min_size=2, max_size=2)),
    st.builds(lambda each: {"or": each}, st.lists(FIELDS, min_size=2, max_size=2)),
)
MORE = st.sampled_from(
    [
        {},
        {"boosts": [{"filter": {"field": "lang", "eq": "fr"}, "factor": 3}]},
        {"fusion": {"method": "convex", "weights": {"dense": 0.2, "lexical": 0.8}}},
        {"params": {"exact": True}},
    ]
)


def records(seed: int, count: int, corpus: Path) -> list[Json]:
    """Documents of the toy corpus's sentences, some with the same text, with metadata."""
    chosen = random.Random(seed)  # noqa: S311 - test data
    lines = [json.loads(line) for line in corpus.read_text(encoding="utf-8").split("\n") if line]
    found = []
    for number in range(count):
        texts = [str(each["text"]) for each in chosen.choices(lines, k=chosen.choice((1, 1, 2, 12)))]
        found.append(
            {
                "_id": f"d/{number}",
                "title": chosen.choice(lines)["title"],
                "text": " ".join(texts),
                "lang": chosen.choice(("en", "de", "fr")),
                "year": 2000 + number % 7,
                "owner": chosen.choice(("alice", "bob")),
                **({"rare": True} if number % 25 == 0 else {}),
            }
        )
    return found


@pytest.fixture(scope="module", params=["ivf-pq", "passages", "learned", "rerank"])
def index(
    request: pytest.FixtureRequest,
    toy_model: Path,
    learned_model: Path,
    toy_reranker: Path,
    toy_corpus: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Index:
    """A base with a delta that replaces, adds and deletes."""
    folder, kind = tmp_path_factory.mktemp("kept"), str(request.param)
    model = learned_model if kind == "learned" else toy_model
    special: Json = {
        "passages": {"passages": True, "index": "hnsw"},
        "learned": {"learned": True, "index": "flat"},
        "rerank": {"rerank": toy_reranker, "index": "flat"},
    }.get(kind, {"index": kind})
    stages = Stages(io.StringIO())
    source = write(folder / "base.jsonl", records(1, COUNT, toy_corpus))
    root = made(model, source, folder / "index", **special).path
    source = write(folder / "new.jsonl", records(2, COUNT + 20, toy_corpus)[COUNT - 20 :])
    upsert(UpsertOptions(index_root=root, source=str(source), model=model), stages)
    source = write(folder / "gone.jsonl", [{"_id": f"d/{number}"} for number in range(3, COUNT, 17)])
    delete(DeleteOptions(index_root=root, source=str(source)), stages)
    return live_index(root)


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


@settings(max_examples=8)
@given(query=st.sampled_from(QUERIES), wanted=FILTERS)
def test_nor_for_hits_that_a_re_ranker_reads(index: Index, query: str, wanted: Json) -> None:
    """States of several documents are scored together, so the last bits are those of the batch."""
    if index.reranker is None:
        return
    body = {"query": query, "retriever": "hybrid", "rerank": {"depth": 200}, "candidates": 180, "top_k": 180}
    whole, kept = hits(index, body), hits(index, {**body, "filter": wanted})
    first = hits(index, {**body, "rerank": False, "filter": wanted})
    assert bool(kept) == bool(first)  # none match some filters
    for name, score in kept.items():
        assert score == pytest.approx(whole[name], abs=1e-4)
