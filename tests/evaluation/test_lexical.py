"""The BM25 baseline: what it matches, and the published figures of real collections."""

import math
from pathlib import Path

import pytest

from glow.evaluation import DenseOptions, evaluate, find_tasks, open_retriever
from glow.evaluation.retrievers import LexicalRetriever
from glow.records import Document, Query

FIELDS = ("title", "text")
BEES = Query("q", "bees")


def document(identifier: str, title: str = "", text: str = "") -> Document:
    return Document(identifier, {"title": (title,), "text": (text,)})


def found(retriever: LexicalRetriever, text: str, k: int = 10) -> list[str]:
    return [hit.document_id for hit in retriever.search([Query("q", text)], k)["q"]]


CORPUS = [
    document("bees", "How bees find home", "The dance of the bees."),
    document("honey", text="Honey is made by bees."),
    document("tax", "Tax return", "How to file it."),
    document("empty"),
]


def test_documents_that_share_no_word_are_not_returned() -> None:
    retriever = LexicalRetriever(CORPUS, FIELDS)
    assert found(retriever, "BEES dance") == ["bees", "honey"]
    assert found(retriever, "honey bees", k=1) == ["honey"]
    assert found(retriever, "zebra") == []
    assert retriever.ids == ["bees", "honey", "tax", "empty"]


@pytest.mark.parametrize("text", ["", "the of and", "?!", "\x00", "日本"])
def test_a_query_without_a_word_to_match_finds_nothing(text: str) -> None:
    assert found(LexicalRetriever(CORPUS, FIELDS), text) == []


@pytest.mark.parametrize("corpus", [[], [document("a", "the of and")]], ids=["empty", "stop words only"])
def test_a_corpus_without_a_term_finds_nothing(corpus: list[Document]) -> None:
    assert found(LexicalRetriever(corpus, FIELDS), "bees") == []


def test_only_the_named_fields_are_searched() -> None:
    assert found(LexicalRetriever(CORPUS, ("title",)), "dance honey") == []


def test_ties_go_to_the_earlier_document() -> None:
    corpus = [document(name, "same words") for name in ("z", "m", "a")]
    assert found(LexicalRetriever(corpus, FIELDS), "same words") == ["z", "m", "a"]


@pytest.mark.parametrize("k", [1, 2, 5, 38, 40, 100])
def test_ties_at_the_cut_off_go_to_the_earlier_documents(k: int) -> None:
    """Forty documents, two of them better, the others equal."""
    corpus = [document(f"d{number}", "bees and honey") for number in range(40)]
    for number in (17, 30):
        corpus[number] = document(f"d{number}", "bees bees bees")
    retriever = LexicalRetriever(corpus, FIELDS)
    others = [f"d{number}" for number in range(40) if number not in (17, 30)]
    assert found(retriever, "bees", k) == ["d17", "d30", *others][:k]


def test_queries_without_words_stand_among_the_others() -> None:
    queries = [Query("a", ""), Query("b", "honey"), Query("c", "zebra"), Query("d", "tax")]
    run = LexicalRetriever(CORPUS, FIELDS).search(queries, 1)
    assert {name: [hit.document_id for hit in hits] for name, hits in run.items()} == {
        "a": [],
        "b": ["honey"],
        "c": [],
        "d": ["tax"],
    }


def test_scores_are_those_of_bm25_with_k1_1_2_and_b_0_75() -> None:
    """Robertson's formula by hand, idf as Lucene has it: ln(1 + (N - df + 0.5) / (df + 0.5))."""
    texts = {"a": "bees bees honey", "b": "bees", "c": "tax form deadline letter"}
    corpus = [document(name, text) for name, text in texts.items()]
    scores = {hit.document_id: hit.score for hit in LexicalRetriever(corpus, FIELDS).search([BEES], 10)["q"]}
    idf, average = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5)), 8 / 3
    for name, tf, length in (("a", 2, 3), ("b", 1, 1)):
        norm = 1.2 * (1 - 0.75 + 0.75 * length / average)
        assert scores[name] == pytest.approx(idf * tf / (tf + norm), rel=1e-5)


def test_urls_are_not_searched(toy_data: Path) -> None:
    """Every url of the toy corpus holds `example`, no text does."""
    retriever = open_retriever("lexical", toy_data, None, DenseOptions())
    assert retriever.search([Query("q", "example org html https")], 10) == {"q": []}


def test_the_baseline_reproduces_the_published_figures_of_tldr(shared_data: Path) -> None:
    """The collection's own README: MRR@10 / nDCG@10 / recall@100 of BM25 on tldr's dev split."""
    (task,) = find_tasks(shared_data / "tldr", ["dev"])
    retriever = open_retriever("lexical", shared_data / "tldr", None, DenseOptions())
    means = evaluate(retriever.search(task.queries, 100), task.qrels, ["RR@10", "nDCG@10", "R@100"]).means
    assert len(task.queries) == 2906
    assert means == pytest.approx({"RR@10": 0.493, "nDCG@10": 0.532, "R@100": 0.831}, abs=0.001)
