"""Builds index versions from documents, verifies them and publishes them."""
