"""Field layout of the presets: which tokens a document gets, in which order, with which field ids; the page about it."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from glow.records import Document
from glow.schema import PRESETS, FieldSchema, FieldSpec
from glow.text import Preprocessor, TermTable, WeightedTokens, Weighting, WordPieces

Make = Callable[..., Preprocessor]
LONG = ("bee " * 300,)


def field_lengths(tokens: WeightedTokens) -> list[int]:
    return np.bincount(tokens.field_ids).tolist()


def released_schema(*names: str) -> FieldSchema:
    """The released code's limits: 30 of url, 30 of title, 128 of body, specials counted."""
    limits = {"url": 30, "title": 30, "body": 128}
    fields = tuple(FieldSpec(name=name, tokens=limits[name]) for name in names)
    total = sum(limits[name] for name in names)
    return FieldSchema(name="released", query_tokens=20, document_tokens=total, fields=fields)


def test_released_limits_are_28_29_and_127_pieces(make: Make) -> None:
    """Url, title, body in order with field ids 0, 1, 2; [CLS] belongs to the url, each [SEP] to its own field."""
    preprocessor = make(released_schema("url", "title", "body"))
    tokens = preprocessor.document(Document("d", {"url": LONG, "title": LONG, "body": LONG}))
    assert field_lengths(tokens) == [30, 30, 128]
    assert [(tokens.word_ids[tokens.field_ids == field] >= 0).sum() for field in (0, 1, 2)] == [28, 29, 127]
    assert np.flatnonzero(tokens.word_ids == -1).tolist() == [0, 29, 59, 187]
    assert (np.diff(tokens.field_ids) >= 0).all()


def test_short_fields_leave_no_gap(make: Make) -> None:
    """Padding comes at the very end only, so a later field starts where the one before it stops."""
    preprocessor = make(released_schema("url", "title", "body"))
    tokens = preprocessor.document(Document("d", {"url": ("bee",), "body": ("home is",)}))
    bee, home, is_ = (preprocessor.pieces.pieces(word)[0] for word in ("bee", "home", "is"))
    cls, sep = preprocessor.pieces.cls_id, preprocessor.pieces.sep_id
    assert tokens.ids.tolist() == [cls, bee, sep, sep, home, is_, sep]
    assert tokens.field_ids.tolist() == [0, 0, 0, 1, 2, 2, 2]


def test_glow_paper_is_anchor_url_title_and_five_clicked_queries(make: Make) -> None:
    preprocessor = make("glow-paper")
    fields = {"anchor": LONG, "url": LONG, "title": LONG, "clicked_queries": LONG}
    assert field_lengths(preprocessor.document(Document("d", fields))) == [20, 20, 20, 68]
    assert preprocessor.document(Document("d", {"clicked_queries": tuple("abcdefg")})).words == tuple("abcde")
    assert len(preprocessor.query(LONG[0])) == 20


def test_bison_msmarco_is_url_and_title(make: Make) -> None:
    preprocessor = make("bison-msmarco")
    tokens = preprocessor.document(Document("d", {"url": LONG, "title": LONG, "text": LONG}))
    assert field_lengths(tokens) == [30, 30]
    assert len(preprocessor.query(LONG[0])) == 20
    urls = {"url": ("https://www.findhome.org/bee9",), "title": ("findhome 9",)}
    words = "www find home org bee findhome 9"  # a url is cut into words, a text is not
    assert preprocessor.document(Document("d", urls)).words == tuple(words.split())


def test_default_gives_the_body_what_the_other_fields_leave(make: Make) -> None:
    preprocessor = make("glow-default")
    names = ("title", "anchor", "clicked_queries", "url", "text")
    long = Document("d", dict.fromkeys(names, LONG))
    assert field_lengths(preprocessor.document(long)) == [32, 24, 48, 16, 40]
    assert field_lengths(preprocessor.document(Document("d", {"text": LONG}))) == [2, 1, 1, 1, 155]
    assert len(preprocessor.query(LONG[0])) == 64


def test_one_field_id_changes_nothing_but_the_field_ids(make: Make) -> None:
    """The ablation `us`."""
    schema = FieldSchema.preset("glow-default")
    document = Document("d", {"title": ("what is",), "text": ("the bee home",)})
    plain = make(schema).document(document)
    one = make(schema.model_copy(update={"one_field_id": True})).document(document)
    assert one.ids.tolist() == plain.ids.tolist()
    np.testing.assert_array_equal(one.weights, plain.weights)
    assert set(plain.field_ids.tolist()) == {0, 1, 2, 3, 4}
    assert set(one.field_ids.tolist()) == {0}


def test_pieces_as_units_keep_the_ids_and_weigh_each_piece(small_vocabulary: Path) -> None:
    """The ablation `tw`: "being" is b ##e ##ing; whole words give it one weight, subword tokens one each."""
    text = "the being"
    counts = {"the": 90, "b": 50, "##e": 20, "##ing": 5}
    found = []
    for unit in ("word", "piece"):
        pieces = WordPieces(small_vocabulary, unit)  # type: ignore[arg-type]
        table = TermTable.from_counts(counts, 100, {"query": 3.0})
        weighting = Weighting(unit=unit, normalise="none")  # type: ignore[arg-type]
        found.append(Preprocessor(pieces, FieldSchema.preset("glow-default"), weighting, table).query(text))
    whole, by_piece = found
    assert by_piece.ids.tolist() == whole.ids.tolist()
    assert by_piece.words == ("the", "b", "##e", "##ing")
    assert len(set(whole.weights[2:5].tolist())) == 1
    assert by_piece.weights[2] < by_piece.weights[3] < by_piece.weights[4]


PAGE = Path(__file__).parents[2] / "docs" / "text.md"


def test_the_example_of_the_page_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(PAGE.parents[1])
    exec(code, {})  # noqa: S102 - our own page
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("special") and lines[-1].startswith("special")
    assert {line.split()[0] for line in lines} == {"special", "how", "do", "bees", "find", "home", "?"}


def test_the_page_has_every_option() -> None:
    page = PAGE.read_text(encoding="utf-8")
    names = [*Weighting.model_fields, *FieldSpec.model_fields, *PRESETS]
    assert not [name for name in names if f"`{name}`" not in page]
