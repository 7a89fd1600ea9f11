"""Building index versions: documents in, a verified and published version out."""
