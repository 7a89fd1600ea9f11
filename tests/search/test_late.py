"""Late interaction in hybrid search: of the first documents, of the right passage, and the same whatever else is found."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glow.index import Fusion, Index, RowMask
from glow.index.late_interaction import LATE_INTERACTION, max_sim
from glow.index.passages import PASSAGES
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow.search import EncodedQuery, QueryTokens, RankedDocuments, answered_words, rank_dense, rank_hybrid
from glow.search.hybrid import LATE_SHARE, LATE_WORDS
from glow.search.late import late_scorer
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


def test_it_is_a_part_of_the_first_documents_score_and_others_count_as_the_lowest(
    index: Index, query: EncodedQuery
) -> None:
    """By hand: the first 48 by the sum without it, and the ten nearest."""
    late, plain = rank_hybrid(index, query, 100), rank_hybrid(index, replace(query, tokens=None), 100)
    assert set(plain.parts) == {"dense", "lexical"} and set(late.parts) == {"dense", "lexical", "late"}
    near = rank_dense(index, query.vector, 10).rows.tolist()
    first = {*plain.rows[:48].tolist(), *near}
    scores = {row: score for row, score in by_row(late, "late").items() if not np.isnan(score)}
    assert len(late.rows) > len(first) and scores.keys() == first & set(late.rows.tolist())
    assert late.rows.tolist() != plain.rows.tolist()
    weights = index.fusion.weights
    share = weights.dense / (weights.dense + weights.lexical)
    cosines, before = (
        by_row(late, "dense"),
        dict(zip(plain.rows.tolist(), plain.scores.tolist(), strict=True)),
    )
    checked = 0
    for row, score in zip(late.rows.tolist(), late.scores.tolist(), strict=True):
        if row in before:
            words = before[row] - share * cosines[row]
            own = scores.get(row, min(scores.values()))
            vectors = (1 - LATE_SHARE) * cosines[row] + LATE_SHARE * own
            assert score == pytest.approx(share * vectors + LATE_WORDS * words, abs=1e-5)
            checked += row not in scores
    assert checked > 10


def test_a_score_is_worked_out_from_the_tokens_of_both(index: Index, query: EncodedQuery) -> None:
    """By hand: the mean over the query's tokens of the best product with a row's signs."""
    ranked, late = rank_hybrid(index, query, 50), index[LATE_INTERACTION]
    assert query.tokens is not None
    tokens, size = query.tokens.vectors, late.header.size
    assert len(tokens) == len(query.tokens.tokens) > len(TEXT.split())
    for row, found in by_row(ranked, "late").items():
        if np.isnan(found):
            continue
        codes, _ = late.read(np.array([row]))
        signs = (2.0 * np.unpackbits(codes, axis=1) - 1.0) / np.sqrt(size)
        assert found == pytest.approx((tokens @ signs.T).max(1).mean(), abs=1e-4)


def test_of_a_long_query_the_first_64_tokens_are_compared(index: Index, query: EncodedQuery) -> None:
    assert query.tokens is not None
    vectors = np.random.default_rng(0).normal(size=(70, query.tokens.vectors.shape[1])).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = np.arange(120)
    long, short = (
        late_scorer(index, QueryTokens.of(query.tokens.tokens, some), query.vector, {})(rows)
        for some in (vectors, vectors[:64])
    )
    assert np.array_equal(long, short)  # type: ignore[arg-type]
    assert QueryTokens.of(query.tokens.tokens, vectors).weights.tolist() == [1 / 64] * 64 + [0.0] * 6


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_what_is_allowed_changes_no_score_of_the_first(
    index: Index, query: EncodedQuery, share: float
) -> None:
    allowed = RowMask(np.random.default_rng(1).random(120) < share)
    whole, kept = rank_hybrid(index, query, 120), rank_hybrid(index, query, 120, allowed=allowed)
    first = whole.rows[~np.isnan(whole.parts["late"])]
    own, same = (
        np.flatnonzero(np.isin(whole.rows, kept.rows) & np.isin(whole.rows, first)),
        np.isin(kept.rows, first),
    )
    assert whole.rows[own].tolist() == kept.rows[same].tolist() and len(own) > 3
    assert whole.scores[own].tobytes() == kept.scores[same].tobytes()
    assert whole.parts["late"][own].tobytes() == kept.parts["late"][same].tobytes()


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
