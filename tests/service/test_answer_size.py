"""Answers have a bound, whatever the documents are."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from glow.records import Document
from glow_service.errors import AnswerTooLargeError
from glow_service.search.answer_size import METADATA, AnswerSize

LONG = Document("a", {"title": ("Bees",), "text": ("ä" * 3_000,)}, {"lang": "en"})


def test_without_a_bound_nothing_is_cut() -> None:
    assert AnswerSize(0, 1, may_cut=False).fit(LONG, None) == (LONG, ())


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    size = AnswerSize(15_000, 5, may_cut=False)
    for _ in range(2):
        assert size.fit(LONG, {}) == (LONG, ())
    with pytest.raises(
        AnswerTooLargeError, match=r"at hit 3 of 5; ask for fewer hits \(top_k 2 fits\).*text holds most"
    ):
        size.fit(LONG, None)


@pytest.mark.parametrize("most", [200, 1_000, 5_000, 20_000])
def test_hits_are_cut_field_by_field_to_equal_shares(most: int) -> None:
    size = AnswerSize(most, 4, may_cut=True)
    fitted = [size.fit(LONG, None) for _ in range(4)]
    bodies = [orjson.dumps([document.fields, document.metadata]) for document, _ in fitted]
    assert sum(map(len, bodies)) <= most + 4 * 40  # braces and names are not counted
    for document, truncated in fitted:
        assert document.fields["title"] == ("Bees",)
        assert document.metadata == {"lang": "en"}
        text = document.fields.get("text", ("",))[0]
        assert LONG.fields["text"][0].startswith(text)
        assert truncated == (("text",) if len(text) < 3_000 else ())


def test_metadata_stay_whole_or_go() -> None:
    large = Document("a", {"title": ("Bees",)}, {"log": "x" * 1_000})
    document, truncated = AnswerSize(100, 1, may_cut=True).fit(large, None)
    assert (document.metadata, truncated, document.fields) == ({}, (METADATA,), {"title": ("Bees",)})


def test_characters_that_json_spreads_fit_too() -> None:
    control = Document("a", {"text": ("\x01" * 5_000,)})
    document, truncated = AnswerSize(1_000, 1, may_cut=True).fit(control, None)
    assert truncated == ("text",)
    assert 500 < len(orjson.dumps(document.fields)) <= 1_040


Start = Callable[..., AbstractContextManager[Any]]


def test_a_service_bounds_single_answers_and_batches_as_a_whole(run_server: Start, toy_index: Path) -> None:
    with (
        run_server("--index-root", toy_index, "--max-answer-bytes", 2_000) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
    ):
        body: dict[str, Any] = {"query": "bees", "top_k": 20}
        refused = client.post("/search", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "answer_too_large")
        cut = client.post("/search", json={**body, "allow_truncated": True}).json()
        assert len(cut["hits"]) == 20
        assert any("text" in hit["truncated"] for hit in cut["hits"] if "truncated" in hit)
        few = {"query": "bees", "top_k": 1, "fields": ["title"]}
        assert client.post("/search", json=few).status_code == 200
        results = client.post("/search/batch", json={"searches": [few] * 8}).json()["results"]
        assert 200 in [result["status"] for result in results]
        assert {result["problem"]["code"] for result in results if "problem" in result} == {
            "answer_too_large"
        }
