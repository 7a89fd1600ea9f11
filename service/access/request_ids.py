"""Request ids that come back: which of them this service gave out, told without having kept any.

Behind the id stands a signature, a keyed hash of it. Each process that has the key can check what any other of them gave out.
"""

import hashlib
import hmac

__all__ = ["RequestIds"]

SIGNATURE_CHARACTERS = 24
"""Of hexadecimal: 96 bits, which nobody guesses by sending requests."""


class RequestIds:
    """Signs the ids of searches, and checks those that feedback names.

    Args:
        key: secret that every process has which may get one of these ids back; b"" neither signs nor checks.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key = key

    def signed(self, request_id: str) -> str:
        """The id as a response gives it to the client."""
        return f"{request_id}.{self._signature(request_id)}" if self._key else request_id

    def read(self, given: str) -> str | None:
        """The id without its signature.

        Args:
            given: what a client sends as the id of a search's response.

        Returns:
            The id as the logs have it; None if no process with this key gave it out.
        """
        if not self._key:
            return given
        request_id, _, signature = given.rpartition(".")
        expected = self._signature(request_id)
        return request_id if hmac.compare_digest(signature.encode(), expected.encode()) else None

    def _signature(self, request_id: str) -> str:
        digest = hmac.new(self._key, request_id.encode("utf-8", "replace"), hashlib.sha256)
        return digest.hexdigest()[:SIGNATURE_CHARACTERS]
