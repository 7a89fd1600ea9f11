"""A help desk's search: tickets that say the same, many at a time."""

import pytest

from tests.shop.collections import ticket_queries
from tests.shop.conftest import Searched, expect_first, expect_honest, ids


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


def test_titles_and_numbers_find_their_tickets_first(desk: Searched) -> None:
    expect_first(desk, [case for case in ticket_queries() if case.kind != "question"])


def test_doubt_is_for_other_subjects(desk: Searched) -> None:
    expect_honest(desk, ticket_queries())


@pytest.mark.parametrize("typed", ["T-10432", "t-10432", "10432"])
def test_a_number_finds_its_ticket(desk: Searched, typed: str) -> None:
    assert desk.first(typed, top_k=1)[0]["_id"] == "T-10432"


def test_a_filter_takes_ids(desk: Searched) -> None:
    wanted = ["T-10432", "T-10433"]
    assert ids(desk.first("reply", filter={"_id": wanted})) <= set(wanted)
    response = desk.http.post("/search", json={"filter": {"_id": wanted}}).raise_for_status()
    assert [hit["id"] for hit in response.json()["hits"]] == wanted
