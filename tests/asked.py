"""A query as a hybrid search asks it."""

from glow.index import Index
from glow.search import EncodedQuery, analyze_query


def asked_of(index: Index, text: str) -> EncodedQuery:
    """A query that the index' own tower has read."""
    reading = analyze_query(index, text, "off")
    return EncodedQuery(reading.text, index.encoder.run([reading.tokens])[0])
