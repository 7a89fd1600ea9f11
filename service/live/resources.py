"""What the service holds open: the live index behind a reference that is exchanged whole.

A request takes the reference once and keeps it to its end, so an exchange never changes what a running request sees;
the old index goes when its last reader leaves.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glow.artifact import IndexRoot
from glow.errors import MismatchError
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.runtime import Device, Encoder, Model
from glow_service.errors import DrainingError, NotReadyError
from glow_service.live.held import HeldVersions
from glow_service.live.warm_up import PROBE_TEXT, probe_call, warm_up
from glow_service.search import Deadline, SearchSession
from glow_service.telemetry import Metrics

__all__ = ["OpenVersion", "Resources"]

PROBE_MS = 4_000.0
"""How long the search of a check may take: less than a check waits, so that a slow peer does not keep its thread."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenVersion:
    """An index version with what the service opens beside it.

    Attributes:
        index: verified and warmed up.
        document_encoder: tower of the model that built the index; None where none is wanted.
    """

    index: Index
    document_encoder: Encoder | None = None


class Resources:
    """The live index and whether the service may be sent requests.

    Args:
        index_root: where the versions lie.
        metrics: told which index is live.
        device: where the query tower and the vectors live.
        threads: that one search may use, >= 1.
        warmup_queries: to run before a version is served, >= 0.
        document_model: model folder whose document tower is opened beside each version; "" for none.

    Attributes:
        held: the versions that are in memory.
    """

    def __init__(
        self,
        index_root: Path,
        metrics: Metrics,
        *,
        device: Device = "cpu",
        threads: int = 1,
        warmup_queries: int = 16,
        document_model: str = "",
    ) -> None:
        self._root = IndexRoot(index_root)
        self._device = device
        self._threads = threads
        self._warmup_queries = warmup_queries
        self._document_model = document_model
        self._metrics = metrics
        self._live: OpenVersion | None = None
        self._draining = False
        self.held = HeldVersions(metrics)

    def load(self) -> Index:
        """Opens the version that CURRENT names and makes it the live one.

        Blocks for as long as checksums and loading take. On any error the live index stays as it was.

        Raises:
            ArtifactError, ConfigError: if missing, damaged, or parts that do not belong together.
            DeviceError: if the device is not there.
        """
        started = time.perf_counter()
        opened = self.open(self._root.current())
        self.use(opened)
        index = opened.index
        fields = {
            "index": index.version,
            "model": index.model,
            "documents": index[STORED_FIELDS].count,
            "seconds": round(time.perf_counter() - started, 3),
        }
        _logger.info("ready", extra={"fields": fields})
        return index

    def open(self, version: str) -> OpenVersion:
        """Opens a version beside the live one: verifies every file, loads, runs first queries.

        Raises:
            ArtifactError, ConfigError, DeviceError: as `load`.
        """
        folder = self._root.folder(version)
        live = None if self._live is None else self._live.index
        index = Index.open(folder, self._device, self._threads, like=live)
        encoder = self._document_encoder(index) if self._document_model else None
        warm_up(index, self._warmup_queries)
        return OpenVersion(index, encoder)

    def use(self, opened: OpenVersion) -> None:
        """Makes a version the live one: every request that comes from now on is answered from it."""
        self._live = opened
        self.held.add(opened.index)
        self._metrics.use(opened.index)
        self._metrics.ready.set(0 if self._draining else 1)

    def live(self) -> Index:
        """The live index.

        Raises:
            NotReadyError: if it is not loaded and warmed up yet.
        """
        return self.live_version().index

    def live_version(self) -> OpenVersion:
        """The live index with what was opened beside it.

        Raises:
            NotReadyError: as `live`.
        """
        if self._live is None:
            raise NotReadyError("the index is still loading; try again in a moment")
        return self._live

    def live_name(self) -> str:
        """The version that is served; "" before one is."""
        return "" if self._live is None else self._live.index.version

    @property
    def draining(self) -> bool:
        """Whether the service is about to end."""
        return self._draining

    def drain(self) -> None:
        """Says through `/readyz` that no new requests should come; those that come are still answered."""
        self._draining = True
        self._metrics.ready.set(0)

    def require_open(self) -> None:
        """Checks that the service is not about to stop.

        Raises:
            DrainingError: if it is.
        """
        if self._draining:
            raise DrainingError("the service is about to stop; send requests to another one")

    def check(self) -> None:
        """Asks every resource for an answer; blocks for about the time of one search.

        Raises:
            NotReadyError: if no index yet, or a resource does not answer; its name is in the message.
        """
        failed = _failed(self.live())
        if failed:
            raise NotReadyError(f"no answer from: {', '.join(failed)}; the log says why")

    def _document_encoder(self, index: Index) -> Encoder:
        """The document tower of the model that built the index; the live one's, where that is the same model.

        Raises:
            MismatchError: if it is another model's.
        """
        wanted, live = index.manifest.hashes.get("model"), self._live
        if live and live.document_encoder and live.index.manifest.hashes.get("model") == wanted:
            return live.document_encoder
        model = Model.open(Path(self._document_model))
        if model.hash != wanted:
            raise MismatchError(
                f"document_model is {model.label}, the index was built by {index.model}; give the same model"
            )
        return model.encoder("document", self._device, self._threads)


def _failed(index: Index) -> list[str]:
    """Names of the resources that do not answer."""
    until = Deadline.after(time.perf_counter(), PROBE_MS)
    probes: dict[str, Callable[[], object]] = {
        "encoder": lambda: index.encoder.run([index.preprocessor.query(PROBE_TEXT)]),
        "documents": lambda: index[STORED_FIELDS].rows([0] if index[STORED_FIELDS].count else []),
        "search": lambda: SearchSession(index, probe_call(PROBE_TEXT), until).run(),
    }
    return [name for name, probe in probes.items() if not _answers(name, probe)]


def _answers(name: str, probe: Callable[[], object]) -> bool:
    try:
        probe()
    except Exception:  # whatever it is, readiness reports which resource, and the log has the cause
        _logger.exception("resource %s does not answer", name)
        return False
    return True
