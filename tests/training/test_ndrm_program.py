"""The program behind the tables of NDRM: terms, training, full retrieval and re-ranking agree."""

from pathlib import Path

import numpy as np
import pytest
import torch

from glow.text import WordPieces
from glow.training.data.dataset import Collection
from research.folders import read_records, write_folder
from research.ndrm.conformer import ConformerConfig
from research.ndrm.cost import _measure
from research.ndrm.index import search_impacts, write_impacts
from research.ndrm.model import Ndrm, NdrmConfig
from research.ndrm.pages import join_pages
from research.ndrm.search import bm25, rank, rerank, term_scores, tf_idf
from research.ndrm.train import GRADES, Options, _documents, ranknet_loss, train
from research.ndrm.words import TermCollection
from tests.conftest import DATA


@pytest.fixture(scope="module")
def terms(toy_collection: Collection) -> TermCollection:
    """The toy collection in terms."""
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
    for query, (_, scores) in rerank(ndrm, terms, hundred).items():
        np.testing.assert_allclose(found[query][1], scores, rtol=1e-4, atol=1e-4)


def test_one_of_the_search_is_worth_more_than_random_ones() -> None:
    """Weak supervision: a relevant document, one of BM25's hundred, two random ones (section 5.3)."""
    assert GRADES == (2.0, 1.0, 0.0, 0.0)


def test_the_second_document_of_a_query_is_not_relevant(terms: TermCollection) -> None:
    random = np.random.default_rng(0)
    for query, relevant in enumerate(terms.collection.relevant[:20]):
        other = next(row for row in range(len(terms.documents)) if row not in relevant)
        hundred = {query: np.array([*sorted(relevant), other])}
        drawn = [_documents(terms, hundred, query, random) for _ in range(5)]  # type: ignore[arg-type]  # one query's
        assert {int(rows[1]) for rows in drawn} == {other}
        assert {int(rows[0]) for rows in drawn} <= set(relevant)


def test_training_lowers_the_loss(terms: TermCollection) -> None:
    wanted = np.unique(np.concatenate(terms.queries))
    hundred = [rows for rows, _ in rank(terms, wanted, bm25(terms, wanted), 10)]
    ndrm = model(terms, "latent").eval()

    def first() -> float:
        found = rank(terms, wanted, term_scores(ndrm.eval(), terms, wanted), 1, hundred)
        relevant = terms.collection.relevant
        return float(np.mean([rows[0] in own for (rows, _), own in zip(found, relevant, strict=True)]))

    before = first()
    losses = train(ndrm, terms, hundred, Options(60, batch_size=16, rate=3e-3))
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])
    assert first() > before + 0.1


def test_queries_that_are_read_whole_depend_on_their_other_words(terms: TermCollection) -> None:
    ndrm = model(terms, "latent", contextual_queries=True).eval()
    ids, mask = torch.tensor([[1, 2, 3]]), torch.ones(1, 3, dtype=torch.bool)
    with torch.inference_mode():
        together, alone = ndrm.query_words(ids, mask), ndrm.query_words(ids[:, :1], mask[:, :1])
    assert not torch.allclose(together[:, :1], alone, atol=1e-4)
    with pytest.raises(ValueError, match="need their mask"):
        ndrm.query_words(ids)


def test_baselines_know_what_counts(terms: TermCollection) -> None:
    wanted = np.unique(np.concatenate(terms.queries))
    for scores in (bm25(terms, wanted), tf_idf(terms, wanted)):
        hits = [
            rows[0] in relevant
            for (rows, _), relevant in zip(
                rank(terms, wanted, scores), terms.collection.relevant, strict=True
            )
        ]
        assert np.mean(hits) > 0.6
    clicked = TermCollection(terms.collection, WordPieces(DATA / "toy-model" / "vocab.txt"), clicked=True)
    more = clicked.lengths - terms.lengths
    assert more[:2].tolist() == [1.0, 0.0]  # "what about bees", with two stop words; no clicked query


def test_every_step_over_a_document_is_timed() -> None:
    row = _measure("separable", 64)
    assert (row["attention"], row["length"]) == ("separable", 64)
    assert row["seconds"] > 0.0 and row["mib"] >= 0.0


def test_an_index_of_the_scores_ranks_like_them(terms: TermCollection, tmp_path: Path) -> None:
    every = np.arange(1, len(terms.vocabulary))
    scores = term_scores(model(terms, "both").eval(), terms, every)
    median = np.median(scores, axis=1, keepdims=True)
    kept = rank(terms, every, np.maximum(scores - median, 0.0), 5)
    postings = write_impacts(tmp_path / "all", terms, every, scores, len(every))
    assert postings <= (scores > median).sum()
    agree = []
    for (rows, values), (wanted, sums) in zip(search_impacts(tmp_path / "all", terms, 5), kept, strict=True):
        unit = (scores.max(1) - median[:, 0]).max() / 255
        assert np.allclose(values, sums[: len(values)], atol=unit * 10)  # at most half a unit a term
        agree.append(len(set(rows[:1].tolist()) & set(wanted[:2].tolist())))
    assert np.mean(agree) > 0.8
    few = write_impacts(tmp_path / "few", terms, every, scores, 3)
    assert few <= 3 * len(terms.documents) < postings


def test_documents_of_one_url_become_a_page(tmp_path: Path) -> None:
    documents = [
        {
            "_id": str(n),
            "url": f"u{n // 2}",
            "title": f"t{n}",
            "anchor": ["a", str(n)],
            "clicked_queries": [],
            "text": f"w{n}",
        }
        for n in range(3)
    ]
    judged = {"train": {"q": ["1", "0"], "r": ["2"]}, "dev": {"s": ["2", "1"]}}
    write_folder(tmp_path / "data", documents, [{"_id": name, "text": name} for name in "qrs"], judged)
    assert join_pages(tmp_path / "data", tmp_path / "pages") == [2, 1]
    first, second = read_records(tmp_path / "pages" / "corpus.jsonl")
    assert (first["_id"], first["title"], first["text"], first["anchor"]) == (
        "0",
        "t0",
        "w0\nw1",
        ["a", "0", "1"],
    )
    assert second["_id"] == "2"
    lines = [(tmp_path / "pages" / "qrels" / f"{split}.tsv").read_text().splitlines()[1:] for split in judged]
    assert lines == [["q\t0\t1", "r\t2\t1"], ["s\t2\t1", "s\t0\t1"]]
    assert join_pages(tmp_path / "data", tmp_path / "long", 2) == [2]
    assert (tmp_path / "long" / "qrels" / "dev.tsv").read_text().splitlines()[1:] == ["s\t0\t1"]
    join_pages(tmp_path / "data", tmp_path / "moved", moved=1)
    lines = [(tmp_path / "moved" / "qrels" / f"{split}.tsv").read_text().splitlines()[1:] for split in judged]
    assert [len(each) for each in lines] == [1, 3] and set(lines[0]) < {"q\t0\t1", "r\t2\t1"}
