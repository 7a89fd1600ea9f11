"""Late interaction over what the towers compute: bytes a document, weights of query tokens, and its place in hybrid search (docs/results/quality.md)."""
