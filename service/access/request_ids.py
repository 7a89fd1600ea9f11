"""Signed request ids, so that the service can recognize its own ids in feedback without storing them.

A signature, a keyed hash of the id, follows it. Every process with the same key can check it.
"""

import hashlib
import hmac

__all__ = ["RequestIds"]

SIGNATURE_CHARACTERS = 24
"""Length in hexadecimal digits: 96 bits, too many to guess by sending requests."""


class RequestIds:
    """Signs the ids of searches, and checks the ids in feedback.

    Args:
        key: secret that all processes share; b"" neither signs nor checks.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key = key

    def signed(self, request_id: str) -> str:
        """The id with its signature, for a response."""
        return f"{request_id}.{self._signature(request_id)}" if self._key else request_id

    def read(self, given: str) -> str | None:
        """The id without its signature.

        Args:
            given: the id that a client sent.

        Returns:
            The id as in the logs; None if the signature is invalid.
        """
        if not self._key:
            return given
        request_id, _, signature = given.rpartition(".")
        expected = self._signature(request_id)
        return request_id if hmac.compare_digest(signature.encode(), expected.encode()) else None

    def _signature(self, request_id: str) -> str:
        digest = hmac.new(self._key, request_id.encode("utf-8", "replace"), hashlib.sha256)
        return digest.hexdigest()[:SIGNATURE_CHARACTERS]
