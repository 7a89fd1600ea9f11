"""How a router reaches shards: a call to several of them at once, and what came of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from glow.errors import GlowError
from glow.runtime import Device
from glow.search import Index, ShardSet, shard_root
from glow_service.shards.shard import answer_document, answer_rank, answer_show
from glow_service.shards.wire import DocumentCall, RankCall, ShowCall, read_call

__all__ = ["Answers", "LocalShards", "Transport", "Verb"]

Verb = Literal["open", "rank", "show", "document"]


@dataclass(frozen=True, slots=True)
class Answers:
    """What came of a call to several shards.

    Attributes:
        found: number of a shard -> its answer.
        failed: number of a shard -> why there is none.
        errors: number of a shard -> the code of the error that it answered with; a shard that does not answer has none.
    """

    found: dict[int, bytes] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)


class Transport(Protocol):
    """Reaches the shards of a set."""

    def ask(self, verb: Verb, calls: Mapping[int, bytes], timeout_s: float, most_bytes: int) -> Answers:
        """Asks shards by their numbers, all at once; blocks until all have answered or failed, or time is over.

        Args:
            verb: what to do.
            calls: number of a shard -> what it is asked.
            timeout_s: seconds; a shard whose whole response is not there by then has failed.
            most_bytes: longest response; a longer one has failed.
        """


class LocalShards:
    """The shards of a set in this process: for one machine, and for commands.

    Args:
        indexes: the open versions, by number.
    """

    def __init__(self, indexes: list[Index]) -> None:
        self.indexes = indexes

    @classmethod
    def open(
        cls, root: Path, shards: ShardSet, device: Device, threads: int, like: "LocalShards | None" = None
    ) -> "LocalShards":
        """Opens the versions that a set names; arguments as for `Index.open`.

        Raises:
            ArtifactError, DeviceError: as `Index.open`.
        """
        before = like.indexes if like is not None else []
        indexes = []
        for number, record in enumerate(shards.shards):
            old = before[number] if number < len(before) else None
            folder = shard_root(root, number) / record.version
            indexes.append(Index.open(folder, device, threads, like=old))
        return cls(indexes)

    def ask(self, verb: Verb, calls: Mapping[int, bytes], timeout_s: float, most_bytes: int) -> Answers:
        """As `Transport.ask`, one after the other."""
        answers = Answers()
        for number, body in calls.items():
            try:
                answers.found[number] = self._answer(self.indexes[number], verb, body)
            except GlowError as error:
                answers.failed[number], answers.errors[number] = str(error), error.code
        return answers

    def _answer(self, index: Index, verb: Verb, body: bytes) -> bytes:
        if verb == "rank":
            return answer_rank(index, read_call(RankCall, body))
        if verb == "show":
            return answer_show(index, read_call(ShowCall, body))
        return answer_document(index, read_call(DocumentCall, body))
