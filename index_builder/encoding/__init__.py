"""Encodes documents to vectors and component records: in blocks by threads or Ray, or a few at once."""
