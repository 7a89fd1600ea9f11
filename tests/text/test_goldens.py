"""Golden numbers by the formulas of the papers (GLOW Eq. 6 to 8, section 3.5; BISON appendix B.2); G2 to G5 name them."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from glow.records import Document
from glow.schema import FieldSchema, FieldSpec
from glow.text import Preprocessor, TermTable, Weighting, WordPieces, WordWeigher
from glow.text.weighting import (
    adjusted_tf,
    bm25_weight,
    bm25f_weight,
    idf_bm25,
    idf_lucene,
    idf_smooth,
    released_weight,
)

Make = Callable[..., Preprocessor]
PAPER_DOCUMENTS = 100_000_000
MARCO_DOCUMENTS = 3_213_835
RELEASED = Weighting(formula="released", normalise="none")
PAPER = Weighting(formula="paper", normalise="none")


def exactly(expected: object) -> object:
    return pytest.approx(expected, rel=0, abs=1e-5)


class GivenIdf(WordWeigher):
    """The goldens give idf values and no counts."""

    def __init__(
        self, weighting: Weighting, schema: FieldSchema, terms: TermTable, idfs: Mapping[str, float]
    ) -> None:
        super().__init__(weighting, schema, terms)
        self.idfs = idfs

    def idf(self, word: str) -> float:
        return self.idfs.get(word, 15.3)


def given(
    pieces: WordPieces, weighting: Weighting, schema: FieldSchema, lengths: Mapping[str, float], **idfs: float
) -> Preprocessor:
    terms = TermTable.from_counts({}, 0, lengths)
    preprocessor = Preprocessor(pieces, schema, weighting, terms)
    preprocessor.weigher = GivenIdf(weighting, schema, terms, idfs)
    return preprocessor


@pytest.mark.parametrize(
    ("tf", "length", "expected"), [(1, 4, 2.0), (2, 4, 2.857143), (1, 12, 1.111111)], ids=str
)
def test_g2_query_weight_of_eq_6(tf: int, length: int, expected: float, pieces: WordPieces) -> None:
    """k1 = 2, b = .75, average 6 words, idf 5: by the formula, and from text to the tower's weights."""
    assert bm25_weight(5.0, float(tf), length, 6.0, 2.0, 0.75) == exactly(expected)
    text = " ".join(["bee"] * tf + ["home"] * (length - tf))
    tokens = given(pieces, PAPER, FieldSchema.preset("glow-paper"), {"query": 6.0}, bee=5.0).query(text)
    assert tokens.weights[1 : tf + 1] == exactly(np.full(tf, expected))


def test_g2_query_weight_with_the_papers_idf() -> None:
    assert bm25_weight(idf_bm25(1000.0, PAPER_DOCUMENTS), 1.0, 4.0, 6.0, 2.0, 0.75) == exactly(4.604966)


def test_g2_released_weights_of_a_query(pieces: WordPieces) -> None:
    """Query "[CLS] what is bm25 [SEP]": every token of "bm25" has the whole word's weight."""
    schema = FieldSchema.preset("bison-msmarco")
    tokens = given(pieces, RELEASED, schema, {}, what=2.0, **{"is": 1.5, "bm25": 12.0}).query("what is bm25")
    assert len(tokens.words) == 3
    assert tokens.weights == exactly([0.576923, 1.153846, 0.865385, 6.923077, 6.923077, 6.923077, 0.576923])


@pytest.mark.parametrize(
    ("idf", "count", "length", "average", "expected"),
    [
        (5.0, 2, 5, 6, 3.947368),
        (1.0, 1, 25, 25, 0.172414),
        (15.3, 1, 25, 25, 2.637931),
        (1.0, 1, 60, 25, 0.051230),
        (15.3, 1, 60, 25, 0.783811),
    ],
)
def test_g2_released_formula(idf: float, count: int, length: int, average: int, expected: float) -> None:
    assert released_weight(idf, float(count), length, average) == exactly(expected)


def test_g2_a_table_without_cls_does_not_change_its_weight(pieces: WordPieces) -> None:
    """The released code takes 15.3 for a [CLS] that its file lacks, which then weighs 11.95; ours has idf 1 always."""
    assert released_weight(15.3, 1.0, 3.0, 6.0) == exactly(11.953125)
    tokens = given(pieces, RELEASED, FieldSchema.preset("bison-msmarco"), {}).query("bee")
    assert tokens.weights[0] == exactly(0.781250)
    assert tokens.weights[-1] == exactly(0.781250)


def test_g2_released_documents_count_every_sep(make: Make) -> None:
    """[SEP] occurs once a field, words are counted over all fields together."""
    schema = FieldSchema.preset("bison-msmarco")
    document = Document("d", {"url": ("bee",), "title": ("bee home",)})
    weights = make(schema, RELEASED, {"bee": 10}).document(document).weights
    idf, n = idf_smooth(10.0, 100.0), 6.0  # [CLS], bee, [SEP], bee, home, [SEP]
    assert weights[1] == weights[3] == exactly(released_weight(idf, 2.0, n, 25.0))
    assert weights[2] == weights[5] == exactly(released_weight(1.0, 2.0, n, 25.0))
    assert weights[0] == exactly(released_weight(1.0, 1.0, n, 25.0))


def test_g3_bm25f_of_eq_7_and_8() -> None:
    url = adjusted_tf(1.0, 8.0, 10.0, 1.0, 0.75)
    title = adjusted_tf(2.0, 12.0, 8.0, 2.0, 0.75)
    assert url == exactly(1.176471)
    assert title == exactly(2.909091)
    assert url + title == exactly(4.085561)
    assert bm25f_weight(5.0, url + title, 2.0) == exactly(3.356766)
    assert bm25f_weight(5.0, url + title, 0.25) == exactly(4.711687)


@pytest.mark.parametrize(("k1", "expected"), [(2.0, 3.356766), (0.25, 4.711687)])
def test_g3_bm25f_from_text(k1: float, expected: float, pieces: WordPieces) -> None:
    """The same document as text: "bee" once among 8 words of url, twice among 12 of the title."""
    fields = (FieldSpec(name="url", tokens=40), FieldSpec(name="title", tokens=40, weight=2.0))
    schema = FieldSchema(name="g3", query_tokens=20, document_tokens=80, fields=fields)
    weighting = Weighting(document_k1=k1, normalise="none")
    preprocessor = given(pieces, weighting, schema, {"url": 10.0, "title": 8.0}, bee=5.0)
    document = Document("d", {"url": ("bee " + "the " * 7,), "title": ("bee bee " + "the " * 10,)})
    tokens = preprocessor.document(document)
    bees = [tokens.words[word] == "bee" for word in tokens.word_ids]  # -1 (a special) reads "the", no bee
    assert tokens.weights[bees] == exactly([expected] * 3)


def test_g3_one_field_is_eq_6(make: Make) -> None:
    """One field of weight 1 with fln = b: BM25F is Eq. 6 with the field's length (fact sheet, table 5, row 6)."""
    fields = (FieldSpec(name="title", tokens=40, length_norm=0.75),)
    schema = FieldSchema(name="one", query_tokens=40, document_tokens=40, fields=fields)
    preprocessor = make(schema, PAPER, {"bee": 3}, lengths={"title": 6.0, "query": 6.0})
    text = "bee home bee what"
    expected = preprocessor.query(text).weights[1:5]
    assert preprocessor.document(Document("d", {"title": (text,)})).weights[1:5] == exactly(expected)


def test_g4_idf_of_the_paper() -> None:
    """N = 100 million; a word of most documents is below 0 in the paper, and 0 here."""
    dfs = np.array([1.0, 1000.0, 6e7])
    assert idf_bm25(dfs, PAPER_DOCUMENTS) == exactly([18.015216, 11.512416, 0.0])


def test_g4_smooth_idf_explains_the_bounds_of_bison(make: Make) -> None:
    """3.2 million documents: 15.3 for df = 1 and 1 for df = N, which the paper's formula does not give."""
    assert idf_bm25(1.0, MARCO_DOCUMENTS) == exactly(14.577510)
    assert idf_smooth(1.0, MARCO_DOCUMENTS) == exactly(15.289829)
    assert idf_smooth(float(MARCO_DOCUMENTS), MARCO_DOCUMENTS) == exactly(1.0)
    weigher = make(counts={"the": MARCO_DOCUMENTS, "bee": 1}, documents=MARCO_DOCUMENTS).weigher
    assert [weigher.idf("the"), weigher.idf("bee")] == exactly([1.0, 15.289829])


def test_g4_a_word_the_table_lacks_has_the_value_of_df_1(make: Make) -> None:
    """Not a literal 15.3: the largest value of the collection at hand."""
    weigher = make(counts={"bee": 1}, documents=MARCO_DOCUMENTS).weigher
    assert weigher.idf("nowhere") == exactly(15.289829)
    weigher = make(weighting=Weighting(idf="bm25"), documents=MARCO_DOCUMENTS).weigher
    assert weigher.idf("nowhere") == exactly(14.577510)


def test_g5_an_unknown_piece_takes_no_neighbour_with_it(pieces: WordPieces) -> None:
    """The released code weighs all from "[UNK]" to the field's end as unknown: .5, 1, 7.65, 7.65, 7.65, .5."""
    schema = FieldSchema.preset("bison-msmarco")
    preprocessor = given(pieces, RELEASED, schema, {}, what=2.0, **{"is": 1.5, "bm25": 12.0})
    tokens = preprocessor.query("what \u2603 is bm25")
    unknown = pieces.pieces("\u2603")
    assert tokens.ids[2] == unknown[0]
    assert len(unknown) == 1
    assert tokens.weights == exactly([0.5, 1.0, 7.65, 0.75, 6.0, 6.0, 6.0, 0.5])
    released = released_weight(15.3, 1.0, 6.0, 6.0)
    assert released == exactly(7.65)
    assert not np.isclose(tokens.weights[3:7], released).any()


def test_lexical_impacts_by_hand() -> None:
    """ln(1 + 7.5 / 3.5) and ln(1 + .5 / 10.5); 2 * 3 / (3 + .9 * (.6 + .4 * 20 / 10)) and, half as long, / (3 + .9 * .8)."""
    assert idf_lucene(np.array([3.0, 10.0]), 10) == exactly([1.145132, 0.046520])
    idf, tf, lengths = np.full(2, 2.0), np.full(2, 3.0), np.array([20.0, 5.0])
    assert bm25_weight(idf, tf, lengths, 10.0, 0.9, 0.4) == exactly([6 / 4.26, 6 / 3.72])
