"""Late interaction over HTTP, and snippets by meaning: the words whose tokens answer, in the passage that was compared."""

from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from glow.index import Index
from glow.index.late_interaction import LATE_INTERACTION
from glow.index.passages import PASSAGES
from glow.index.stored_fields import STORED_FIELDS
from glow.search import Meaning, can_tell, rows_read
from glow.text import Highlighter, WordSpans, is_lexical, markup
from glow.text.highlight import answering_words
from glow_service.search import passage_document
from tests.asked import asked_of
from tests.made_index import made, write
from tests.service import asking
from tests.service.asking import QUERY, Serve, live_index

ask = partial(asking.ask, top_k=20)


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


def test_a_deadline_gives_the_first_stage_and_no_cache_keeps_it(serve: Serve, monkeypatch: Any) -> None:
    with serve(cache_entries=100) as client:
        without = ask(client, rerank=False)
        with monkeypatch.context() as patch:
            patch.setattr("glow_service.search.run.RERANK_RESERVE_S", 1e6)
            late = ask(client)
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
        without = ask(client, explain=True, rerank=False, top_k=5)["hits"]
        assert all("late" not in hit["explanation"] for hit in without)


def test_a_query_that_was_kept_is_compared_as_one_that_was_read(serve: Serve) -> None:
    with serve(cache_entries=100) as client:
        ask(client)
        kept = ask(client, top_k=19)
    with serve() as client:
        assert ask(client, top_k=19)["hits"] == kept["hits"]
        assert "encode" not in kept["timings_ms"]


# Snippets by meaning: exactly the words whose tokens answer, in the passage that was compared; else as ever.

MEANING_QUERY = "insects that return to their hive"
SENTENCES = (
    "Bees find the way home by the sun, by landmarks (and by smell).",
    "Crème brûlée is served in a café; naïve poems are read.",
    "東京 is the capital; 日本 writes without spaces.",
    "Unbelievably long-winded counterexamples 1,234.5 are rare!",
    "be\u200bes fly\tat 12 o'clock, e.g. in Dr. Smith's garden.",
)


def records() -> list[dict[str, Any]]:
    """Every field in turn empty, full, or longer than its budget; the text long, short, blank, missing or in two values."""
    found = []
    for number in range(30):
        body = " ".join(SENTENCES[(number + place) % 5] for place in range((number * 7) % 23 + 1))
        found.append(
            {
                "_id": f"d{number}",
                "title": ("Bees", "A title. " * 30, "")[number % 3],
                "anchor": [["a beehive", "日本"], [], ["wax " * 40]][number // 3 % 3],
                "url": ("https://example.org/bees/home-12.html", "")[number % 2],
                "text": body if number < 26 else ("", " \n", ["Bees fly home.", body], "…")[number - 26],
            }
        )
    return found


@pytest.fixture(scope="module")
def indexes(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, Index]:
    """Of documents as wholes, and in passages."""
    folder = tmp_path_factory.mktemp("meaning")
    source = write(folder / "a.jsonl", records())
    whole = made(toy_model, source, folder / "whole", index="flat")
    cut = made(toy_model, source, folder / "cut", passages=True, index="flat")
    return live_index(whole.path), live_index(cut.path)


@pytest.mark.parametrize("number", [0, 1], ids=["whole", "passages"])
def test_each_term_is_found_at_the_word_whose_token_answers_it_best(
    indexes: tuple[Index, Index], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As preprocessing the text again and comparing every token tells."""
    monkeypatch.setattr("glow.search.meaning.LEAST_ALIKE", -2.0)
    index, rows = indexes[number], np.arange(30)
    query = asked_of(index, MEANING_QUERY)
    assert query.tokens is not None and can_tell(index.preprocessor)
    meaning = Meaning(index, query, query.tokens, rows, {})
    late, pieces = index[LATE_INTERACTION], index.preprocessor.pieces
    spans = WordSpans(pieces)
    asked = query.tokens.tokens
    checked = 0
    for row, own in enumerate(rows_read(index, rows, {}, query.vector).tolist()):
        document = index[STORED_FIELDS].rows([row])[0]
        read = meaning.of(row, document)
        passage = index[PASSAGES].passage_of(document, own) if index.holds(PASSAGES) else None
        sequence = index.preprocessor.document(passage_document(document, passage))
        body = index.preprocessor.schema.names.index("text")
        places = late.places(own)
        mine = np.flatnonzero((sequence.field_ids[places] == body) & (sequence.word_ids[places] >= 0))
        if len(document.fields.get("text", ())) != 1 or not len(mine):
            assert read is None
            continue
        assert read is not None
        codes, _ = late.read(np.array([own]))
        alike = query.tokens.vectors @ (2.0 * np.unpackbits(codes[mine], axis=1) - 1.0).T
        for word_id, word in enumerate(asked.words):
            if not is_lexical(word):
                continue
            ours = alike[asked.word_ids == word_id]
            best = {int(place) for place in np.argwhere(ours > ours.max() - 1e-3)[:, 1]}
            expected = {sequence.words[sequence.word_ids[places[mine[place]]]] for place in best}
            found = answering_words(read, {index.analyzer.term(word)}, spans, pieces)
            (value,) = document.fields["text"]
            said = {pieces.whole_words(value[at.start : at.end])[0] for at in found}
            assert said <= expected and (said or not all(map(is_lexical, expected)))
            checked += len(said)
    assert checked > 50


@pytest.fixture
def serve_index(toy_model: Path, tmp_path: Path, serve: Serve) -> Serve:
    """Serves an index of these documents."""
    root = made(toy_model, write(tmp_path / "a.jsonl", records()), tmp_path / "index", index="flat")
    return lambda **values: serve(root.path, **values)


def highlights(client: httpx.Client, **more: Any) -> tuple[list[str], dict[str, dict[str, list[str]]]]:
    """What was left undone, and the snippets of each hit."""
    response = client.post("/search", json={"query": MEANING_QUERY, "top_k": 20, "highlight": True, **more})
    assert response.status_code == 200, response.text
    found = response.json()
    return found["degraded"], {hit["id"]: hit["highlights"] for hit in found["hits"]}


def test_what_was_not_compared_is_cut_as_ever(
    serve_index: Serve, indexes: tuple[Index, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow.search.meaning.LEAST_ALIKE", 0.0)
    index = indexes[0]
    plain = Highlighter(index.preprocessor, index.analyzer)
    documents = index[STORED_FIELDS].rows(range(30))
    cut = {each.id: plain.document(each, MEANING_QUERY) for each in documents}
    expected = {key: {name: [*map(markup, each[name])] for name in each} for key, each in cut.items()}
    with serve_index(cache_entries=0) as client:
        _, default = highlights(client)
        assert default != {name: expected[name] for name in default}
        assert all(each.get("title") == expected[name].get("title") for name, each in default.items())
        for more in ({"rerank": False}, {"retriever": "lexical"}, {"retriever": "dense"}):
            _, found = highlights(client, **more)
            assert found == {name: expected[name] for name in found}
        monkeypatch.setattr("glow_service.search.run.RERANK_RESERVE_S", 1e6)
        degraded, found = highlights(client)
        assert degraded == ["late"] and found == {name: expected[name] for name in found}


def test_short_of_time_snippets_are_cut_as_ever_and_no_cache_keeps_them(
    serve_index: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow.search.meaning.LEAST_ALIKE", 0.0)
    with serve_index(cache_entries=100) as client:
        with monkeypatch.context() as patch:
            patch.setattr("glow_service.search.hits.READING_RESERVE_S", 1e6)
            degraded, without = highlights(client)
        assert degraded == ["snippets"]
        degraded, found = highlights(client)
        assert degraded == [] and list(found) == list(without) and found != without
        assert 'glow_left_out_total{stage="snippets"} 1.0' in client.get("/metrics").text
