"""Queries with typos, over HTTP."""

from typing import Any

import httpx


def search(http: httpx.Client, query: str, **more: object) -> dict[str, Any]:
    answer = http.post("/search", json={"query": query, "top_k": 3, "fields": [], **more})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_a_slip_is_corrected_in_every_mode_and_the_answer_says_so(http: httpx.Client) -> None:
    for retriever in ("dense", "lexical", "hybrid"):
        right = search(http, "how do salmon swim", retriever=retriever)
        wrong = search(http, "how do slamon swim", retriever=retriever)
        assert wrong["hits"] == right["hits"]
        assert "corrected" not in right["query"]
        assert wrong["query"]["corrected"] == {
            "text": "how do salmon swim",
            "words": {"slamon": "salmon"},
        }
        assert wrong["query"]["text"] == "how do slamon swim"


def test_off_searches_what_was_typed_and_says_which_words_are_known(http: httpx.Client) -> None:
    query = search(http, "slamon swim?", typos="off")["query"]
    assert "corrected" not in query
    known = {term["word"]: term["known"] for term in query["terms"]}
    assert known == {"slamon": False, "swim": True, "?": True}


def test_an_unknown_word_weighs_no_more_than_the_known_ones(http: httpx.Client) -> None:
    query = search(http, "slamon swim", typos="off")["query"]
    weights = {term["word"]: term["weight"] for term in query["terms"]}
    assert weights["slamon"] <= weights["swim"]


def test_snippets_and_reasons_are_of_what_was_searched(http: httpx.Client) -> None:
    answer = search(http, "slamon", highlight=True, explain=True)
    first = answer["hits"][0]
    assert "<em>" in str(first["highlights"]) and "salmon" in str(first["highlights"]).lower()
    assert answer["query"]["explanation"]["terms"][0]["word"] == "salmon"
