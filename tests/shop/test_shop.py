"""A shop's search: what matches, what is counted and sorted, what is said of it."""

import pytest

from tests.shop.collections import BRANDS, product_queries
from tests.shop.conftest import Searched, expect_first, ids

KEYWORDS = ("type", "brand", "brand and type", "title", "title words", "part number", "sku")


def test_groups_are_made_of_all_matches(shop: Searched) -> None:
    found = shop.first("headphones", top_k=50, group_by={"field": "brand", "size": 1})
    assert sorted(each["brand"] for each in found) == sorted(BRANDS)


@pytest.mark.parametrize("retriever", ["hybrid", "dense", "lexical"])
def test_phrases_exclusions_and_fields_bound_every_retriever(shop: Searched, retriever: str) -> None:
    phrase, without, titled = (
        ids(shop.first(query, top_k=20, retriever=retriever))
        for query in ('"desk lamp"', "desk -lamp", "lamp title:desk")
    )
    assert phrase and phrase <= shop.holding("desk lamp")
    assert without and not without & (shop.holding("lamp") | shop.holding("lamps"))
    assert titled and all("desk" in shop.documents[each]["title"].lower() for each in titled)
    plain = ids(shop.first("desk -lamp", top_k=20, retriever=retriever, syntax="plain"))
    assert plain & shop.holding("desk lamp")


@pytest.mark.parametrize(
    "query",
    ['"desk lamp', 'desk lamp"', "desk lamp -", "desk lamp title:", "nosuch:desk lamp", '"" desk lamp', 'desk "" lamp ""-'],
)  # fmt: skip
def test_what_is_not_well_formed_is_words(shop: Searched, query: str) -> None:
    assert {each["type"] for each in shop.first(query, top_k=5)} == {"desk lamp"}


@pytest.mark.parametrize(
    "query", ['"', "-", '-"desk lamp"', "-lamp", "title:", '-"', ":", '"-"', "title:-lamp", "--"]
)
def test_no_query_is_an_error(shop: Searched, query: str) -> None:
    shop.ask(query)


@pytest.mark.parametrize("typed", ["headfones", "heaphdones"])
def test_two_slips_of_a_long_word_are_mended(shop: Searched, typed: str) -> None:
    response = shop.ask(typed, top_k=10)
    assert response["query"]["corrected"]["text"] == "headphones"
    assert {shop.documents[hit["id"]]["type"] for hit in response["hits"]} == {"headphones"}


def test_keywords_find_their_product_first(shop: Searched) -> None:
    expect_first(shop, [case for case in product_queries() if case.kind in KEYWORDS])
