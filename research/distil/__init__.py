"""Texts that a fast query tower learns by, and which of an encoder's layers it keeps."""
