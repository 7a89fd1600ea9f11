"""What requests cost, and who pays."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from glow.index.vectors import SearchParams
from glow.search import Reranking
from glow.text import Highlighting
from glow_service.access.rate_limit import RateLimiter
from glow_service.api.context import new_context
from glow_service.api.work_pools import enter_work_pool
from glow_service.errors import OverloadedError
from glow_service.search import HighlightCall, SearchCall, costs, request_cost
from glow_service.search.admission import Admission
from glow_service.search.calls import ExplainCall

ROOT = Path(__file__).parent.parent.parent


def call(
    top_k: int = 10, highlight: HighlightCall | None = None, explain: ExplainCall | None = None
) -> SearchCall:
    return SearchCall("bees", top_k, 0, 100, SearchParams(), highlight=highlight, explain=explain)


def test_an_ordinary_search_costs_one() -> None:
    snippets = HighlightCall(("url", "title", "anchor", "clicked_queries", "text"), Highlighting(2, 200))
    assert (
        request_cost(call())
        == request_cost(call(100))
        == request_cost(call(10, snippets), filter_terms=50)
        == 1
    )


def test_what_takes_long_costs_more() -> None:
    everything = HighlightCall(("title", "text"), Highlighting(10, 2_000))
    assert request_cost(call(100, everything)) == 1 + 100 * 2 * 10 * 2_000 // costs.HIGHLIGHTED_CHARS
    assert request_cost(call(), filter_terms=1_000) == 6
    both = replace(call(), retriever="hybrid", candidates=1_000)
    assert request_cost(both) == 1 + 1_000 // costs.COMPARED_CANDIDATES
    assert request_cost(replace(both, late=False)) == request_cost(replace(both, candidates=100)) == 1
    assert [request_cost(replace(call(), rerank=Reranking(depth))) for depth in (1, 10, 50, 51)] == [
        2,
        2,
        4,
        4,
    ]
    assert request_cost(replace(call(), rerank=Reranking(50, "late-interaction"))) == 3
    assert request_cost(call(20, explain=ExplainCall(leave_one_out=False))) == 1 + 20 * costs.EXPLAINED_HIT
    left_out = request_cost(call(20, explain=ExplainCall(leave_one_out=True)))
    assert left_out == 1 + 20 * costs.EXPLAINED_HIT + costs.LEAVE_ONE_OUT


def test_a_long_text_is_no_work_for_the_plain_lane() -> None:
    assert (
        costs.texts_cost(1, "document", 9_999) <= costs.MOST_PLAIN < costs.texts_cost(1, "document", 10_000)
    )
    assert costs.texts_cost(3, "query", 0) == 3


def test_long_hits_are_priced_by_what_is_fetched_and_read() -> None:
    assert costs.reading_cost(100 * 10_000, 0) == 0
    assert costs.reading_cost(9_000_000, 1_000_000) == 4 + 10


def test_the_page_has_the_table_of_prices() -> None:
    text = (
        (ROOT / "docs/security.md")
        .read_text(encoding="utf-8")
        .split("## Limit request rates")[1]
        .split("\n## ")[0]
    )
    table = dict(re.findall(r"^\|(.+?)\|(\d+)\|$", text, re.MULTILINE))
    assert {name: int(cost) for name, cost in table.items()} == {
        "a search": 1,
        f"each {costs.FILTER_TERMS} terms of its filters": 1,
        f"each {costs.HIGHLIGHTED_CHARS:,} characters of requested highlights": 1,
        f"each {costs.FETCHED_CHARS:,} characters of its hits' documents": 1,
        f"each {costs.READ_CHARS:,} characters of hits read for highlights": 1,
        "each explained hit": costs.EXPLAINED_HIT,
        "`leave_one_out`": costs.LEAVE_ONE_OUT,
        f"each {costs.COMPARED_CANDIDATES} candidates compared by token": 1,
        f"each {costs.RERANKED_HITS['cross-encoder']} re-ranked hits": 1,
        f"each {costs.RERANKED_HITS['late-interaction']} hits re-ranked by late interaction": 1,
        "a text embedded as a query": costs.TEXTS["query"],
        "a text embedded as a document": costs.TEXTS["document"],
        f"each {costs.TEXT_CHARS:,} characters of these texts": 1,
    }
    assert f"costs more than {costs.MOST_PLAIN}" in text


def test_who_is_refused_for_want_of_permits_pays_nothing() -> None:
    charged: list[int] = []
    bulk, plain = SimpleNamespace(admission=Admission(4)), SimpleNamespace(admission=Admission(4))
    access = SimpleNamespace(charge=lambda scope, key, price: charged.append(price))
    service = SimpleNamespace(work_pools={"plain": plain, "bulk": bulk}, access=access)
    context = new_context({"headers": []})
    bulk.admission.enter(2)
    with pytest.raises(OverloadedError):
        enter_work_pool(service, context, {}, 64, "bulk")
    assert charged == [] and bulk.admission.taken == 2
    assert enter_work_pool(service, context, {}, 2, "bulk") is bulk
    assert charged == [2] and bulk.admission.taken == 4
    context.release()
    assert bulk.admission.taken == 2
    assert enter_work_pool(service, context, {}, 1, "plain") is plain and charged == [2, 1]


def test_a_price_beyond_the_burst_is_paid_on_credit() -> None:
    now = [0.0]
    limiter = RateLimiter(rate=2.0, burst=10, max_clients=10, clock=lambda: now[0])
    assert limiter.take("a") == 0
    assert limiter.charge("a", 29) == 0
    assert limiter.take("a") == 11  # 20 owed, and 1 to begin with, at 2 a second
    assert limiter.take("b") == 0
    now[0] += 10.0
    assert limiter.take("a") == 1
    now[0] += 0.5
    assert limiter.take("a") == 0


def test_who_owes_cannot_spend_more_and_gets_the_first_token_back() -> None:
    now = [0.0]
    limiter = RateLimiter(rate=1.0, burst=3, max_clients=10, clock=lambda: now[0])
    assert [limiter.take("a") for _ in range(3)] == [0, 0, 0]  # three requests whose bodies are on their way
    assert limiter.charge("a", 5) == 0
    assert limiter.charge("a", 5) == 5
    now[0] += 4.0
    assert limiter.take("a") == 1 or pytest.fail("the token of the refused request was not given back")
