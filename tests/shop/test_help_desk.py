"""A help desk's search: tickets that say the same, many at a time."""

import pytest

from tests.shop.collections import ticket_queries
from tests.shop.conftest import Searched, expect_first, ids


def test_titles_and_numbers_find_their_tickets_first(desk: Searched) -> None:
    expect_first(desk, [case for case in ticket_queries() if case.kind != "question"])


@pytest.mark.parametrize("typed", ["T-10432", "t-10432", "10432"])
def test_a_number_finds_its_ticket(desk: Searched, typed: str) -> None:
    assert desk.first(typed, top_k=1)[0]["_id"] == "T-10432"


def test_a_filter_takes_ids(desk: Searched) -> None:
    wanted = ["T-10432", "T-10433"]
    assert ids(desk.first("reply", filter={"_id": wanted})) <= set(wanted)
    response = desk.http.post("/search", json={"filter": {"_id": wanted}}).raise_for_status()
    assert [hit["id"] for hit in response.json()["hits"]] == wanted
