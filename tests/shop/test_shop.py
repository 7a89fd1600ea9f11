"""A shop's search and a help desk's: what matches, what is counted and sorted, what is said of it."""

from tests.shop.collections import BRANDS, product_queries, ticket_queries
from tests.shop.conftest import Searched, expect_first, expect_honest, holds, ids

KEYWORDS = ("type", "brand", "brand and type", "title", "title words", "part number", "sku")


def test_facets_count_exactly_what_matches(shop: Searched) -> None:
    audio = shop.holding("headphones")
    for limit in (1, 10):
        facets = [{"field": field, "limit": limit} for field in ("category", "type")]
        response = shop.ask("headphones", top_k=5, facets=facets)
        category, kind = response["facets"]["category"], response["facets"]["type"]
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


NO_WORDS = ('"', "-", '-"desk lamp"', "-lamp", "title:", '-"', ":", '"-"', "title:-lamp", "--")
MALFORMED = ('"desk lamp', 'desk lamp"', "desk lamp -", "desk lamp title:", "nosuch:desk lamp")
MALFORMED += ('"" desk lamp', 'desk "" lamp ""-')


def test_what_is_not_well_formed_is_words_and_no_query_is_an_error(shop: Searched) -> None:
    for query in MALFORMED:
        assert {each["type"] for each in shop.first(query, top_k=5)} == {"desk lamp"}, query
    for query in NO_WORDS:
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


def test_two_slips_of_a_long_word_are_mended(shop: Searched) -> None:
    for typed in ("headfones", "heaphdones"):
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


def test_keywords_find_their_product_first_and_doubt_is_for_other_subjects(shop: Searched) -> None:
    expect_first(shop, [case for case in product_queries() if case.kind in KEYWORDS])
    expect_honest(shop, product_queries())


# The help desk: tickets that say the same, many at a time.


def test_many_right_tickets_are_no_reason_for_doubt(desk: Searched) -> None:
    response = desk.ask("refund", facets=["team"])
    assert all("Refund" in desk.documents[hit["id"]]["title"] for hit in response["hits"])
    assert response["confidence"] == "high"
    assert response["total"] == 20
    assert response["facets"]["team"]["values"] == [{"value": "billing", "count": 20}]
    assert desk.ask("Refund not received")["confidence"] == "high"


def test_pages_reach_every_match(desk: Searched) -> None:
    words = ("refund", "parcel", "account", "app", "invoice", "login")
    found = ids(desk.matches(" ".join(words), match="any"))
    assert len(found) > 120
    assert found >= set().union(*map(desk.holding, words))


def test_a_date_sorts_all_matches(desk: Searched) -> None:
    found = desk.matches("parcel", sort=["-opened"])
    assert ids(found) >= desk.holding("parcel")
    assert [each["opened"] for each in found] == sorted((each["opened"] for each in found), reverse=True)


def test_titles_and_numbers_find_their_tickets_first_and_doubt_is_for_other_subjects(desk: Searched) -> None:
    expect_first(desk, [case for case in ticket_queries() if case.kind != "question"])
    expect_honest(desk, ticket_queries())
    for typed in ("t-10432", "10432"):
        assert desk.first(typed, top_k=1)[0]["_id"] == "T-10432"


def test_a_filter_takes_ids(desk: Searched) -> None:
    wanted = ["T-10432", "T-10433"]
    assert ids(desk.first("reply", filter={"_id": wanted})) <= set(wanted)
    response = desk.http.post("/search", json={"filter": {"_id": wanted}}).raise_for_status()
    assert [hit["id"] for hit in response.json()["hits"]] == wanted
