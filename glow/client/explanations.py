"""Why a document was found: words, their weights, and what the encoder attended to."""

from dataclasses import dataclass

from glow.client.node import Node

__all__ = ["AttendedTerm", "ExplainedTerm", "Explanation", "LexicalTerm", "QueryTerm", "WordDelta"]


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A word of the query.

    Attributes:
        word: whole and lower-cased.
        idf: in the index.
        weight: by BM25, which the query tower was given with it.
        known: whether any document holds it, or another form of it.
    """

    word: str
    idf: float
    weight: float
    known: bool = True

    @classmethod
    def read(cls, node: Node) -> "QueryTerm":
        """Reads it from an answer."""
        return cls(
            node.text("word"),
            node.number("idf"),
            node.number("weight"),
            "known" not in node or node.flag("known"),
        )


@dataclass(frozen=True, slots=True)
class ExplainedTerm:
    """A word as its tower read it.

    Attributes:
        field: where it stands; `query` in a query.
        word: whole and lower-cased.
        tf: how often it stands there.
        idf: in the index's term table.
        weight: that scaled attention to it.
        attention: of [CLS] to the word in the last layer; the words of a text sum to at most 1.
    """

    field: str
    word: str
    tf: float
    idf: float
    weight: float
    attention: float

    @classmethod
    def read(cls, node: Node) -> "ExplainedTerm":
        """Reads it from an answer."""
        numbers = (node.number(name, 0.0) for name in ("tf", "idf", "weight", "attention"))
        return cls(node.text("field", ""), node.text("word"), *numbers)


@dataclass(frozen=True, slots=True)
class LexicalTerm:
    """What a word of the query added to a hit's lexical score."""

    word: str
    impact: float


@dataclass(frozen=True, slots=True)
class WordDelta:
    """By how much the score changes where a word of the query is left out; negative where it helped."""

    word: str
    delta: float


@dataclass(frozen=True, slots=True)
class AttendedTerm:
    """A word of the query (field `query`) or the hit, and the share of the re-ranker's attention that it got."""

    field: str
    word: str
    attention: float

    @classmethod
    def read(cls, node: Node) -> "AttendedTerm":
        """Reads it from an answer."""
        return cls(node.text("field", ""), node.text("word"), node.number("attention", 0.0))


@dataclass(frozen=True, slots=True)
class ExpandedTerm:
    """What a word of the query added to a hit: by BM25, and by learned impact.

    Attributes:
        because: the hit's word that a word counts for which the hit does not hold; empty where it holds it, or it is not known.
    """

    word: str
    bm25: float
    learned: float
    because: str

    @classmethod
    def read(cls, node: Node) -> "ExpandedTerm":
        """Reads it from an answer."""
        return cls(node.text("word"), node.number("bm25"), node.number("learned"), node.text("because", ""))


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why: each word with its numbers; parts that were not asked for, or do not apply, are empty."""

    terms: tuple[ExplainedTerm, ...] = ()
    lexical: tuple[LexicalTerm, ...] = ()
    leave_one_out: tuple[WordDelta, ...] = ()
    rerank: tuple[AttendedTerm, ...] = ()
    learned: tuple[ExpandedTerm, ...] = ()

    @classmethod
    def read_optional(cls, owner: Node) -> "Explanation | None":
        """Reads the `explanation` of a query or a hit; None where it has none."""
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
