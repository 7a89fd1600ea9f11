"""The program behind the tables of NDRM: terms, training, full retrieval and re-ranking agree."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from glow.text import WordPieces
from glow.training.data import Collection
from research.ndrm import (
    GRADES,
    Options,
    TermCollection,
    _documents,
    bm25,
    rank,
    ranknet_loss,
    scores_of,
    term_scores,
    train,
)
from research.ndrm_model import ConformerConfig, Ndrm, NdrmConfig
from tests.conftest import DATA


@pytest.fixture(scope="module")
def terms(toy_collection: Collection) -> TermCollection:
    return TermCollection(toy_collection, WordPieces(DATA / "toy-model" / "vocab.txt"))


def model(terms: TermCollection, kind: str, **changes: object) -> Ndrm:
    torch.manual_seed(0)
    conformer = ConformerConfig(hidden=16, heads=4, window=5, dropout=0.0)
    options = {"words": len(terms.vocabulary), "embedding": 16, "kind": kind, "conformer": conformer}
    return Ndrm(NdrmConfig.model_validate(options | changes))


def test_ranknet() -> None:
    """Golden G6: five pairs of grades 2, 1, 0, 0."""
    loss = ranknet_loss(torch.tensor([[2.0, 1.0, 0.0, 0.5]]), torch.tensor([[2.0, 1.0, 0.0, 0.0]]))
    assert float(loss) == pytest.approx(0.285787, abs=1e-6)
    both = ranknet_loss(torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    assert float(both) == pytest.approx(float(np.log1p(np.exp(-1.0))), abs=1e-5)  # the second has no pair


@pytest.mark.parametrize("kind", ["latent", "explicit", "both"])
def test_full_retrieval_and_re_ranking_give_the_same_scores(terms: TermCollection, kind: str) -> None:
    """Query term independence: a query's score is the sum of its words', worked out for all documents beforehand."""
    ndrm, wanted = model(terms, kind), np.unique(np.concatenate(terms.queries))
    hundred = [rows for rows, _ in rank(terms, wanted, bm25(terms, wanted), 10)]
    losses = train(ndrm, terms, hundred, Options(6, batch_size=8))
    assert len(losses) == 6 and np.isfinite(losses).all()
    found = rank(terms, wanted, term_scores(ndrm, terms, wanted), among=hundred)
    with torch.inference_mode():
        for query, rows in enumerate(hundred):
            if len(terms.queries[query]) and len(rows):
                scores = np.sort(scores_of(ndrm, terms, [query], rows[None])[0].numpy())[::-1]
                np.testing.assert_allclose(found[query][1], scores, rtol=1e-4, atol=1e-4)


def test_the_second_document_of_a_query_is_not_relevant_and_worth_more_than_random_ones(
    terms: TermCollection,
) -> None:
    """Weak supervision: a relevant document, one of BM25's hundred, two random ones (section 5.3)."""
    assert GRADES == (2.0, 1.0, 0.0, 0.0)
    random = np.random.default_rng(0)
    for query, relevant in enumerate(terms.collection.relevant[:20]):
        other = next(row for row in range(len(terms.documents)) if row not in relevant)
        hundred = {query: np.array([*sorted(relevant), other])}
        drawn = [_documents(terms, hundred, query, random) for _ in range(5)]  # type: ignore[arg-type]  # one query's
        assert {int(rows[1]) for rows in drawn} == {other}
        assert {int(rows[0]) for rows in drawn} <= set(relevant)


def test_training_lowers_the_loss_and_ranks_better(terms: TermCollection) -> None:
    wanted = np.unique(np.concatenate(terms.queries))
    ranked = rank(terms, wanted, bm25(terms, wanted), 10)
    hundred = [rows for rows, _ in ranked]
    ndrm = model(terms, "latent").eval()

    def first(found: Sequence[tuple[Any, Any]]) -> float:
        pairs = zip(found, terms.collection.relevant, strict=True)
        return float(np.mean([rows[0] in own for (rows, _), own in pairs]))

    def reranked() -> float:
        return first(rank(terms, wanted, term_scores(ndrm.eval(), terms, wanted), 1, hundred))

    before = reranked()
    losses = train(ndrm, terms, hundred, Options(60, batch_size=16, rate=3e-3))
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])
    assert reranked() > before + 0.1
    assert first(ranked) > 0.6, "BM25 knows what counts"
