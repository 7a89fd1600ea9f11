"""Members of every response, in the order in which they are sent: `wire.json`, written anew by `RECORD=1 pytest` of this file.

A difference is a change for clients, and belongs in the changelog.
"""

import inspect
import json
import os
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx
import pytest

from glow.client import AsyncGlowClient, GlowClient, PagedOptions, SearchOptions
from glow.contract import Passage, encode
from glow_service.search import SearchBody

GOLDEN = Path(__file__).parent / "wire.json"
BEES: dict[str, Any] = {"query": "how do bees find home", "top_k": 2}
WHOLE = {**BEES, "highlight": True, "explain": {"leave_one_out": True}, "vectors": True}
ASKED: dict[str, tuple[str, str, Any]] = {
    "search": ("POST", "/search", BEES),
    "search, everything": ("POST", "/search", WHOLE),
    "search by words": ("POST", "/search", {**WHOLE, "retriever": "lexical"}),
    "search, facets": ("POST", "/search", {**BEES, "facets": [{"field": "lang"}]}),
    "search, typo": ("POST", "/search", {"query": "how do slamon swim zzzz", "top_k": 1}),
    "search, refused": ("POST", "/search", {"query": "bees", "top_k": 0}),
    "batch": ("POST", "/search/batch", {"searches": [BEES, {"query": " "}]}),
    "document": ("GET", "/documents/toy/0", None),
    "document, missing": ("GET", "/documents/nope", None),
    "vectors": ("POST", "/v1/embeddings", {"input": ["bees"], "input_type": "query"}),
    "models": ("GET", "/v1/models", None),
    "info": ("GET", "/info", None),
    "ready": ("GET", "/readyz", None),
    "health": ("GET", "/healthz", None),
    "problem": ("GET", "/problems/invalid_request", None),
    "feedback, off": ("POST", "/feedback", {}),
    "write, off": ("POST", "/documents", {"_id": "a"}),
}
OPEN = ("settings", "timings_ms", "columns")
"""Objects whose members depend on the machine or the index."""


def shape(value: Any, name: str = "") -> Any:
    """The members of objects in order, with the types of their values; a list shows the shapes of its items."""
    if isinstance(value, dict) and name not in OPEN:
        return {key: shape(each, key) for key, each in value.items()}
    if isinstance(value, list):
        shapes = [shape(each) for each in value]
        return [each for place, each in enumerate(shapes) if each not in shapes[:place]]
    return type(value).__name__


def test_every_response_has_its_members_in_their_order(http: httpx.Client) -> None:
    found = {}
    for name, (method, path, body) in ASKED.items():
        response = http.request(method, path, json=body)
        found[name] = {"status": response.status_code, "body": shape(response.json())}
    if os.environ.get("RECORD"):
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    wanted = json.loads(GOLDEN.read_bytes())
    for name, each in found.items():
        assert json.dumps(each) == json.dumps(wanted[name]), name
    assert found.keys() == wanted.keys()


def test_the_clients_options_are_the_members_of_a_search() -> None:
    options = get_type_hints(SearchOptions)
    assert options.keys() | {"query"} == SearchBody.model_fields.keys()
    assert get_type_hints(PagedOptions).keys() | {"top_k"} == options.keys()
    for name in ("retriever", "typos"):
        assert _texts(options[name]) == _texts(SearchBody.model_fields[name].annotation), name


def _texts(annotation: Any) -> set[str]:
    """The texts of its literals."""
    parts = get_args(annotation)
    return {part for part in parts if isinstance(part, str)}.union(*map(_texts, parts))


@pytest.mark.parametrize("name", [name for name in vars(GlowClient) if not name.startswith("_")])
def test_both_clients_have_the_same_documented_methods(name: str) -> None:
    methods = [getattr(kind, name) for kind in (GlowClient, AsyncGlowClient)]
    arguments = [list(inspect.signature(method).parameters.values()) for method in methods]
    assert arguments[0] == arguments[1]
    assert arguments[0][0].name == "self"
    assert all(method.__doc__ for method in methods)
    assert methods[0].__name__ == methods[1].__name__ == name


def test_a_text_of_another_type_is_a_text_in_json() -> None:
    class Word(str):
        """As a word that knows how it was spelled."""

    assert encode(Passage("text", 0, 4, Word("bees"))) == b'{"field":"text","start":0,"end":4,"text":"bees"}'
    assert encode({Word("bees"): [Word("hive")]}) == b'{"bees":["hive"]}'
    with pytest.raises(TypeError, match="object is not a value of JSON"):
        encode([object()])
