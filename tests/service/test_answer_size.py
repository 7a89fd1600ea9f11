"""Answers have a bound, whatever the documents are: hits are cut to it, and say so."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

import glow_service.api.search
import glow_service.search.plan
from glow.client import GlowClient
from glow.collection import MAX_DOCUMENT_BYTES
from glow.contract import Hit
from glow.records import Document
from glow_service.errors import AnswerTooLargeError
from glow_service.search.hits import HIGHLIGHTS, METADATA, AnswerSize
from tests.made_index import made
from tests.service.asking import Serve

LONG = Document("a", {"title": ("Bees",), "text": ("ä" * 3_000,)}, {"lang": "en"})
SMALL = Document("b", {"title": ("Bees",)}, {})


def hit(document: Document, highlights: dict[str, tuple[str, ...]] | None = None) -> Hit:
    fields = {name: values[0] for name, values in document.fields.items()}
    return Hit(1, document.id, 1.0, {}, fields, document.metadata, highlights=highlights)


def fitted(most: int, hits: list[Hit]) -> list[Hit]:
    size = AnswerSize(most, len(hits), may_cut=True)
    for each in hits:
        size.add(each)
    return size.hits


def test_while_all_fits_nothing_is_cut() -> None:
    hits = [hit(LONG), *[hit(SMALL)] * 9]
    assert fitted(7_000, hits) == fitted(0, hits) == hits  # 0: without a bound


def test_what_does_not_fit_is_refused_if_nothing_may_be_cut() -> None:
    size = AnswerSize(15_000, 5, may_cut=False)
    for _ in range(2):
        size.add(hit(LONG, {}))
    said = r"at hit 3 of 5; request fewer hits \(top_k 2 fits\).*text is the largest part"
    with pytest.raises(AnswerTooLargeError, match=said):
        size.add(hit(LONG))


@pytest.mark.parametrize("most", [200, 1_000, 5_000, 20_000])
def test_hits_are_cut_field_by_field_to_equal_shares(most: int) -> None:
    found = fitted(most, [hit(LONG)] * 4)
    bodies = [orjson.dumps([each.fields, each.metadata]) for each in found]
    assert sum(map(len, bodies)) <= most + 4 * 40  # braces and names are not counted
    for each in found:
        assert each.fields["title"] == "Bees" and each.metadata == {"lang": "en"}
        text = each.text("text")
        assert LONG.fields["text"][0].startswith(text)
        assert each.truncated == (("text",) if len(text) < 3_000 else ())


def test_one_large_hit_takes_nothing_from_small_ones_before_and_after_it() -> None:
    hits = fitted(3_000, [hit(SMALL)] * 4 + [hit(LONG)] + [hit(SMALL)] * 4)
    assert [each.truncated for each in hits] == [()] * 4 + [("text",)] + [()] * 4
    assert len(hits[4].text("text")) > 250


def test_metadata_and_snippets_stay_whole_or_go() -> None:
    large = Document("a", {"title": ("Bees",)}, {"log": "x" * 1_000})
    (found,) = fitted(100, [hit(large, {"title": ("<em>Bees</em>" * 100,)})])
    assert (found.metadata, found.highlights, found.truncated) == ({}, {}, (HIGHLIGHTS, METADATA))
    assert found.fields == {"title": "Bees"}


def test_characters_that_json_spreads_fit_too() -> None:
    (found,) = fitted(1_000, [hit(Document("a", {"text": ("\x01" * 5_000,)}))])
    assert found.truncated == ("text",) and 500 < len(orjson.dumps(found.fields)) <= 1_040


def bound(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    for module in (glow_service.search.plan, glow_service.api.search):
        monkeypatch.setattr(module, "MAX_ANSWER_BYTES", most)


def test_a_service_cuts_unless_it_must_not(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch, 2_000)
    with serve() as client:
        body: dict[str, Any] = {"query": "bees", "top_k": 20, "match": "any"}
        refused = client.post("/search", json={**body, "allow_truncated": False})
        assert (refused.status_code, refused.json()["code"]) == (422, "answer_too_large")
        cut = client.post("/search", json=body).json()
        assert client.post("/search", json={**body, "allow_truncated": True}).json()["hits"] == cut["hits"]
        assert len(cut["hits"]) == 20
        assert any("text" in hit["truncated"] for hit in cut["hits"] if "truncated" in hit)
        few = {"query": "bees", "top_k": 1, "fields": ["title"], "allow_truncated": False}
        assert client.post("/search", json=few).status_code == 200
        results = client.post("/search/batch", json={"searches": [few] * 8}).json()["results"]
        assert 200 in [result["status"] for result in results]
        problems = [result["problem"] for result in results if "problem" in result]
        assert {problem["code"] for problem in problems} == {"answer_too_large"}
        results = client.post("/search/batch", json={"searches": [body] * 8}).json()["results"]
        assert [result["status"] for result in results] == [200] * 8


def test_documents_of_the_largest_size_make_no_search_fail(
    serve: Serve, toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every one is as long as a build or a write takes it, and the bound is far below one of them."""
    source = tmp_path / "corpus.jsonl"
    with source.open("w", encoding="utf-8") as lines:
        for number in range(2):
            record = {
                "_id": f"bee{number}",
                "title": f"Hive {number}",
                "text": "bees find home ",
                "kind": "bee",
            }
            room = MAX_DOCUMENT_BYTES - len(json.dumps(record))
            record["text"] += (f"{'b' * 99} " * (room // 100 + 1))[:room]
            lines.write(json.dumps(record) + "\n")
    root = made(toy_model, source, tmp_path / "index", index="flat")
    assert root.current()
    bees = {"query": "bees find home"}
    like, by_filter = {"like": {"id": "bee1"}}, {"filter": {"field": "kind", "eq": "bee"}}
    bound(monkeypatch, 20_000)
    with serve(root.path) as client:
        # What people send who name nothing, one hit, the whole document, and every other way to a hit.
        lexical = {"retriever": "lexical", "top_k": 3, "highlight": True}
        texts = ({}, {"top_k": 1}, lexical, {"top_k": 1, "explain": True}, {"offset": 1})
        for body in (*({**bees, **more} for more in texts), like, by_filter):
            answer = client.post("/search", json=body)
            assert answer.status_code == 200, answer.text
            hits = answer.json()["hits"]
            assert hits and all("text" in hit["truncated"] for hit in hits)
            assert all(hit["fields"]["title"].startswith("Hive") for hit in hits)
            assert sum(len(json.dumps([hit["fields"], hit["metadata"]])) for hit in hits) < 25_000
        results = client.post("/search/batch", json={"searches": [bees, like, by_filter]}).json()["results"]
        assert [result["status"] for result in results] == [200] * 3
        assert sum(len(json.dumps(result["hits"])) for result in results) < 30_000
        assert len(client.get("/documents/bee1").json()["fields"]["text"]) > 990_000
        with GlowClient(str(client.base_url), timeout_s=60) as glow:
            assert glow.search("bees find home", top_k=1).hits[0].truncated == ("text",)
