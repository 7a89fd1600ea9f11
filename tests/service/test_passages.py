"""An index of passages, served: hits are documents, each with the passage that matched best."""

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.made_index import made, write
from tests.service import asking
from tests.service.asking import Serve

TOPICS = ("bees", "whales", "owls", "salmon", "ants", "lichen", "krill", "foxes")


@pytest.fixture(scope="module")
def passages(tmp_path_factory: Any, toy_model: Path, serve: Serve) -> Iterator[httpx.Client]:
    """A service over documents whose bodies are one long sentence after another, each of one topic."""
    folder = tmp_path_factory.mktemp("passages")
    lines = []
    for number in range(12):
        topics = enumerate(TOPICS[(number + place) % len(TOPICS)] for place in range(40))
        texts = [
            f"Paragraph {place} tells how {topic} live near rivers and hills." for place, topic in topics
        ]
        line = {"_id": f"d{number}", "title": f"Notes {number}", "text": " ".join(texts), "number": number}
        lines.append(line)
    root = made(toy_model, write(folder / "corpus.jsonl", lines), folder / "root", passages=True)
    with serve(root.path) as client:
        yield client


ask = partial(asking.ask, query="how owls live near rivers")


def test_hits_are_documents_with_the_passage_that_lies_where_it_says(passages: httpx.Client) -> None:
    info = passages.get("/info").json()["index"]
    assert info["documents"] == 12 and info["passages"] > 24 and "passages" in info["components"]
    found = ask(passages, top_k=12)["hits"]
    assert len({hit["id"] for hit in found}) == len(found) == 12
    for hit in found:
        place = hit["passage"]
        assert hit["fields"]["text"][place["start"] : place["end"]] == place["text"]
        assert len(place["text"]) < len(hit["fields"]["text"])


@pytest.mark.parametrize("retriever", ["dense", "lexical", "hybrid"])
def test_pages_filters_and_reasons_are_of_documents(passages: httpx.Client, retriever: str) -> None:
    asked = {"retriever": retriever, "filter": {"field": "number", "lt": 7}, "candidates": 12}
    whole = [hit["id"] for hit in ask(passages, top_k=12, **asked)["hits"]]
    assert sorted(whole) == [f"d{number}" for number in range(7)]
    pages = [[hit["id"] for hit in ask(passages, top_k=3, offset=at, **asked)["hits"]] for at in (0, 3, 6)]
    assert list(itertools.chain(*pages)) == whole
    found = ask(passages, top_k=2, explain=True, highlight=True, facets=[{"field": "number"}], **asked)
    assert found["facets"]["number"]["counted"] == 7
    for hit in found["hits"]:
        words = {term["word"] for term in hit["explanation"]["terms"] if term["field"] == "text"}
        read = hit["passage"]["text"] if "passage" in hit else hit["fields"]["text"]
        assert words and all(word in read.lower() for word in words)
        assert "<em>" in "".join(hit["highlights"]["text"])


def test_a_document_that_words_found_has_the_cosine_of_its_best_passage(passages: httpx.Client) -> None:
    dense = {hit["id"]: hit["score"] for hit in ask(passages, top_k=12, retriever="dense")["hits"]}
    for hit in ask(passages, retriever="hybrid", top_k=1, candidates=1)["hits"]:
        assert hit["scores"]["dense"] == pytest.approx(dense[hit["id"]], abs=1e-5)
