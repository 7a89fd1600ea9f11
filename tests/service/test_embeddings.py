"""`POST /v1/embeddings`: OpenAI's shape around our towers."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from glow.contract import EmbeddingsResult, ModelsResult
from glow.index import Index
from glow.records import Document
from glow.runtime import Model
from tests.records import read_whole
from tests.service.asking import Serve, assert_problem
from tests.until import until

TEXTS = ["how do bees find the way home", "salmon"]


@pytest.fixture(scope="module")
def documents(serve: Serve, toy_model: Path) -> Iterator[httpx.Client]:
    """A service that has the document tower."""
    with serve(document_model=str(toy_model)) as client:
        yield client


def vectors(response: httpx.Response) -> np.ndarray[Any, Any]:
    assert response.status_code == 200, response.text
    read_whole(response.content, EmbeddingsResult)
    return np.array([item["embedding"] for item in response.json()["data"]], np.float32)


def test_query_vectors_are_those_of_the_query_tower(http: httpx.Client, index: Index) -> None:
    response = http.post("/v1/embeddings", json={"input": TEXTS, "input_type": "query"})
    expected = [index.encoder.run([index.preprocessor.query(text)])[0] for text in TEXTS]
    np.testing.assert_allclose(vectors(response), expected, atol=1e-5)
    body = response.json()
    assert body["object"] == "list" and body["model"] == index.model
    assert [item["index"] for item in body["data"]] == [0, 1]
    tokens = sum(len(index.preprocessor.query(text)) for text in TEXTS)
    assert body["usage"]["total_tokens"] == tokens and body["usage"]["truncated"] == []
    asked = {"input": TEXTS[0], "model": "toy-model:query", "encoding_format": "base64", "user": "someone"}
    packed = http.post("/v1/embeddings", json=asked).json()["data"][0]["embedding"]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(packed), "<f4"), expected[0], atol=1e-5)


def test_texts_that_lose_words_are_named(http: httpx.Client) -> None:
    body = {"input": ["short", "very long " * 150], "input_type": "query"}
    assert http.post("/v1/embeddings", json=body).json()["usage"]["truncated"] == [1]


def test_document_vectors_need_the_document_tower(http: httpx.Client) -> None:
    response = http.post("/v1/embeddings", json={"input": TEXTS, "input_type": "document"})
    assert_problem(response, 422, "not_available")


def test_document_vectors_are_those_of_the_document_tower(
    documents: httpx.Client, toy_model: Path, index: Index
) -> None:
    found = vectors(documents.post("/v1/embeddings", json={"input": TEXTS, "input_type": "document"}))
    tower = Model.open(toy_model).encoder("document")
    texts = [index.preprocessor.document(Document("", {"text": (text,)}, {})) for text in TEXTS]
    np.testing.assert_allclose(found, tower.encode(texts), atol=1e-5)


def test_models_are_listed_by_the_names_that_embeddings_take(
    http: httpx.Client, documents: httpx.Client
) -> None:
    read_whole(http.get("/v1/models").content, ModelsResult)
    assert [model["id"] for model in http.get("/v1/models").json()["data"]] == ["toy-model:query"]
    names = [model["id"] for model in documents.get("/v1/models").json()["data"]]
    assert names == ["toy-model:query", "toy-model:document"]
    texts = ({"input": TEXTS, "input_type": "document"}, *({"input": TEXTS, "model": name} for name in names))
    asked, query, document = (vectors(documents.post("/v1/embeddings", json=body)) for body in texts)
    np.testing.assert_array_equal(document, asked)
    assert not np.allclose(query, document)


def test_a_document_tower_of_another_model_is_refused_at_start(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    other = Path(__file__).parents[2] / "models" / "glow-mini"
    with serve(wait=False, document_model=str(other)) as client:
        until(lambda: "give the same model" in caplog.text)
        assert client.get("/readyz").status_code == 503


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/input"),
        ({"input": []}, "/input"),
        ({"input": ["bees"] * 65}, "/input"),
        ({"input": ["bees", " "]}, "/input/1"),
        ({"input": "bees", "model": "another"}, "/model"),
        ({"input": "bees", "dimensions": 7}, "/dimensions"),
        ({"input": "bees", "input_type": None}, "/input_type"),
        ({"input": "bees", "model": "toy-model:document"}, "/input_type"),
    ],
)
def test_a_bad_request_names_its_place(http: httpx.Client, body: Any, pointer: str) -> None:
    response = http.post("/v1/embeddings", json={"input_type": "query", **body})
    assert response.status_code == 422
    assert pointer in [fault["pointer"] for fault in response.json()["errors"]]
