"""Reads responses as records of `glow.contract`, and finds what those do not describe."""

import json
from typing import TypeVar

import msgspec

T = TypeVar("T")


def read_whole(content: bytes, kind: type[T]) -> T:
    """The record, which holds every member of the response, and no other."""
    record = msgspec.json.decode(content, type=kind)
    assert json.loads(msgspec.json.encode(record)) == json.loads(content)
    return record
