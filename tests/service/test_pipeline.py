"""A search ends soon after its deadline, because a thread cannot be stopped from outside."""

import time
from collections.abc import Callable

import pytest

import service.pipeline
from glow.search import Index, SearchParams
from service.calls import ExplainCall, SearchCall
from service.errors import DeadlineError
from service.pipeline import preprocess, retrieve
from service.stage_clock import StageClock

TEXT = "how do bees find home"
CALL = SearchCall(TEXT, 10, 0, 100, SearchParams(), explain=ExplainCall(leave_one_out=True))


def ask(index: Index, clock: StageClock) -> None:
    tokens = preprocess(index.preprocessor, TEXT)
    retrieve(index, CALL, tokens, index.encoder.run([tokens])[0], clock)


def test_a_search_whose_time_is_over_fetches_nothing(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.pipeline, "_fetch", lambda *_: pytest.fail("documents were fetched"))
    with pytest.raises(DeadlineError):
        ask(index, StageClock(deadline=time.perf_counter()))


def test_the_deadline_is_looked_at_before_every_batch_of_explanations(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    explainer = index.explainer
    assert explainer is not None
    work = explainer.explain_documents

    def explain(documents: object, check: Callable[[], None]) -> object:
        monkeypatch.setattr(clock, "_deadline", 0.0)  # the time is over while hits are explained
        return work(documents, check)  # type: ignore[arg-type]

    clock = StageClock()
    monkeypatch.setattr(explainer, "explain_documents", explain)
    monkeypatch.setattr(explainer, "_tower", lambda _: pytest.fail("a batch was encoded"), raising=True)
    monkeypatch.setattr(explainer, "explain_query", lambda _: None)
    with pytest.raises(DeadlineError):
        ask(index, clock)
