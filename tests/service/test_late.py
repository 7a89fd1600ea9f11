"""Late interaction over HTTP: by default, left out on request or when time is short, and told."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from glow.artifact import IndexRoot
from glow.contract import SearchResult
from glow.index import Index
from glow.index.late_interaction import LateTokens
from glow.runtime import EncodedText
from glow_service.app import create_app
from glow_service.search import encoded_of, to_bytes
from glow_service.settings import Settings
from tests.made_index import made
from tests.records import read_whole

QUERY = "how do bees find the way home"
Serve = Callable[..., AbstractContextManager[httpx.Client]]


@pytest.fixture
def serve(toy_index: Path, serve_app: Callable[[FastAPI], AbstractContextManager[httpx.Client]]) -> Serve:
    """Serves an index in a thread of this process."""

    @contextmanager
    def served(root: Path = toy_index, **options: Any) -> Iterator[httpx.Client]:
        app = create_app(Settings(index_root=root, **options), on_failure=lambda: None)
        with serve_app(app) as client:
            yield client

    return served


def ask(client: httpx.Client, **more: Any) -> dict[str, Any]:
    response = client.post("/search", json={"query": QUERY, "top_k": 20, **more})
    assert response.status_code == 200, response.text
    read_whole(response.content, SearchResult)
    found: dict[str, Any] = response.json()
    return found


def has_late(found: dict[str, Any]) -> set[bool]:
    return {"late" in hit["scores"] for hit in found["hits"]}


def test_it_is_on_unless_a_request_or_the_setting_says_otherwise(serve: Serve) -> None:
    with serve() as client:
        default, asked, without = ask(client), ask(client, rerank=True), ask(client, rerank=False)
        assert has_late(default) == {True} and default["timings_ms"]["late"] > 0
        assert default["hits"] == asked["hits"] and default["degraded"] == []
        assert has_late(without) == {False} and "late" not in without["timings_ms"]
        assert [hit["id"] for hit in without["hits"]] != [hit["id"] for hit in default["hits"]]
        for retriever in ("dense", "lexical"):
            assert has_late(ask(client, retriever=retriever)) == {False}
            refused = client.post("/search", json={"query": QUERY, "retriever": retriever, "rerank": True})
            assert refused.status_code == 422 and "hybrid" in refused.json()["detail"]
    with serve(late_interaction=False) as client:
        assert ask(client)["hits"] == without["hits"] and has_late(ask(client, rerank=True)) == {True}


def test_an_index_without_tokens_says_how_to_build_one(
    serve: Serve, toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    root = made(toy_model, toy_corpus, tmp_path / "index", late_interaction=False)
    with serve(root.path) as client:
        assert has_late(ask(client)) == {False}
        refused = client.post("/search", json={"query": QUERY, "rerank": True})
        assert refused.status_code == 422 and refused.json()["code"] == "not_available"
        assert "--no-late-interaction" in refused.json()["detail"]
        assert client.get("/info").json()["index"]["late"] is None


def test_a_deadline_gives_the_first_stage_and_no_cache_keeps_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(cache_entries=100) as client:
        without = ask(client, rerank=False)
        read, first = LateTokens.read, time.perf_counter()

        def slow(self: LateTokens, rows: Any) -> Any:
            time.sleep(2.0)
            return read(self, rows)

        with monkeypatch.context() as patch:
            patch.setattr("glow.search.late.AT_ONCE", 5)
            patch.setattr(LateTokens, "read", slow)
            late = ask(client, timeout_ms=3_500)
        assert time.perf_counter() - first < 3.5
        assert late["degraded"] == ["late"] and late["hits"] == without["hits"]
        assert ask(client)["degraded"] == [] and has_late(ask(client)) == {True}
        assert 'glow_left_out_total{stage="late"} 1.0' in client.get("/metrics").text


def test_reasons_say_which_word_answers_which(serve: Serve) -> None:
    with serve() as client:
        hits = ask(client, explain=True, top_k=5)["hits"]
        for hit in hits:
            assert [each["word"] for each in hit["explanation"]["late"]] == QUERY.split()
        bees = {each["word"]: each["answer"] for each in hits[0]["explanation"]["late"]}
        assert bees["bees"] == "bees"
        assert all(
            "late" not in hit["explanation"]
            for hit in ask(client, explain=True, rerank=False, top_k=5)["hits"]
        )


def test_a_query_that_was_kept_is_compared_as_one_that_was_read(serve: Serve) -> None:
    with serve(cache_entries=100) as client:
        ask(client)
        kept = ask(client, top_k=19)
    with serve() as client:
        assert ask(client, top_k=19)["hits"] == kept["hits"]
        assert "encode" not in kept["timings_ms"]


def test_what_a_cache_holds_is_taken_whole_or_not_at_all(toy_index: Path) -> None:
    root = IndexRoot(toy_index)
    index = Index.open(root.folder(root.current()))
    tokens = index.preprocessor.query(QUERY)
    encoded = index.encoder.read_batch([tokens])[0]
    value, tower, length = to_bytes(encoded), index.encoder, len(tokens)
    back = encoded_of(value, tower, length)
    assert back is not None and encoded.tokens is not None and back.tokens is not None
    assert back.vector.tobytes() + back.tokens.tobytes() == value
    assert encoded_of(None, tower, length) is None
    assert encoded_of(value[:-4], tower, length) is None and encoded_of(value, tower, length + 1) is None
    for place in (0, tower.dimensions + 1):  # a number of the vector, one of the first token
        damaged = np.frombuffer(value, np.float32).copy()
        damaged[place] += 3.0
        assert encoded_of(damaged.tobytes(), tower, length) is None
    alone = EncodedText(encoded.vector, None)
    assert encoded_of(to_bytes(alone), tower, length) is None  # of a tower without tokens
