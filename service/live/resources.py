"""The open resources of the service: the live index behind one reference.

A request takes the reference once and keeps it to its end, so a swap does not affect running requests. The previous
index closes after its last request.
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
"""Time limit for the search of a check, below the check's own, so that a slow search does not block its thread."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenVersion:
    """An open index version, with the document encoder if one is configured.

    Attributes:
        index: verified and warmed up.
        document_encoder: document encoder of the model that built the index; None if not configured.
    """

    index: Index
    document_encoder: Encoder | None = None


class Resources:
    """The live index, and whether the service accepts requests.

    Args:
        index_root: directory of the versions.
        metrics: receives the live index.
        device: device of the query encoder and the vectors.
        threads: threads per search, >= 1.
        warmup_queries: number of queries to run before a version is served, >= 0.
        document_model: model folder whose document encoder is opened with each version; "" for none.

    Attributes:
        held: the versions in memory.
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
        """Opens the version that CURRENT names and makes it live.

        Blocks during checksums and loading. On an error the live index stays unchanged.

        Raises:
            ArtifactError, ConfigError: if a file is missing or damaged, or components do not match.
            DeviceError: if the device is not available.
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
        """Opens a version: verifies every file, loads it, and runs warm-up queries.

        Raises:
            ArtifactError, ConfigError, DeviceError: as for `load`.
        """
        folder = self._root.folder(version)
        live = None if self._live is None else self._live.index
        index = Index.open(folder, self._device, self._threads, like=live)
        encoder = self._document_encoder(index) if self._document_model else None
        warm_up(index, self._warmup_queries)
        return OpenVersion(index, encoder)

    def use(self, opened: OpenVersion) -> None:
        """Makes a version live, for all later requests."""
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
        """The live version, with its document encoder if any.

        Raises:
            NotReadyError: as for `live`.
        """
        if self._live is None:
            raise NotReadyError("the index is still loading; try again in a moment")
        return self._live

    def live_name(self) -> str:
        """Name of the live version; "" before one is loaded."""
        return "" if self._live is None else self._live.index.version

    @property
    def draining(self) -> bool:
        """Whether the service is shutting down."""
        return self._draining

    def drain(self) -> None:
        """Makes `/readyz` return 503, so that new requests go elsewhere; requests are still answered."""
        self._draining = True
        self._metrics.ready.set(0)

    def require_open(self) -> None:
        """Raises an error if the service is shutting down.

        Raises:
            DrainingError: if it is.
        """
        if self._draining:
            raise DrainingError("the service is shutting down; send requests to another replica")

    def check(self) -> None:
        """Checks that every resource responds; blocks for about the time of one search.

        Raises:
            NotReadyError: if the index is still loading, or a resource does not respond; the message names it.
        """
        failed = _failed(self.live())
        if failed:
            raise NotReadyError(f"no response from: {', '.join(failed)}; see the log for the cause")

    def _document_encoder(self, index: Index) -> Encoder:
        """Opens the document encoder of the model that built the index; reuses the live one for the same model.

        Raises:
            MismatchError: if `document_model` is a different model.
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
    """Names of the resources that do not respond."""
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
    except Exception:  # any error: readiness reports the resource, and the log has the cause
        _logger.exception("resource %s does not respond", name)
        return False
    return True
