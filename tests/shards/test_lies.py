"""Shards that lie: whatever a shard sends, the router says which shard, and nothing of the bytes."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from glow.artifact import IndexRoot
from glow.errors import ShardError
from glow.search import shard_of
from glow_service.search import Deadline, check_search
from glow_service.settings import Settings
from glow_service.shards import ShardConnections, open_session
from glow_service.shards.opening import ShardedIndex
from glow_service.shards.transport import Answers, LocalShards, Verb
from tests.shards.conftest import opened

Lie = Callable[[Any], Any]
BODY = {"query": "how do bees find home", "top_k": 50}


class Liars:
    """The shards of this process, of which the third changes what it says."""

    def __init__(self, shards: LocalShards, verb: Verb, lie: Lie) -> None:
        self._shards, self._verb, self._lie = shards, verb, lie

    def ask(self, verb: Verb, calls: Mapping[int, bytes], *limits: Any) -> Answers:
        """As `Transport.ask`."""
        answers = self._shards.ask(verb, calls, *limits)
        if verb == self._verb:
            said = self._lie(json.loads(answers.found[2]))
            answers.found[2] = said if isinstance(said, bytes) else json.dumps(said).encode()
        return answers


LIES: dict[str, tuple[Verb, Lie]] = {
    "no JSON": ("rank", lambda _: b"\xffSECRET"),
    "ids of numbers": ("rank", lambda said: {**said, "ids": list(range(len(said["ids"])))}),
    "metadata of numbers": ("rank", lambda said: {**said, "metadata": [7] * len(said["ids"])}),
    "rows beyond 64 bits": ("rank", lambda said: {**said, "rows": [2**70] * len(said["ids"])}),
    "rows of text": ("rank", lambda said: {**said, "rows": ["SECRET"] * len(said["ids"])}),
    "a list": ("rank", lambda said: [said]),
    "one id less": ("rank", lambda said: {**said, "ids": said["ids"][1:]}),
    "one hit less": ("show", lambda said: {"hits": said["hits"][1:]}),
    "other hits": ("show", lambda said: {"hits": said["hits"][::-1]}),
    "hits of numbers": ("show", lambda said: {"hits": [7] * len(said["hits"])}),
    "fields of numbers": (
        "show",
        lambda said: {"hits": [{**hit, "fields": {"text": [7]}} for hit in said["hits"]]},
    ),
    "fields in a list": (
        "show",
        lambda said: {"hits": [{**hit, "fields": ["SECRET"]} for hit in said["hits"]]},
    ),
    "snippets of numbers": (
        "show",
        lambda said: {"hits": [{**hit, "highlights": [1]} for hit in said["hits"]]},
    ),
    "a passage of numbers": ("show", lambda said: {"hits": [{**hit, "passage": 7} for hit in said["hits"]]}),
}


@pytest.mark.parametrize("name", LIES)
def test_a_shard_that_lies_is_missing_with_its_number(four: IndexRoot, name: str) -> None:
    index = opened(four)
    assert isinstance(index, ShardedIndex) and isinstance(index.transport, LocalShards)
    verb, lie = LIES[name]
    lying = object.__new__(ShardedIndex)
    for field in ShardedIndex.__dataclass_fields__:
        object.__setattr__(lying, field, getattr(index, field))
    object.__setattr__(lying, "transport", Liars(index.transport, verb, lie))
    checked = check_search(BODY, Settings(index_root=four.path).limits, lying)
    found = open_session(lying, checked.call, Deadline.after(time.perf_counter(), 5_000)).run()
    assert list(found.missing_shards) == [2]
    assert "SECRET" not in str(found.missing_shards)
    assert len(found.hits) > 20


@contextmanager
def speaking(response: bytes) -> Iterator[int]:
    """A server that says the same to everybody; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                    with client:
                        client.recv(1 << 16)
                        client.sendall(response)
                        client.shutdown(socket.SHUT_WR)
                        while client.recv(1 << 16):
                            pass
                except OSError:
                    if listener.fileno() == -1:
                        return

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("response", "what"),
    [
        (b"SECRET " * 5_000, "it speaks no HTTP"),
        (b"SECRET\r\n\r\n", "does not speak as a shard"),
        (b"HTTP/1.1 200 OK\r\n\r\nSECRET", "does not speak as a shard"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 314572800\r\n\r\n", "314572800 bytes, expected 1000 at most"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nSECRET", "more arrived"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nSECRET", "the connection was closed"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 6\r\n\r\nSECRET", "answers 500: no problem+json"),
        (b"", "the connection was closed"),
    ],
)
def test_bytes_that_are_no_response_are_told_and_not_shown(response: bytes, what: str) -> None:
    with speaking(response) as port:
        connections = ShardConnections([[("127.0.0.1", port)]], "a key of some length")
        answers = connections.ask("rank", {0: b"{}"}, 5.0, 1_000)
    assert not answers.found
    assert what in answers.failed[0] and "SECRET" not in answers.failed[0]


def test_a_document_that_is_none_is_a_shard_error(four: IndexRoot) -> None:
    index = opened(four)
    assert isinstance(index, ShardedIndex) and isinstance(index.transport, LocalShards)
    documents = index.documents
    name = next(f"d/{number}" for number in range(240) if shard_of(f"d/{number}", 4) == 2)
    for lie in (
        lambda said: {**said, "id": 7},
        lambda said: [said],
        lambda _: b"{",
        lambda said: {"id": "x"},
    ):
        documents._transport = Liars(index.transport, "document", lie)
        with pytest.raises(ShardError, match="shard 2"):
            documents.get(name)
