"""A shop's search: what matches, what is counted and sorted, what is said of it."""

import pytest

from tests.shop.collections import BRANDS, product_queries
from tests.shop.conftest import Searched, expect_first, expect_honest, holds, ids

KEYWORDS = ("type", "brand", "brand and type", "title", "title words", "part number", "sku")


@pytest.mark.parametrize("limit", [1, 10])
def test_facets_count_exactly_what_matches(shop: Searched, limit: int) -> None:
    facets = [{"field": "category", "limit": limit}, {"field": "type", "limit": limit}]
    response = shop.ask("headphones", top_k=5, facets=facets)
    category, kind = response["facets"]["category"], response["facets"]["type"]
    audio = shop.holding("headphones")
    assert response["total"] == category["counted"] == kind["counted"] == len(audio)
    assert category["values"] == [{"value": "audio", "count": len(audio)}]
    assert kind["values"][0] == {"value": "headphones", "count": 15}
    assert not category["approximate"]


def test_sorting_takes_matches_alone(shop: Searched) -> None:
    cheap = shop.matches("desk lamp", sort=["price"])
    assert {each["type"] for each in cheap} == {"desk lamp"}
    assert [each["price"] for each in cheap] == sorted(each["price"] for each in cheap)
    assert len(cheap) == 15
    dear = shop.first("desk lamp", sort=["-price"], top_k=15)
    assert dear == cheap[::-1]


def test_a_lowest_score_holds_for_hits_total_and_facets(shop: Searched) -> None:
    scores = [hit["score"] for hit in shop.ask("desk lamp", top_k=15)["hits"]]
    for lowest, enough in ((scores[4], (4, 5)), ((scores[4] + scores[5]) / 2, (5,))):  # scores are rounded
        response = shop.ask("desk lamp", top_k=15, min_score=lowest, facets=["type"])
        assert response["total"] == response["facets"]["type"]["counted"] == len(response["hits"])
        assert response["total"] in enough


def test_groups_are_made_of_all_matches(shop: Searched) -> None:
    found = shop.first("headphones", top_k=50, group_by={"field": "brand", "size": 1})
    assert sorted(each["brand"] for each in found) == sorted(BRANDS)


def test_what_a_filter_leaves_is_no_match_for_want_of_better(shop: Searched) -> None:
    conditions = {"brand": ["Norda", "Talvi"], "price": {"gte": 150}}
    left = shop.matches("desk lamp", filter=conditions)
    assert all(holds(each, "desk") or holds(each, "lamp") for each in left)
    assert shop.ask("desk lamp", filter={"type": "wheelbarrow"})["total"] == 0


def test_a_phrase_is_held_as_it_stands(shop: Searched) -> None:
    assert ids(shop.matches('"desk lamp"')) == shop.holding("desk lamp")
    assert shop.ask('"lamp desk"')["total"] == 0
    assert ids(shop.matches('"corner sofa"')) == shop.holding("corner sofa") < shop.holding("corner", "sofa")


def test_excluded_words_and_phrases_are_in_no_match(shop: Searched) -> None:
    without = ids(shop.matches("desk -lamp"))
    assert without >= shop.holding("desk") - shop.holding("lamp")
    assert not without & shop.holding("lamp")
    lamps = ids(shop.matches('lamp -"desk lamp"'))
    assert lamps >= shop.holding("lamp") - shop.holding("desk lamp")
    assert not lamps & shop.holding("desk lamp")


def test_a_word_can_be_asked_for_in_a_field(shop: Searched) -> None:
    lamps = shop.matches("title:lamp")
    assert {each["type"] for each in lamps} == {"desk lamp", "floor lamp"}
    assert len(lamps) == 23


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


def test_how_many_words_a_match_needs_can_be_chosen(shop: Searched) -> None:
    assert ids(shop.matches("mower headphones", match="all")) == shop.holding("mower", "headphones")
    either = ids(shop.matches("mower headphones", match="any"))
    assert either >= shop.holding("mower") | shop.holding("headphones")
    assert shop.ask("desk lamp")["matching"] == {"words": "all", "similar": 0}
    assert shop.ask("desk trombone lamp", match="any")["matching"]["words"] == "some"


def test_signs_can_be_plain(shop: Searched) -> None:
    assert {each["type"] for each in shop.first("desk -lamp", syntax="plain", top_k=5)} == {"desk lamp"}
    assert ids(shop.matches('"lamp desk"', syntax="plain")) >= shop.holding("desk lamp")


@pytest.mark.parametrize("typed", ["headfones", "heaphdones"])
def test_two_slips_of_a_long_word_are_mended(shop: Searched, typed: str) -> None:
    response = shop.ask(typed, top_k=10)
    assert response["query"]["corrected"]["text"] == "headphones"
    assert {shop.documents[hit["id"]]["type"] for hit in response["hits"]} == {"headphones"}


def test_a_word_is_found_while_it_is_typed(shop: Searched) -> None:
    response = shop.ask("hea", prefix=True, top_k=10)
    assert response["query"]["completed"][0] == "headphones"
    assert ids(shop.matches("hea", prefix=True)) >= shop.holding("headphones")
    assert {each["type"] for each in shop.first("wireless hea", prefix=True, top_k=3)} == {"headphones"}


def test_synonyms_find_and_say_so(shop: Searched) -> None:
    response = shop.ask("couch", top_k=5, explain=True)
    assert {shop.documents[hit["id"]]["type"] for hit in response["hits"]} == {"sofa"}
    assert response["query"]["synonyms"] == {"couch": ["sofa"]}
    assert response["confidence"] == "high"
    told = response["hits"][0]["explanation"]["lexical"]
    assert any({"sofa", "couch"} <= set(word.values()) for word in told), told


def test_keywords_find_their_product_first(shop: Searched) -> None:
    expect_first(shop, [case for case in product_queries() if case.kind in KEYWORDS])


def test_doubt_is_for_other_subjects(shop: Searched) -> None:
    expect_honest(shop, product_queries())
