"""A search ends soon after its deadline, because a thread cannot be stopped from outside."""

from collections.abc import Callable

import pytest

import glow_service.search.session
from glow.index import Index
from glow.index.vectors import SearchParams
from glow_service.errors import DeadlineError
from glow_service.search.calls import ExplainCall, SearchCall
from glow_service.search.deadline import Deadline
from glow_service.search.session import SearchSession

TEXT = "how do bees find home"
CALL = SearchCall(TEXT, 10, 0, 100, SearchParams(), explain=ExplainCall(leave_one_out=True))

OVER = Deadline(0.0)


def test_a_search_whose_time_is_over_fetches_nothing(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        glow_service.search.session, "documents_of", lambda *_: pytest.fail("documents were fetched")
    )
    session = SearchSession(index, CALL)
    encoded = index.encoder.read_batch([session.preprocess()])[0]
    monkeypatch.setattr(session.clock, "_deadline", OVER)
    with pytest.raises(DeadlineError):
        session.retrieve(encoded)


def test_the_deadline_is_looked_at_before_every_batch_of_explanations(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    explainer = index.explainer
    assert explainer is not None
    work = explainer.explain_documents

    def explain(documents: object, check: Callable[[], None]) -> object:
        monkeypatch.setattr(session.clock, "_deadline", OVER)  # the time is over while hits are explained
        return work(documents, check)  # type: ignore[arg-type]

    session = SearchSession(index, CALL)
    monkeypatch.setattr(explainer, "explain_documents", explain)
    monkeypatch.setattr(explainer, "_tower", lambda _: pytest.fail("a batch was encoded"), raising=True)
    monkeypatch.setattr(explainer, "explain_query", lambda _: None)
    with pytest.raises(DeadlineError):
        session.run()
