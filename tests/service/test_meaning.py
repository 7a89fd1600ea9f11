"""Snippets by meaning: exactly the words whose tokens answer, in the passage that was compared, and as ever where nothing was."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from glow.index import Index
from glow.index.late_interaction import LATE_INTERACTION
from glow.index.passages import PASSAGES
from glow.index.stored_fields import STORED_FIELDS
from glow.search import Meaning, can_tell, rows_read
from glow.text import Highlighter, WordSpans, is_lexical, markup
from glow.text.highlight import answering_words
from glow_service.app import create_app
from glow_service.search import passage_document
from glow_service.settings import Settings
from tests.asked import asked_of
from tests.made_index import made, write

QUERY = "insects that return to their hive"
SENTENCES = (
    "Bees find the way home by the sun, by landmarks (and by smell).",
    "Crème brûlée is served in a café; naïve poems are read.",
    "東京 is the capital; 日本 writes without spaces.",
    "Unbelievably long-winded counterexamples 1,234.5 are rare!",
    "be\u200bes fly\tat 12 o'clock, e.g. in Dr. Smith's garden.",
)
Serve = Callable[..., AbstractContextManager[httpx.Client]]


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
    roots = [
        made(toy_model, source, folder / name, passages=name == "cut", index="flat")
        for name in ("whole", "cut")
    ]
    whole, cut = (Index.open(root.folder(root.current())) for root in roots)
    return whole, cut


@pytest.mark.parametrize("number", [0, 1], ids=["whole", "passages"])
def test_each_term_is_found_at_the_word_whose_token_answers_it_best(
    indexes: tuple[Index, Index], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As preprocessing the text again and comparing every token tells."""
    monkeypatch.setattr("glow.search.meaning.LEAST_ALIKE", -2.0)
    index, rows = indexes[number], np.arange(30)
    query = asked_of(index, QUERY)
    assert query.tokens is not None and can_tell(index.preprocessor)
    meaning = Meaning(index, query, query.tokens, rows, {})
    late, pieces, spans = (
        index[LATE_INTERACTION],
        index.preprocessor.pieces,
        WordSpans(index.preprocessor.pieces),
    )
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
            term = index.analyzer.term(word)
            found = answering_words(read, {term}, spans, pieces)
            (value,) = document.fields["text"]
            said = {pieces.whole_words(value[at.start : at.end])[0] for at in found}
            assert said <= expected and (said or not all(map(is_lexical, expected)))
            checked += len(said)
    assert checked > 50


@pytest.fixture
def serve(
    toy_model: Path,
    tmp_path: Path,
    serve_app: Callable[[FastAPI], AbstractContextManager[httpx.Client]],
) -> Serve:
    """Serves an index of these documents in a thread of this process."""
    root = made(toy_model, write(tmp_path / "a.jsonl", records()), tmp_path / "index", index="flat")

    @contextmanager
    def served(**options: Any) -> Iterator[httpx.Client]:
        app = create_app(Settings(index_root=root.path, **options), on_failure=lambda: None)
        with serve_app(app) as client:
            yield client

    return served


def highlights(client: httpx.Client, **more: Any) -> tuple[list[str], dict[str, dict[str, list[str]]]]:
    """What was left undone, and the snippets of each hit."""
    response = client.post("/search", json={"query": QUERY, "top_k": 20, "highlight": True, **more})
    assert response.status_code == 200, response.text
    found = response.json()
    return found["degraded"], {hit["id"]: hit["highlights"] for hit in found["hits"]}


def test_what_was_not_compared_is_cut_as_ever(
    serve: Serve, indexes: tuple[Index, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow.search.meaning.LEAST_ALIKE", 0.0)
    index = indexes[0]
    plain = Highlighter(index.preprocessor, index.analyzer)
    documents = index[STORED_FIELDS].rows(range(30))
    expected = {
        each.id: {name: [markup(one) for one in found] for name, found in plain.document(each, QUERY).items()}
        for each in documents
    }
    with serve(cache_entries=0) as client:
        _, default = highlights(client)
        assert default != {name: expected[name] for name in default}
        assert {name: each.get("title") for name, each in default.items()} == {
            name: expected[name].get("title") for name in default
        }
        for more in ({"rerank": False}, {"retriever": "lexical"}, {"retriever": "dense"}):
            _, found = highlights(client, **more)
            assert found == {name: expected[name] for name in found}
        monkeypatch.setattr("glow_service.search.session.RERANK_RESERVE_S", 1e6)
        degraded, found = highlights(client)
        assert degraded == ["late"] and found == {name: expected[name] for name in found}


def test_short_of_time_snippets_are_cut_as_ever_and_no_cache_keeps_them(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow.search.meaning.LEAST_ALIKE", 0.0)
    with serve(cache_entries=100) as client:
        with monkeypatch.context() as patch:
            patch.setattr("glow_service.search.hits.READING_RESERVE_S", 1e6)
            degraded, without = highlights(client)
        assert degraded == ["snippets"]
        degraded, found = highlights(client)
        assert degraded == [] and list(found) == list(without) and found != without
        assert 'glow_left_out_total{stage="snippets"} 1.0' in client.get("/metrics").text
