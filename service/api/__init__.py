"""HTTP: routes, request bodies, responses and problems."""

from glow_service.api import documents, embeddings, operations, search  # noqa: F401 - they declare the routes
