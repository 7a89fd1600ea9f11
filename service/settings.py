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
from glow.search import RetrieverOrAuto
from glow_service.access import check_keys, parse_keys, parse_origins, read_tenants
from glow_service.collections import DEFAULT_COLLECTION, parse_collections
from glow_service.telemetry import LogForm

ENV_PREFIX = "GLOW_"

_PRIVATE = (
    "index_root", "ingest_folder", "query_log", "feedback_log", "tenants", "index", "document_model", "otel_endpoint",
)  # fmt: skip
"""Settings with paths and addresses of this machine, which `/info` does not show."""


def _setting(default: Any, description: str, unit: str = "", **limits: Any) -> Any:
    return option(default, description, unit=unit, **limits)


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

    index_root: Path = _setting(..., "Directory of all versions of an index.")
    index: tuple[str, ...] = _setting(
        (),
        "More indexes as NAME=ROOT, separated by commas or one per flag. Their routes are /v1/NAME/search etc.",
    )
    host: str = _setting("127.0.0.1", "Address to listen on; 0.0.0.0 for every interface.")
    port: int = _setting(8080, "TCP port to listen on.", ge=1, le=65_535)
    workers: int = _setting(
        0, "Worker processes, which share the index in memory; 0: one per CPU core, at most 8.", ge=0, le=64
    )
    device: Device = _setting("cpu", "Device of the query encoder and the vectors.")
    search_threads: int = _setting(
        0, "Parallel searches per process; 0 divides the CPU cores among the processes.", ge=0, le=64
    )
    max_body_bytes: int = _setting(
        64 << 10, "Largest request body; above it: 413.", "bytes", ge=1 << 10, le=64 << 20
    )
    max_query_chars: int = _setting(10_000, "Longest query; above it: 422.", "characters", ge=1, le=100_000)
    max_top_k: int = _setting(100, "Most hits of a request.", "hits", ge=1, le=1_000)
    default_retriever: RetrieverOrAuto = _setting(
        "auto", "Default retriever; auto: hybrid if the index has a lexical part, otherwise dense."
    )
    max_batch_queries: int = _setting(
        64, "Most queries of a batch, or texts of an embeddings request.", "texts", ge=1, le=1_024
    )
    max_in_flight: int = _setting(
        128,
        "Requests in work per process, a quarter of them expensive; above it: 429.",
        "requests",
        ge=1,
        le=10_000,
    )
    default_timeout_ms: int = _setting(
        2_000, "Default deadline of a request.", "milliseconds", ge=1, le=600_000
    )
    max_timeout_ms: int = _setting(30_000, "Longest deadline of a request.", "milliseconds", ge=1, le=600_000)
    cache_entries: int = _setting(
        10_000,
        "Responses in the cache of a process, and as many query vectors; 0: no cache.",
        "entries",
        ge=0,
        le=10_000_000,
    )
    cache_ttl_s: int = _setting(300, "Lifetime of a cache entry.", "seconds", ge=1, le=604_800)
    redis_url: SecretStr = _setting(
        SecretStr(""), "Redis cache that all workers share, such as redis://host:6379/0; empty: none."
    )
    redis_timeout_ms: int = _setting(
        20, "Most time that a search waits for Redis.", "milliseconds", ge=1, le=10_000
    )
    api_keys: SecretStr = _setting(
        SecretStr(""),
        "API keys for searching, as name:SHA-256, separated by commas; empty: everyone may search.",
    )
    admin_key: SecretStr = _setting(SecretStr(""), "Key for /admin, as SHA-256; empty disables /admin.")
    write_key: SecretStr = _setting(
        SecretStr(""), "Key for writing documents, as SHA-256; empty disables writing."
    )
    ingest_bytes: int = _setting(
        1 << 30,
        "Most bytes of writes that wait to be applied; above it: 429.",
        "bytes",
        ge=1 << 16,
        le=1 << 40,
    )
    ingest_folder: str = _setting(
        "", "Directory of the write log, shared by all replicas; empty: .ingest in the index root."
    )
    max_write_bytes: int = _setting(
        16 << 20, "Largest body of a write; above it: 413.", "bytes", ge=1 << 10, le=1 << 30
    )
    document_model: str = _setting(
        "", "Model directory whose document encoder serves /v1/embeddings; empty: none."
    )
    tenants: str = _setting(
        "", "TOML file with the indexes and documents that each API key can search; empty: all."
    )
    rate_limit: float = _setting(
        0.0, "Requests per second of an API key; 0: no limit.", "requests/s", ge=0, le=1e6
    )
    rate_burst: int = _setting(
        50,
        "Requests that an API key can send at once, before the limit applies.",
        "requests",
        ge=1,
        le=1_000_000,
    )
    cors_origins: str = _setting(
        "", "Origins whose pages can read responses (CORS), separated by commas; empty: none."
    )
    query_log: str = _setting("", "File for sampled queries; empty: none.")
    query_log_sample_rate: float = _setting(1.0, "Fraction of the queries in the query log.", ge=0, le=1)
    feedback_log: str = _setting("", "File for clicks and relevance judgments; empty disables /feedback.")
    feedback_key: SecretStr = _setting(
        SecretStr(""),
        "Secret that signs request ids if clicks need no API key, shared by all replicas; empty: a file beside the log.",
    )
    otel_endpoint: str = _setting(
        "",
        "OpenTelemetry collector for traces (OTLP over HTTP), such as http://collector:4318; empty: none.",
        pattern=r"^$|^https?://[^/]",
    )
    otel_sample_rate: float = _setting(0.01, "Fraction of the requests that GLOW traces.", ge=0, le=1)
    drain_s: float = _setting(
        0.0,
        "How long the service continues after SIGTERM, with /readyz reporting 503.",
        "seconds",
        ge=0,
        le=600,
    )
    shutdown_timeout_s: int = _setting(
        10, "How long requests in flight can take at shutdown.", "seconds", ge=1, le=600
    )
    page: bool = _setting(True, "Serve the search page at /.")
    page_examples: str = _setting(
        "", "Example queries on the start page, separated by |; empty: some of the index."
    )
    page_filters: str = _setting(
        "",
        "Metadata fields that the page offers as filters, separated by commas; empty: fields with few values.",
    )
    page_group_by: str = _setting(
        "", "Metadata field and most results per value, such as module:3; empty: no limit.", pattern=GROUP
    )
    log_format: LogForm = _setting(
        "auto", "Log format; auto: text if stderr is a terminal, otherwise JSON Lines."
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "Lowest log level; info logs each request."
    )

    @field_validator("index", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """Splits at commas: the variable has all entries in one text, and a flag may have several."""
        texts = (value,) if isinstance(value, str) else value
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            return value
        return tuple(part for text in texts for part in map(str.strip, text.split(",")) if part)

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_keys(
            self.api_keys.get_secret_value(),
            self.admin_key.get_secret_value(),
            self.write_key.get_secret_value(),
        )
        keys = parse_keys(self.api_keys.get_secret_value())
        read_tenants(self.tenants, keys, {DEFAULT_COLLECTION, *self.collections})
        self._check_collections()
        parse_origins(self.cors_origins)
        if 0 < (length := len(self.feedback_key.get_secret_value())) < LEAST_FEEDBACK_KEY:
            raise ValueError(f"feedback_key has {length} characters, expected at least {LEAST_FEEDBACK_KEY}")
        if self.default_timeout_ms > self.max_timeout_ms:
            raise ValueError(
                f"default_timeout_ms {self.default_timeout_ms} exceeds max_timeout_ms {self.max_timeout_ms}"
            )
        return self

    @property
    def ingest_path(self) -> Path:
        """Directory of the write log."""
        return Path(self.ingest_folder) if self.ingest_folder else self.index_root / INGEST_FOLDER

    def _check_collections(self) -> None:
        if self.collections and self.workers > 1:
            raise ValueError(
                "index: one process serves several indexes; remove the setting workers, or start several services if one "
                "is not enough"
            )

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
