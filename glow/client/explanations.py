"""Why a document was found: terms, their weights, and the encoder's attention to them."""

from dataclasses import dataclass

from glow.client.node import Node

__all__ = ["AttendedTerm", "ExplainedTerm", "Explanation", "LexicalTerm", "QueryTerm", "WordDelta"]


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A term of the query.

    Attributes:
        word: the whole word, lower-cased.
        idf: inverse document frequency in the index.
        weight: BM25 weight that the query encoder received.
        known: whether any document contains it, or another form of it.
    """

    word: str
    idf: float
    weight: float
    known: bool = True

    @classmethod
    def read(cls, node: Node) -> "QueryTerm":
        """Reads it from a response."""
        return cls(
            node.text("word"),
            node.number("idf"),
            node.number("weight"),
            "known" not in node or node.flag("known"),
        )


@dataclass(frozen=True, slots=True)
class ExplainedTerm:
    """A term as its encoder read it.

    Attributes:
        field: field that contains it; `query` in a query.
        word: the whole word, lower-cased.
        tf: how often the field contains it.
        idf: inverse document frequency in the index's term statistics.
        weight: weight that scaled attention to it.
        attention: attention of [CLS] to the term in the last layer; the terms of a text sum to at most 1.
    """

    field: str
    word: str
    tf: float
    idf: float
    weight: float
    attention: float

    @classmethod
    def read(cls, node: Node) -> "ExplainedTerm":
        """Reads it from a response."""
        numbers = (node.number(name, 0.0) for name in ("tf", "idf", "weight", "attention"))
        return cls(node.text("field", ""), node.text("word"), *numbers)


@dataclass(frozen=True, slots=True)
class LexicalTerm:
    """Contribution of a query term to a hit's lexical score."""

    word: str
    impact: float


@dataclass(frozen=True, slots=True)
class WordDelta:
    """Score change when one query term is removed; negative if the term helped."""

    word: str
    delta: float


@dataclass(frozen=True, slots=True)
class AttendedTerm:
    """A term of the query (field `query`) or the hit, and its fraction of the re-ranker's attention."""

    field: str
    word: str
    attention: float

    @classmethod
    def read(cls, node: Node) -> "AttendedTerm":
        """Reads it from a response."""
        return cls(node.text("field", ""), node.text("word"), node.number("attention", 0.0))


@dataclass(frozen=True, slots=True)
class ExpandedTerm:
    """Contribution of a query term to a hit: by BM25, and by learned impact.

    Attributes:
        because: the hit's related word, if the hit lacks the term itself; empty if it has the term, or none is known.
    """

    word: str
    bm25: float
    learned: float
    because: str

    @classmethod
    def read(cls, node: Node) -> "ExpandedTerm":
        """Reads it from a response."""
        return cls(node.text("word"), node.number("bm25"), node.number("learned"), node.text("because", ""))


@dataclass(frozen=True, slots=True)
class Explanation:
    """Terms of a query or hit with their numbers; parts that were not requested, or do not apply, are empty."""

    terms: tuple[ExplainedTerm, ...] = ()
    lexical: tuple[LexicalTerm, ...] = ()
    leave_one_out: tuple[WordDelta, ...] = ()
    rerank: tuple[AttendedTerm, ...] = ()
    learned: tuple[ExpandedTerm, ...] = ()

    @classmethod
    def read_optional(cls, owner: Node) -> "Explanation | None":
        """Reads the `explanation` of a query or a hit; None if it has none."""
        node = owner.optional("explanation")
        if node is None:
            return None
        return cls(
            tuple(ExplainedTerm.read(term) for term in node.nodes("terms")),
            tuple(LexicalTerm(term.text("word"), term.number("impact")) for term in node.nodes("lexical")),
            tuple(WordDelta(term.text("word"), term.number("delta")) for term in node.nodes("leave_one_out")),
            tuple(AttendedTerm.read(term) for term in node.nodes("rerank")),
            tuple(ExpandedTerm.read(term) for term in node.nodes("learned")),
        )
