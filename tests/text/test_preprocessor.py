"""Properties of every query and document, whatever text, schema, options and table they meet."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glow.records import Document
from glow.schema import FieldSchema, FieldSpec
from glow.text import Preprocessor, TermTable, WeightedTokens, Weighting, WordPieces, field_words
from glow.text.preprocessor import batches_by_length, pad

Make = Callable[..., Preprocessor]

SNIPPETS = [
    "what", "bm25", "being", "the the the", "Crème brûlée", "日本 \u2603", "a" * 101, "[UNK]", "[SEP]",
    "[CLS]", "\0", "\ud800", "\udc00\ud800", "\u202eabc", "\u0301", "e\u0301", "👩\u200d👩\u200d👧", "שלום",
    "مرحبا", "?!", " ", "\n", "\u2028", "http://x.org/a%20b%00%ff/12?q=%", "www.beehome.com", "://", "%" * 9,
]  # fmt: skip
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=40),
    st.lists(st.one_of(st.sampled_from(SNIPPETS), st.sampled_from("abc ?")), max_size=12).map(" ".join),
)
NAMES = ("title", "url", "body", "anchor")
WEIGHTINGS = st.builds(
    Weighting,
    formula=st.sampled_from(["paper", "released", "idf", "none"]),
    idf=st.sampled_from(["smooth", "bm25"]),
    query_k1=st.floats(1e-9, 1e6),
    query_b=st.floats(0, 1),
    document_k1=st.floats(1e-9, 1e6),
    saturate_specials=st.booleans(),
    normalise=st.sampled_from(["none", "mean", "sqrt"]),
)
# Counts above the number of documents are nonsense that a damaged or foreign table may hold.
TABLES = st.builds(
    TermTable.from_counts,
    st.dictionaries(
        st.sampled_from(["what", "a", "b", "the", "bm25", "日", "?", "creme"]), st.integers(1, 200)
    ),
    st.integers(0, 150),
    st.dictionaries(st.sampled_from([*NAMES, "query"]), st.floats(0, 1e6)),
)


@st.composite
def schemas(draw: st.DrawFn) -> FieldSchema:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    fields = tuple(
        FieldSpec(
            name=name,
            tokens=draw(st.integers(2, 30)),
            kind=draw(st.sampled_from(["text", "url"])),
            max_values=draw(st.none() | st.integers(1, 3)),
            keep_digits=draw(st.booleans()),
            weight=draw(st.floats(0, 1e6)),
            length_norm=draw(st.floats(0, 1)),
        )
        for name in names
    )
    total = draw(st.integers(len(names) + 2, 70))
    return FieldSchema(
        name="drawn", query_tokens=draw(st.integers(3, 30)), document_tokens=total, fields=fields
    )


DOCUMENTS = st.builds(
    Document, st.just("d"), st.dictionaries(st.sampled_from(NAMES), st.lists(TEXT, max_size=4).map(tuple))
)


def check(tokens: WeightedTokens, pieces: WordPieces, all_words: list[list[str]], weights: Weighting) -> None:
    """What holds for every sequence of `[CLS] field [SEP] field [SEP] …`."""
    length = len(tokens)
    assert length == len(tokens.field_ids) == len(tokens.word_ids) == len(tokens.weights)
    assert tokens.weights.dtype == np.float32
    assert np.isfinite(tokens.weights).all()
    assert (tokens.weights >= 0).all()
    assert tokens.ids[0] == pieces.cls_id
    ends = np.flatnonzero(tokens.ids == pieces.sep_id)
    assert len(ends) == len(all_words)
    assert ends[-1] == length - 1
    specials = tokens.word_ids == -1
    assert set(np.flatnonzero(specials)) == {0, *ends}
    start, kept = 1, []
    for field, (words, end) in enumerate(zip(all_words, ends, strict=True)):
        assert (tokens.field_ids[start : end + 1] == field).all()
        flat = [(piece, word) for word in words for piece in pieces.pieces(word)]
        assert [piece for piece, _ in flat[: end - start]] == tokens.ids[start:end].tolist()
        expected = [tokens.words[i] for i in tokens.word_ids[start:end]]
        assert [word for _, word in flat[: end - start]] == expected
        kept.extend(words[: len(dict.fromkeys(tokens.word_ids[start:end]))])
        start = end + 1
    assert tokens.words == tuple(kept)
    assert sorted(set(tokens.word_ids[~specials])) == list(range(len(kept)))
    by_word = {}
    for word, weight in zip(tokens.word_ids[~specials], tokens.weights[~specials], strict=True):
        assert by_word.setdefault(tokens.words[word], weight) == weight, "pieces of one word differ in weight"
    if weights.normalise == "mean":
        assert tokens.weights.mean() == pytest.approx(1.0, abs=1e-4)


@given(TEXT, schemas(), WEIGHTINGS, TABLES)
@settings(max_examples=150)
@example("\ud800", FieldSchema.preset("glow-paper"), Weighting(), TermTable.from_counts({}, 0, {}))
def test_any_query(
    pieces: WordPieces, text: str, schema: FieldSchema, weighting: Weighting, table: TermTable
) -> None:
    tokens = Preprocessor(pieces, schema, weighting, table).query(text)
    words = pieces.words(text)
    check(tokens, pieces, [words], weighting)
    assert len(tokens) <= schema.query_tokens
    lost = sum(map(len, map(pieces.pieces, words))) > schema.query_tokens - 2
    assert tokens.truncated == lost == bool(tokens.dropped_words)


@given(DOCUMENTS, schemas(), WEIGHTINGS, TABLES)
@settings(max_examples=200)
def test_any_document(
    pieces: WordPieces, document: Document, schema: FieldSchema, weighting: Weighting, table: TermTable
) -> None:
    tokens = Preprocessor(pieces, schema, weighting, table).document(document)
    fields = field_words(document, schema, pieces)
    check(tokens, pieces, [fields[name] for name in schema.names], weighting)
    assert len(tokens) <= schema.document_tokens
    for number, spec in enumerate(schema.fields):
        here = tokens.field_ids == number
        assert here.sum() <= spec.tokens
        whole = Counter(tokens.word_ids[here])
        assert tokens.dropped_words.get(spec.name, 0) == len(fields[spec.name]) - sum(
            whole[word] == len(pieces.pieces(tokens.words[word]))
            for word in dict.fromkeys(whole)
            if word >= 0
        )


@given(TEXT, st.integers(3, 40), st.sampled_from(["paper", "released", "idf"]))
def test_truncation_changes_no_weight(pieces: WordPieces, text: str, tokens: int, formula: str) -> None:
    """Counts and lengths come from the whole text, and a word that is cut keeps its whole weight."""
    fields = (FieldSpec(name="title", tokens=tokens), FieldSpec(name="body", tokens=tokens))
    short = FieldSchema(name="s", query_tokens=tokens, document_tokens=2 * tokens, fields=fields)
    wide_fields = tuple(spec.model_copy(update={"tokens": 5000}) for spec in fields)
    wide = FieldSchema(name="w", query_tokens=5000, document_tokens=10_000, fields=wide_fields)
    table = TermTable.from_counts({"what": 9, "a": 80}, 100, {"query": 5.0, "title": 4.0, "body": 9.0})
    weighting = Weighting(formula=formula, normalise="none")
    cut, whole = (Preprocessor(pieces, schema, weighting, table) for schema in (short, wide))
    document = Document("d", {"title": (text, "being"), "body": ("what", text)})
    pairs = ((cut.query(text), whole.query(text)), (cut.document(document), whole.document(document)))
    for few, many in pairs:
        weighed = zip(many.word_ids, many.weights, strict=True)
        weights = {many.words[i]: weight for i, weight in weighed if i >= 0}
        for i, weight in zip(few.word_ids, few.weights, strict=True):
            assert i < 0 or weights[few.words[i]] == weight
        assert (few.weights[0], few.weights[-1]) == (many.weights[0], many.weights[-1])


def test_blank_values_take_no_place_among_those_that_count(make: Make) -> None:
    document = Document("d", {"clicked_queries": ("", " ", "a", "\n", "b", "c", "d", "e", "f")})
    assert make().document(document).words == ("a", "b", "c", "d", "e")


@given(st.lists(st.integers(1, 60), max_size=50), st.integers(1, 200))
def test_batches_hold_every_position_once_longest_first_within_the_budget(
    lengths: list[int], max_tokens: int
) -> None:
    batches = list(batches_by_length(lengths, max_tokens))
    positions = [position for batch in batches for position in batch]
    assert sorted(positions) == list(range(len(lengths)))
    assert [lengths[position] for position in positions] == sorted(lengths, reverse=True)
    for batch in batches:
        longest = max(lengths[position] for position in batch)
        assert len(batch) == 1 or len(batch) * longest <= max_tokens


def test_batches_are_filled() -> None:
    assert [len(batch) for batch in batches_by_length([10] * 25, 100)] == [10, 10, 5]


def test_padding_is_masked_and_weighs_1(make: Make) -> None:
    preprocessor = make("bison-msmarco", counts={"bee": 3})
    sequences = [
        preprocessor.query("bee"),
        preprocessor.document(Document("d", {"title": ("what is home",)})),
    ]
    batch = pad(sequences, pad_id=7)
    assert batch.ids.shape == batch.mask.shape == batch.field_ids.shape == batch.weights.shape == (2, 6)
    assert [array.dtype for array in (batch.ids, batch.mask, batch.field_ids)] == [np.int64] * 3
    assert batch.weights.dtype == np.float32
    for row, tokens in enumerate(sequences):
        end = len(tokens)
        assert batch.ids[row].tolist() == [*tokens.ids, *[7] * (6 - end)]
        assert batch.field_ids[row, :end].tolist() == tokens.field_ids.tolist()
        assert batch.weights[row].tolist() == [*tokens.weights, *[1.0] * (6 - end)]
        assert batch.mask[row].tolist() == [1] * end + [0] * (6 - end)
    with pytest.raises(ValueError, match="empty"):
        pad([], 0)
