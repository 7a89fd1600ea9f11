"""The service's settings: one table that makes the flags, the environment variables and their documentation.

The setting `max_body_bytes` is the flag `--max-body-bytes` and the variable `GLOW_MAX_BODY_BYTES`. GLOW reads settings
once, at start. A flag overrides its variable, and a variable the TOML file.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import SecretStr, ValidationError, field_validator, model_validator

from glow.commands import OptionRow, describe_faults, option, plain, rows_of
from glow.errors import ConfigError
from glow.ingest import INGEST_FOLDER
from glow.options import StrictModel
from glow.runtime import Device
from glow.search import RetrieverOrAuto, read_synonyms
from glow_service.access import check_keys, parse_keys, parse_origins, read_tenants
from glow_service.collections import DEFAULT_COLLECTION, parse_collections
from glow_service.telemetry.logs import LogForm

ENV_PREFIX = "GLOW_"

_PRIVATE = (
    "index_root", "ingest_folder", "query_log", "feedback_log", "tenants", "synonyms", "index", "document_model", "otel_endpoint",
)  # fmt: skip
"""Settings with paths and addresses of this machine, which `/info` does not show."""
_UNSET = SecretStr("")

MOST_PROCESSES = 8
"""Most processes by default; on more cores, each process runs several search threads, which need less memory."""
MOST_BATCH_BYTES = 64 << 20
LEAST_FEEDBACK_KEY = 16
GROUP = r"^$|^.+:[1-9][0-9]{0,2}$"
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""CPU quota of a container: microseconds per period, and the period (cgroup v2)."""


def _cores() -> int:
    """Number of CPU cores that this process may use, within a container's quota."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = CPU_QUOTA.read_text(encoding="ascii").split()
        return max(1, min(cores, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no cgroup v2, or "max": no quota
        return cores


class Settings(StrictModel):
    """Settings of the service; `docs/reference/settings.md` lists them."""

    index_root: Path = option(..., "Directory of all versions of an index.")
    index: tuple[str, ...] = option(
        (), "More indexes as NAME=ROOT, separated by commas; routes: /v1/NAME/search."
    )
    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 for every interface.")
    port: int = option(8080, "TCP port to listen on.", ge=1, le=65_535)
    workers: int = option(0, "Worker processes; 0: one per CPU core, at most 8.", ge=0, le=64)
    device: Device = option("cpu", "Device of the query encoder and the vectors.")
    search_threads: int = option(0, "Parallel searches per process; 0: by CPU cores.", ge=0, le=64)
    max_body_bytes: int = option(
        64 << 10, "Largest body; above it: 413.", unit="bytes", ge=1 << 10, le=64 << 20
    )
    max_query_chars: int = option(
        10_000, "Longest query; above it: 422.", unit="characters", ge=1, le=100_000
    )
    max_top_k: int = option(100, "Most hits of a request.", unit="hits", ge=1, le=1_000)
    default_retriever: RetrieverOrAuto = option("auto", "Default retriever; auto: hybrid if possible.")
    max_batch_queries: int = option(
        64, "Most texts of a batch or an embeddings request.", unit="texts", ge=1, le=1_024
    )
    max_in_flight: int = option(
        128, "Requests in work per process; above it: 429.", unit="requests", ge=1, le=10_000
    )
    default_timeout_ms: int = option(2_000, "Default deadline.", unit="milliseconds", ge=1, le=600_000)
    max_timeout_ms: int = option(30_000, "Longest deadline.", unit="milliseconds", ge=1, le=600_000)
    cache_entries: int = option(
        10_000, "Cached responses per process; 0: no cache.", unit="entries", ge=0, le=10_000_000
    )
    cache_ttl_s: int = option(300, "Lifetime of a cache entry.", unit="seconds", ge=1, le=604_800)
    redis_url: SecretStr = option(_UNSET, "Shared cache, such as redis://host:6379/0; empty: none.")
    redis_timeout_ms: int = option(20, "Longest wait for Redis.", unit="milliseconds", ge=1, le=10_000)
    api_keys: SecretStr = option(_UNSET, "API keys as name:SHA-256, separated by commas; empty: open to all.")
    admin_key: SecretStr = option(_UNSET, "Key for /admin, as SHA-256; empty disables /admin.")
    write_key: SecretStr = option(_UNSET, "Key for writing documents, as SHA-256; empty disables it.")
    ingest_bytes: int = option(
        1 << 30, "Most bytes of waiting writes; above it: 429.", unit="bytes", ge=1 << 16, le=1 << 40
    )
    ingest_folder: str = option("", "Write log, shared by replicas; empty: .ingest in the index root.")
    max_write_bytes: int = option(
        16 << 20, "Largest body of a write; above it: 413.", unit="bytes", ge=1 << 10, le=1 << 30
    )
    document_model: str = option("", "Model that encodes documents for /v1/embeddings; empty: none.")
    tenants: str = option("", "TOML file with what each API key can search; empty: everything.")
    synonyms: str = option("", "File of synonyms, one group per line, reloaded when it changes; empty: none.")
    rate_limit: float = option(
        0.0, "Requests per second of a key; 0: no limit.", unit="requests/s", ge=0, le=1e6
    )
    rate_burst: int = option(50, "Requests of a key at once.", unit="requests", ge=1, le=1_000_000)
    cors_origins: str = option("", "Sites whose pages can read responses, separated by commas; empty: none.")
    query_log: str = option("", "File for sampled queries; empty: none.")
    query_log_sample_rate: float = option(1.0, "Fraction of the queries in the query log.", ge=0, le=1)
    feedback_log: str = option("", "File for clicks and relevance judgments; empty disables /feedback.")
    feedback_key: SecretStr = option(_UNSET, "Secret that signs request ids; empty: a file beside the log.")
    otel_endpoint: str = option(
        "", "Collector of traces, such as http://collector:4318; empty: none.", pattern=r"^$|^https?://[^/]"
    )
    otel_sample_rate: float = option(0.01, "Fraction of the requests that GLOW traces.", ge=0, le=1)
    drain_s: float = option(0.0, "Time with /readyz at 503 after SIGTERM.", unit="seconds", ge=0, le=600)
    shutdown_timeout_s: int = option(
        10, "Time for requests in flight at shutdown.", unit="seconds", ge=1, le=600
    )
    page: bool = option(True, "Serve the search page at /.")
    page_examples: str = option("", "Example queries, separated by |; empty: some of the index.")
    page_filters: str = option("", "Fields to filter by, separated by commas; empty: fields with few values.")
    page_group_by: str = option("", "Field and most results per value, such as module:3.", pattern=GROUP)
    log_format: LogForm = option("auto", "Log format; auto: text in a terminal, otherwise JSON Lines.")
    log_level: Literal["debug", "info", "warning", "error"] = option("info", "Lowest log level.")

    @field_validator("index", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """Splits at commas: the variable has all entries in one text, and a flag may have several."""
        texts = value if isinstance(value, list | tuple) else [value]
        return tuple(part for text in texts for part in map(str.strip, str(text).split(",")) if part)

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_keys(
            self.api_keys.get_secret_value(),
            self.admin_key.get_secret_value(),
            self.write_key.get_secret_value(),
        )
        keys = parse_keys(self.api_keys.get_secret_value())
        read_tenants(self.tenants, keys, {DEFAULT_COLLECTION, *self.collections})
        try:
            read_synonyms(self.synonyms)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if self.collections and self.workers > 1:
            raise ValueError("index: one process serves several indexes; remove the setting workers")
        parse_origins(self.cors_origins)
        if 0 < (length := len(self.feedback_key.get_secret_value())) < LEAST_FEEDBACK_KEY:
            raise ValueError(f"feedback_key has {length} characters, expected at least {LEAST_FEEDBACK_KEY}")
        if self.default_timeout_ms > self.max_timeout_ms:
            raise ValueError(f"default_timeout_ms {self.default_timeout_ms} exceeds max_timeout_ms")
        return self

    @property
    def ingest_path(self) -> Path:
        """Directory of the write log."""
        return Path(self.ingest_folder) if self.ingest_folder else self.index_root / INGEST_FOLDER

    @property
    def collections(self) -> dict[str, Path]:
        """Name -> root of the additional indexes."""
        return parse_collections(self.index)

    @property
    def processes(self) -> int:
        """Number of worker processes. Python uses one core per process, so the default is one per core."""
        if self.index:
            return 1
        if self.device == "cuda":
            return self.workers or 1  # each process needs GPU memory
        return self.workers or min(_cores(), MOST_PROCESSES)

    @property
    def threads(self) -> int:
        """Number of parallel searches per process."""
        return self.search_threads or max(1, _cores() // self.processes)

    @property
    def loaders(self) -> int:
        """Most workers that load a new version at the same time; the others serve meanwhile."""
        return max(1, _cores() // 2)

    @property
    def batch_bytes(self) -> int:
        """Largest body of a request with several texts, in bytes."""
        return min(self.max_body_bytes * self.max_batch_queries, MOST_BATCH_BYTES)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Reads the settings from environment variables; an empty variable counts as absent."""
        values = {row.name: environ[row.env] for row in settings_table() if environ.get(row.env)}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(describe_faults(error, settings_table())) from error

    def to_environment(self) -> dict[str, str]:
        """The settings as environment variables, for a worker process."""
        values = {row.env: getattr(self, row.name) for row in settings_table()}
        return {name: plain(value) for name, value in values.items()}

    def public(self) -> dict[str, Any]:
        """The settings that `/info` shows, without secrets and paths of this machine."""
        return {
            name: value for name, value in self if name not in _PRIVATE and not isinstance(value, SecretStr)
        }


def settings_table() -> tuple[OptionRow, ...]:
    """All settings, in the order of `Settings`."""
    return rows_of(Settings, ENV_PREFIX)
