"""Which fields a document has, in which order, and how many tokens each may take.

A field's token limit includes its closing [SEP]; the first field's limit also includes the leading [CLS] (the
released code's limits 30/30/128 mean the same: 28 subword tokens of url, 29 of title, 127 of body). Field ids are
positions in the list, the input of the tower's field embedding.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from glow.errors import ConfigError
from glow.options import StrictModel

# `_id` is the document's id; under `query`, the term statistics keep the length of queries.
RESERVED_NAMES = frozenset({"_id", "query"})


class FieldSpec(StrictModel):
    """One document field."""

    name: str = Field(min_length=1)  # the key in a document's JSON line; not `_id` or `query`
    tokens: int = Field(ge=2)  # most subword tokens of the field, including its [SEP]
    kind: Literal["text", "url"] = "text"  # a url is split into words by `glow.text.words`
    max_values: int | None = Field(default=None, ge=1)  # how many values of a list count; None means all
    keep_digits: bool = False  # whether a url's digits stay (GLOW Table 4 shows them; BISON B.2 drops them)
    weight: float = Field(default=1.0, ge=0.0, le=1e6)  # fw_c of Eq. 7
    length_norm: float = Field(default=0.75, ge=0.0, le=1.0)  # fln_c of Eq. 7; 0 ignores the field's length


class FieldSchema(StrictModel):
    """Ordered fields and token limits of a model.

    A field gets the document's tokens that the earlier ones left, up to its own limit; space for the [SEP] of every later
    field is kept. The subword tokens of prefixes have the weight of [SEP].
    """

    name: str  # of the preset, for people
    query_tokens: int = Field(ge=3)  # most tokens of a query, including [CLS] and [SEP]
    document_tokens: int = Field(ge=3)  # most tokens of a document in all
    fields: tuple[FieldSpec, ...] = Field(min_length=1)  # in the order in which the document tower reads them
    one_field_id: bool = False  # every token has field id 0 (GLOW's ablation `us`)
    joined: bool = False  # one text with a single [SEP] at the end, as for encoders of single texts
    query_prefix: str = ""  # words before every query, as in the model's training
    document_prefix: str = ""  # words before every document

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = self.names
        if len(set(names)) < len(names):
            raise ValueError(f"field names must differ, found {names}")
        if reserved := sorted(RESERVED_NAMES.intersection(names)):
            raise ValueError(f"a field must not be named {' or '.join(reserved)}: the name is reserved")
        if self.document_tokens < len(names) + 2:
            raise ValueError(f"document_tokens {self.document_tokens} is too small for {len(names)} fields")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Field names in order; a name's position is its field id."""
        return tuple(spec.name for spec in self.fields)

    @property
    def body(self) -> str:
        """Name of the field with a document's main text: the one with the most tokens."""
        return max(self.fields, key=lambda spec: spec.tokens).name

    @classmethod
    def preset(cls, name: str) -> "FieldSchema":
        if name not in PRESETS:
            raise ConfigError(f"unknown schema preset {name!r}; known: {', '.join(sorted(PRESETS))}")
        return PRESETS[name]


PRESETS = {
    schema.name: schema
    for schema in (
        FieldSchema(
            name="glow-default",
            query_tokens=64,
            document_tokens=160,
            fields=(
                FieldSpec(name="title", tokens=32),
                FieldSpec(name="anchor", tokens=24, max_values=8),
                FieldSpec(name="clicked_queries", tokens=48, max_values=5),
                FieldSpec(name="url", tokens=16, kind="url"),
                FieldSpec(name="text", tokens=160),
            ),
        ),
        # GLOW section 3.7: anchor, url and title 20 each, five clicked queries in 68.
        FieldSchema(
            name="glow-paper",
            query_tokens=20,
            document_tokens=128,
            fields=(
                FieldSpec(name="anchor", tokens=20),
                FieldSpec(name="url", tokens=20, kind="url"),
                FieldSpec(name="title", tokens=20),
                FieldSpec(name="clicked_queries", tokens=68, max_values=5),
            ),
        ),
        # BISON appendix B.2 and the released code: url and title 30 each, no body.
        FieldSchema(
            name="bison-msmarco",
            query_tokens=20,
            document_tokens=60,
            fields=(
                FieldSpec(name="url", tokens=30, kind="url"),
                FieldSpec(name="title", tokens=30),
            ),
        ),
        # GLOW Table 1 reads url, title and body of MS MARCO; limits of the released code.
        FieldSchema(
            name="glow-msmarco",
            query_tokens=20,
            document_tokens=188,
            fields=(
                FieldSpec(name="url", tokens=30, kind="url"),
                FieldSpec(name="title", tokens=30),
                FieldSpec(name="text", tokens=128),
            ),
        ),
    )
}
