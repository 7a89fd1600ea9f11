"""Late interaction in hybrid search: for every candidate or none, of the right passage, and the same whatever else is found."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glow.index import Fusion, Index, RowMask
from glow.index.late_interaction import LATE_INTERACTION, max_sim
from glow.index.passages import PASSAGES
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow.search import EncodedQuery, RankedDocuments, answered_words, fuse_hybrid, gather_hybrid, rank_hybrid
from glow.search.hybrid import LATE_SHARE, LATE_WORDS
from tests.asked import asked_of
from tests.made_index import documents, live, made, write

TEXT = "how do foxes find home at night in the north"


@pytest.fixture(scope="module")
def index(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("late")
    source = write(folder / "a.jsonl", documents(120))
    return live(made(toy_model, source, folder / "index", index="flat").path)


@pytest.fixture(scope="module")
def query(index: Index) -> EncodedQuery:
    return asked_of(index, TEXT)


def by_row(ranked: RankedDocuments, part: str) -> dict[int, float]:
    return dict(zip(ranked.rows.tolist(), ranked.parts[part].tolist(), strict=True))


def test_it_is_a_part_of_what_the_vectors_say(index: Index, query: EncodedQuery) -> None:
    late = rank_hybrid(index, query, 50)
    plain = rank_hybrid(index, replace(query, tokens=None), 50)
    assert set(plain.parts) == {"dense", "lexical"} and set(late.parts) == {"dense", "lexical", "late"}
    assert late.rows.tolist() != plain.rows.tolist()
    weights = index.fusion.weights
    share = weights.dense / (weights.dense + weights.lexical)
    cosines, scores = by_row(late, "dense"), by_row(late, "late")
    before = dict(zip(plain.rows.tolist(), plain.scores.tolist(), strict=True))
    assert len([row for row in late.rows.tolist() if row in before]) > 40
    for row, score in zip(late.rows.tolist(), late.scores.tolist(), strict=True):
        if row in before:
            words = before[row] - share * cosines[row]
            vectors = (1 - LATE_SHARE) * cosines[row] + LATE_SHARE * scores[row]
            assert score == pytest.approx(share * vectors + LATE_WORDS * words, abs=1e-5)


def test_a_score_is_worked_out_from_the_tokens_of_both(index: Index, query: EncodedQuery) -> None:
    """By hand: the mean over the query's tokens of the best product with a row's signs."""
    ranked, late = rank_hybrid(index, query, 50), index[LATE_INTERACTION]
    assert query.tokens is not None
    tokens, size = query.tokens.vectors, late.header.size
    assert len(tokens) == len(query.tokens.tokens) > len(TEXT.split())
    for row, found in by_row(ranked, "late").items():
        codes, _ = late.read(np.array([row]))
        signs = (2.0 * np.unpackbits(codes, axis=1) - 1.0) / np.sqrt(size)
        assert found == pytest.approx((tokens @ signs.T).max(1).mean(), abs=1e-4)


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_what_is_allowed_changes_no_score(index: Index, query: EncodedQuery, share: float) -> None:
    allowed = RowMask(np.random.default_rng(1).random(120) < share)
    whole, kept = rank_hybrid(index, query, 120), rank_hybrid(index, query, 120, allowed=allowed)
    places = np.flatnonzero(np.isin(whole.rows, kept.rows))
    assert whole.rows[places].tolist() == kept.rows.tolist()
    assert whole.scores[places].tobytes() == kept.scores.tobytes()
    assert whole.parts["late"][places].tobytes() == kept.parts["late"].tobytes()


def test_all_candidates_or_none(index: Index, query: EncodedQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that ends on the way leaves no score half."""
    monkeypatch.setattr("glow.search.late.AT_ONCE", 64)
    dense, gathered = gather_hybrid(index, query, 100)
    asked: list[bool] = []

    def is_over() -> bool:
        asked.append(True)
        return len(asked) > 1

    ranked = fuse_hybrid(index, gathered, 100, index.fusion, dense.passages, is_over)
    assert len(asked) == 2
    plain = rank_hybrid(index, replace(query, tokens=None), 100)
    assert set(ranked.parts) == {"dense", "lexical"}
    assert ranked.rows.tolist() == plain.rows.tolist() and ranked.scores.tobytes() == plain.scores.tobytes()


def test_places_alone_know_no_tokens(index: Index, query: EncodedQuery) -> None:
    assert "late" not in rank_hybrid(index, query, 50, fusion=Fusion(method="rrf")).parts


def test_of_a_long_document_its_best_passage_is_compared(toy_model: Path, tmp_path: Path) -> None:
    records = documents(40)
    for number, record in enumerate(records):
        record["text"] = " ".join(each["text"] for each in records[number : number + 9])
    source = write(tmp_path / "a.jsonl", records)
    index = live(made(toy_model, source, tmp_path / "index", passages=True).path)
    query = asked_of(index, "how do bees find the way home")
    ranked, cut, late = rank_hybrid(index, query, 50), index[PASSAGES], index[LATE_INTERACTION]
    assert len(cut) > index[STORED_FIELDS].count and query.tokens is not None
    for row, found in by_row(ranked, "late").items():
        mine = np.arange(cut.first[row], cut.first[row + 1])
        best = mine[index[VECTORS].score(query.vector, mine).argmax()]
        scored = max_sim(*late.read(best[None]), query.tokens.vectors, query.tokens.weights)
        assert scored[0] == np.float32(found)


def test_reasons_pair_words_of_both(index: Index, query: EncodedQuery) -> None:
    ranked = rank_hybrid(index, query, 3)
    assert query.tokens is not None
    for row in ranked.rows.tolist():
        document = index.preprocessor.document(index[STORED_FIELDS].rows([row])[0])
        told = answered_words(index, query.tokens, row, document)
        assert [each.word for each in told] == TEXT.split()
        assert {each.answer for each in told} <= set(document.words)
        share = (query.tokens.tokens.word_ids >= 0).mean()  # [CLS] and [SEP] have the rest
        assert sum(each.weight for each in told) == pytest.approx(share, abs=1e-5)
        assert all(-1.01 <= each.similarity <= 1.01 for each in told)


def test_indexes_without_tokens_search_as_before(toy_model: Path, toy_corpus: Path, tmp_path: Path) -> None:
    index = live(made(toy_model, toy_corpus, tmp_path / "index", late_interaction=False).path)
    assert not index.holds(LATE_INTERACTION)
    assert set(rank_hybrid(index, asked_of(index, TEXT), 10).parts) == {"dense", "lexical"}
