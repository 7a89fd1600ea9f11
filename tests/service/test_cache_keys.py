from dataclasses import fields, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from glow.index import Fusion, FusionWeights, Index
from glow.index.columns.filters import And, Exists, Or
from glow.index.columns.masks import FacetRequest
from glow.index.vectors import SearchParams
from glow.search import Arrangement, FilterBoost, RecencyBoost, Reranking, SortKey, Synonyms
from glow.text.highlight import Highlighting
from glow_service.cache import Keys
from glow_service.search.plan import HighlightCall, SearchPlan


def texted(text: str) -> SearchPlan:
    return SearchPlan(text, 10, 0, 100, SearchParams())


KEYS = Keys("m" * 64, "t" * 64, "v1")
CALL = SearchPlan("how do bees find home", 10, 0, 100, SearchParams())
TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates and NUL too


@given(TEXTS, TEXTS)
def test_vector_keys_are_equal_exactly_where_the_texts_are(one: str, other: str) -> None:
    assert (KEYS.vector(one) == KEYS.vector(other)) == (one == other)


def test_every_field_of_a_search_changes_its_page_key() -> None:
    changes: dict[str, tuple[Any, ...]] = {
        "text": ("how do bees find home ",),
        "top_k": (11,),
        "offset": (1,),
        "candidates": (101,),
        "params": (SearchParams(ef_search=96), SearchParams(nprobe=96), SearchParams(exact=True)),
        "retriever": ("hybrid",),
        "fusion": (Fusion(), Fusion(weights=FusionWeights(dense=1.0, lexical=0.0))),
        "filter": (And((Exists("a"), Exists("b"))), Or((Exists("a"), Exists("b")))),
        "facets": ((FacetRequest("a", 10),),),
        "highlight": (HighlightCall(("text",), Highlighting()),),
        "explain": (True,),
        "leave_one_out": (True,),
        "fields": (("title", "text"), ("text", "title"), ("title",)),
        "metadata": (("lang",),),
        "max_bytes": (1,),
        "may_cut": (True,),
        "typos": ("off",),
        "match": ("any",),
        "syntax": ("plain",),
        "prefix": (True,),
        "synonyms": (Synonyms((), "a"), Synonyms((), "b")),
        "source": ("browse",),
        "vector": ((1.0, 0.0),),
        "like": ("d1",),
        "arrangement": (
            Arrangement(min_score=0.5),
            Arrangement(sort=(SortKey("year", descending=True),)),
            Arrangement(boosts=(FilterBoost(Exists("a"), 2.0),)),
            Arrangement(boosts=(RecencyBoost("a", 1.0, 60.0, 0),)),
        ),
        "rerank": (Reranking(50), Reranking(49)),
        "vectors": (True,),
    }
    compared = {each.name for each in fields(SearchPlan) if each.compare}
    assert compared == set(changes), "a new field needs a line above"
    changed = [replace(CALL, **{name: value}) for name, values in changes.items() for value in values]
    assert len({KEYS.page(call) for call in [CALL, *changed]}) == len(changed) + 1
    assert KEYS.page(replace(CALL, timeout_ms=5, allow_partial=True)) == KEYS.page(CALL)
    assert {each.name for each in fields(SearchPlan) if each.repr} == compared
    assert len(KEYS.page(texted("\ud800\0" + "x" * 100_000))) <= 64


def test_a_vector_key_depends_on_model_and_terms_alone_and_a_page_key_on_the_version_too() -> None:
    others = [Keys("x" * 64, "t" * 64, "v1"), Keys("m" * 64, "x" * 64, "v1"), Keys("m" * 64, "t" * 64, "v2")]
    pages = {keys.page(texted("a")) for keys in [KEYS, *others]}
    vectors = {keys.vector("a") for keys in [KEYS, *others]}
    assert len(pages) == 4
    assert len(vectors) == 3
    assert others[2].vector("a") == KEYS.vector("a")


def test_indices_that_bear_one_name_have_different_page_keys_and_one_vector_key(index: Index) -> None:
    keys = Keys.of(index)
    twin = replace(index, manifest=index.manifest.model_copy(update={"created": "2000-01-01T00:00:00+00:00"}))
    assert twin.version == index.version and Keys.of(twin).page(texted("a")) != keys.page(texted("a"))
    assert Keys.of(twin).vector("a") == keys.vector("a")
    assert Keys.of(index).page(texted("a")) == keys.page(texted("a"))
