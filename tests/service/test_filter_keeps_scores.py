"""A filter, a tenant's key or `min_score` changes neither score nor order of the hits that it keeps."""

import io
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glow.artifact import IndexRoot
from glow.index import Index
from glow.index.vectors import VECTORS
from glow_index_builder.building import build
from glow_index_builder.deltas import DeleteOptions, UpsertOptions, delete, upsert
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages
from glow_service.access import Tenant
from glow_service.search import SearchSession, check_search
from glow_service.settings import Settings

Json = dict[str, Any]
COUNT, ALL = 150, 400
"""Documents of the made corpus, and more candidates than any version holds documents."""
LIMITS = replace(Settings(index_root=Path("unused")).limits, max_candidates=ALL, max_top_k=ALL)
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


@pytest.fixture(scope="module", params=["flat", "hnsw", "ivf-pq", "passages", "learned", "rerank"])
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

    def written(name: str, lines: list[Json]) -> str:
        path = folder / name
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        return str(path)

    source = written("base.jsonl", records(1, COUNT, toy_corpus))
    root = folder / "index"
    build(BuildOptions(model=model, source=source, index_root=root, threads=1, **special), stages)
    source = written("new.jsonl", records(2, COUNT + 20, toy_corpus)[COUNT - 20 :])
    upsert(UpsertOptions(index_root=root, source=source, model=model), stages)
    source = written("gone.jsonl", [{"_id": f"d/{number}"} for number in range(3, COUNT, 17)])
    delete(DeleteOptions(index_root=root, source=source), stages)
    opened = IndexRoot(root)
    return Index.open(opened.folder(opened.current()))


def hits(index: Index, body: Json) -> dict[str, float]:
    """Id -> score as it is ranked by, unrounded, best first."""
    call = check_search({"candidates": ALL, "top_k": ALL, "typos": "off", **body}, LIMITS, index).call
    session = SearchSession(index, call)
    found = session.run().found.hits
    assert session.ranked is not None
    return {hit.id: score for hit, score in zip(found, session.ranked.scores.tolist(), strict=True)}


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
    tenant = Tenant(filter={"field": "owner", "eq": "alice"})
    require_kept(whole, hits(index, tenant.confine({**body, "filter": wanted})))
    least = float(np.median(list(whole.values()) or [0.0]))
    assert hits(index, {**body, "min_score": least}) == {
        name: score for name, score in whole.items() if score >= least
    }
    require_kept(whole, hits(index, {**body, "filter": wanted, "min_score": least}))


@settings(max_examples=4)
@given(wanted=FILTERS)
def test_nor_does_it_without_a_text(index: Index, wanted: Json) -> None:
    vector = index.encoder.run([index.preprocessor.query(QUERIES[0])])[0].tolist()
    for body in ({"vector": vector}, {"like": {"id": "d/12"}}):
        require_kept(hits(index, body), hits(index, {**body, "filter": wanted}))


@settings(max_examples=8)
@given(query=st.sampled_from(QUERIES), wanted=FILTERS)
def test_nor_for_hits_that_a_re_ranker_reads(index: Index, query: str, wanted: Json) -> None:
    """States of several documents are scored together, so the last bits are those of the batch."""
    if index.reranker is None:
        return
    body = {"query": query, "retriever": "hybrid", "rerank": {"depth": 200}, "candidates": 180, "top_k": 180}
    whole, kept = hits(index, body), hits(index, {**body, "filter": wanted})
    assert kept
    for name, score in kept.items():
        assert score == pytest.approx(whole[name], abs=1e-4)
