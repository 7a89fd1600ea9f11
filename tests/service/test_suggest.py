"""As one types: the last word as a prefix, `GET /suggest`, and a file of synonyms that is read again when it changes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.contract import SuggestResult
from glow_service.commands.serve import serve_command
from tests.records import read_whole
from tests.service.asking import BuildIndex, Serve, ask, assert_problem, ids, invoke, samples, tenants
from tests.until import until

DOCUMENTS = [
    {"_id": "lamp", "title": "Desk lamp", "text": "A lamp of brass for a desk, with a switch.", "owner": "ann"},
    {"_id": "lantern", "title": "Garden lantern", "text": "A lantern for the garden; 1033 hours.", "owner": "bob"},
    {"_id": "lamps", "title": "Floor lamps", "text": "Two lamps for the floor beside a sofa.", "owner": "ann"},
    {"_id": "sofa", "title": "Sofa of linen", "text": "A sofa for three.", "owner": "ann"},
    {"_id": "bed", "title": "Divan", "text": "A sofa bed for two, of linen.", "owner": "bob"},
    {"_id": "telly", "title": "Television", "text": "A television with a large screen.", "owner": "bob"},
    {"_id": "desk", "title": "Oak desk", "text": "A desk of oak.", "owner": "ann"},
]  # fmt: skip
SYNONYMS = "# furniture\nsofa, couch, sofa bed\ntv => television, telly\n"


@pytest.fixture(scope="module")
def root(build_index: BuildIndex) -> Path:
    return build_index(DOCUMENTS)


@pytest.fixture(scope="module")
def client(root: Path, serve: Serve) -> Iterator[httpx.Client]:
    with serve(root) as client:
        yield client


def suggestions(client: httpx.Client, q: str, **more: Any) -> list[tuple[str, str]]:
    response = client.get("/suggest", params={"q": q, **more})
    assert response.status_code == 200, response.text
    read_whole(response.content, SuggestResult)
    return [(each["kind"], each["text"]) for each in response.json()["suggestions"]]


def test_the_last_word_may_be_the_start_of_one(client: httpx.Client) -> None:
    found = ask(client, "lam", prefix=True, retriever="lexical")
    assert set(ids(found)) == {"lamp", "lamps"} and found["query"]["completed"] == ["lamp"]
    assert not ask(client, "lam", retriever="lexical", typos="off")["hits"], "only if it is asked for"
    assert not ask(client, "lam ", prefix=True, retriever="lexical", typos="off")["hits"]
    # A number, two kinds of typos, a word that is known and goes on, and one after an exclusion.
    for typed, first in (
        ("10", "lantern"),
        ("lntern", "lantern"),
        ("telex", "telly"),
        ("-brass lam", "lamps"),
    ):
        assert ids(ask(client, typed, prefix=True, retriever="lexical")) == [first]
    assert ids(ask(client, "gardn lant", prefix=True, retriever="lexical"))[0] == "lantern"
    # The text of dense retrieval has the word that fits the others, and so has its cache.
    hybrid, whole = ask(client, "garden lan", prefix=True), ask(client, "garden lantern")
    assert hybrid["hits"] == whole["hits"]


def test_suggestions_are_phrases_and_titles(client: httpx.Client) -> None:
    assert suggestions(client, "la") == [
        ("phrase", "lamp"), ("phrase", "lantern"), ("phrase", "large"),
        ("title", "Garden lantern"), ("title", "Desk lamp"), ("title", "Floor lamps"),
    ]  # fmt: skip
    assert suggestions(client, "brass la", k=3) == [("phrase", "brass lamp"), ("title", "Desk lamp")]
    assert suggestions(client, "desk ")[0][0] == "title"
    assert suggestions(client, "desk zzzz") == []
    given = client.get("/v1/suggest?q=a garden lant").json()["suggestions"]
    assert given == [
        {"text": "a garden lantern", "kind": "phrase"},
        {"text": "Garden lantern", "kind": "title", "id": "lantern"},
    ]
    for wrong, code in (("q=a&k=21", "invalid_request"), ("q=%20", "invalid_query"), ("", "invalid_request")):
        assert_problem(client.get(f"/suggest?{wrong}"), 422, code)


def test_a_key_with_a_filter_gets_no_word_of_other_documents(
    root: Path, serve: Serve, tmp_path: Path
) -> None:
    names = ("ann", "bob")
    with serve(root, **tenants(tmp_path, **{name: f'owner = "{name}"' for name in names})) as client:
        assert_problem(client.get("/suggest", params={"q": "la"}), 401, "key_missing")
        own = {}
        for name in names:
            client.headers["X-API-Key"] = f"key of {name}"
            own[name] = suggestions(client, "la")
            assert "completed" not in ask(client, "lan", prefix=True)["query"]
    assert own["ann"] == [
        ("phrase", "lamp"), ("phrase", "lamps"), ("title", "Desk lamp"), ("title", "Floor lamps"),
    ]  # fmt: skip
    assert own["bob"] == [("phrase", "lantern"), ("title", "Garden lantern")]


def test_synonyms_count_as_words_of_the_query(root: Path, serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "synonyms.txt"
    file.write_text(SYNONYMS)
    with serve(root, synonyms=str(file)) as client:
        found = ask(client, "couches", retriever="lexical", explain=True, highlight=True)
        assert set(ids(found)) == {"sofa", "lamps", "bed"} and "unknown" not in found["query"]
        assert found["query"]["synonyms"] == {"couches": ["sofa", "sofa bed"]}
        words = found["hits"][ids(found).index("sofa")]["explanation"]["lexical"]
        assert [(each["word"], each["because"]) for each in words] == [("couches", "sofa")]
        assert "<em>sofa</em>" in found["hits"][ids(found).index("lamps")]["highlights"]["text"][0]
        assert ids(ask(client, "TV", retriever="lexical")) == ["telly"]
        assert "synonyms" not in ask(client, "television", retriever="lexical")["query"], "one way"
        pair = ask(client, "sofa bed", retriever="lexical")["query"]["synonyms"]["sofa bed"]
        assert pair == ["sofa", "couch"]

        def matches(query: str) -> bool:
            return bool(ask(client, query, retriever="lexical")["hits"])

        # A new file counts without a restart, also for responses in the cache; a broken one does not.
        assert not matches("bureau")
        file.write_text("bureau, desk\n")
        until(lambda: matches("bureau"))
        assert not matches("couches")
        file.write_text("bureau, desk\nsofa\n")
        until(lambda: samples(client)["glow_synonyms_refused"] == 1)
        assert matches("bureau")


@pytest.mark.parametrize(
    "line", ["sofa", "sofa, , couch", "a => b => c", "sofa, !!", "=> sofa", "sofa, sofa"]
)
def test_a_broken_file_is_refused_by_line(line: str, tmp_path: Path) -> None:
    file = tmp_path / "synonyms.txt"
    file.write_text(f"# groups\ncouch, divan\n{line}\n")
    refused = invoke(serve_command, "--index-root", "x", "--synonyms", file)
    assert refused.exit_code == 2 and "line 3" in refused.stderr and "expected" in refused.stderr
