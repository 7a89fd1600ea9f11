"""Subword tokens equal BERT's own: the towers start from weights that were trained on exactly these ids."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertTokenizer
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from glow.records import Document
from glow.schema import FieldSchema, FieldSpec
from glow.text import Preprocessor, TermTable, Weighting, WordPieces

FIELDS = (FieldSpec(name="title", tokens=400), FieldSpec(name="text", tokens=400))
SCHEMA = FieldSchema(name="wide", query_tokens=500, document_tokens=800, fields=FIELDS)
ORDINARY = [
    "what are the symptoms of acute lymphoblastic leukemia?",
    "How do I parse a date from a string in Python 3.11?",
    "tar -xzvf archive.tar.gz --strip-components=1 -C /tmp/out",
    "Crème brûlée, naïve façade — Ångström’s “units” cost €5 (or £4.20)…",
    "Don't re-enter: it's the user's e-mail address, user.name+tag@example.co.uk",
    "日本語のテキスト and 中文 mixed with English",
    "Привет мир; Γειά σου Κόσμε; שלום עולם; مرحبا بالعالم; नमस्ते",
    "emoji 👍🏽 family 👩\u200d👩\u200d👧 flags 🇫🇷 and snowman ☃",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "a" * 101 + " and " + "b" * 100,
    "tabs\tand\nnew\r\nlines\x0band\x00controls\x7f \u200bzero\u200dwidth\u00adsoft",
    "ｆｕｌｌｗｉｄｔｈ ﬁ ligature ½ x² H₂O Ⅷ",
    "İstanbul DŽ ǅ ẞ straße ŒUVRE",
    "...!!! ??? --- ___ ```` ~~~ ^^^ ||| $$$ %%%",
    "",
    "   ",
]


@pytest.fixture(scope="module")
def ours(full_vocabulary: Path) -> Preprocessor:
    return Preprocessor(WordPieces(full_vocabulary), SCHEMA, Weighting(), TermTable.from_counts({}, 0, {}))


@pytest.fixture(scope="module")
def bert(full_vocabulary: Path) -> BertTokenizer:
    return BertTokenizer(vocab=str(full_vocabulary), do_lower_case=True)


@pytest.mark.parametrize("text", ORDINARY, ids=lambda text: ascii(text[:20]))
def test_ordinary_text_has_the_ids_of_both_bert_tokenisers(
    text: str, ours: Preprocessor, bert: BertTokenizer, full_vocabulary: Path
) -> None:
    """Equal to today's (in Rust) and to the first (in Python) tokeniser of `transformers`."""
    ids = ours.query(text).ids.tolist()
    assert ids == bert(text).input_ids
    assert ids == BertTokenizerLegacy(str(full_vocabulary), do_lower_case=True)(text).input_ids


@given(text=st.text(max_size=200).filter(lambda text: "[" not in text))
def test_text_without_specials_has_berts_ids(ours: Preprocessor, bert: BertTokenizer, text: str) -> None:
    assert ours.query(text).ids.tolist() == bert(text).input_ids


def test_two_fields_are_a_pair_of_bert_with_its_segments(ours: Preprocessor, bert: BertTokenizer) -> None:
    title, text = ORDINARY[0], ORDINARY[3]
    tokens, pair = ours.document(Document("d", {"title": (title,), "text": (text,)})), bert(title, text)
    assert tokens.ids.tolist() == pair.input_ids
    assert tokens.field_ids.tolist() == pair.token_type_ids


def test_a_literal_special_in_the_text_is_text(ours: Preprocessor, bert: BertTokenizer) -> None:
    """The one difference, on purpose: nobody can end a field or hide a word by typing "[SEP]"."""
    ids = ours.query("bees [SEP] [PAD] home").ids
    assert np.count_nonzero(ids == bert.sep_token_id) == 1
    assert np.count_nonzero(ids == bert.pad_token_id) == 0
