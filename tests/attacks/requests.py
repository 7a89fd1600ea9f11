"""Requests that cost much and say little."""

from typing import Any

__all__ = ["explain_batch", "filter_batch", "large_answer_batch", "plain_batch"]

QUESTION = "how do I remove a directory and everything that is in it"


def explain_batch(searches: int = 64, top_k: int = 100) -> dict[str, Any]:
    """Searches whose every hit is encoded once more, with each word left out; 8 KB."""
    search = {"top_k": top_k, "fields": [], "explain": {"leave_one_out": True}, "timeout_ms": 30_000}
    return {"searches": [{"query": f"{QUESTION} {number}", **search} for number in range(searches)]}


def plain_batch(searches: int = 64) -> dict[str, Any]:
    """As many ordinary searches as a batch may have."""
    body = {"top_k": 100, "highlight": True, "timeout_ms": 30_000}
    return {"searches": [{"query": f"{QUESTION} {number}", **body} for number in range(searches)]}


def prefix_batch(searches: int = 16) -> dict[str, Any]:
    """Searches whose last word is one letter, and may be any word that begins with it."""
    body = {"top_k": 100, "highlight": True, "prefix": True, "timeout_ms": 30_000}
    return {
        "searches": [
            {"query": f"{number} {'abcdefghimnoprst'[number]}", **body} for number in range(searches)
        ]
    }


def rerank_search(depth: int = 200) -> dict[str, Any]:
    """One search whose first hits are all re-ranked."""
    return {
        "query": "how do i read a file line by line",
        "top_k": 10,
        "candidates": depth,
        "rerank": {"depth": depth},
    }


def filter_batch(field: str, searches: int = 64, conditions: int = 240) -> dict[str, Any]:
    """Searches with filters of 961 terms each; 1.6 MB."""
    return {
        "searches": [
            {"query": f"{QUESTION} {number}", "filter": _filter(field, conditions)}
            for number in range(searches)
        ]
    }


def _filter(field: str, conditions: int) -> dict[str, Any]:
    pair = [{"field": field, "eq": "a"}, {"field": field, "gte": "b", "lt": "c"}]
    return {"and": [{"not": {"or": pair}}] * conditions}


def large_answer_batch(searches: int = 16, top_k: int = 60) -> dict[str, Any]:
    """Searches that ask for every document whole; less than a kilobyte."""
    return {"searches": [{"query": f"bees {number}", "top_k": top_k} for number in range(searches)]}
