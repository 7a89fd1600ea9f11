"""The gate publishes a version only if it is good enough, and records its verdict and any override.

The verdict is written to the manifest (`parameters["gate"]`) before `CURRENT` may name the version, so exports
include it. The comparison runs without the root's lock, which other commands need. If another version goes live
meanwhile, the comparison is repeated.
"""

import getpass
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from glow.artifact import GATE, IndexRoot, failed_checks
from glow.errors import BusyError, GateError
from glow_index_builder.versions.gate_checks import Check, check_version
from glow_index_builder.versions.gate_options import GateOptions, read_gate_queries

__all__ = ["Verdict", "judge", "publish_gated", "publish_judged"]

TRIES = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a gate.

    Attributes:
        version: the judged version.
        against: the live version that it was compared with; None if there was none.
        source: source of the queries.
        queries: number of queries.
        checks: the checks.
    """

    version: str
    against: str | None
    source: str
    queries: int
    checks: tuple[Check, ...]

    @property
    def failed(self) -> list[Check]:
        """The failed checks."""
        return [check for check in self.checks if not check.passed]

    def record(self) -> dict[str, Any]:
        """The verdict as JSON values, for manifest and report."""
        return {
            "status": "failed" if self.failed else "passed",
            "against": self.against,
            "source": self.source,
            "queries": self.queries,
            "time": _now(),
            "checks": [check.values() for check in self.checks],
        }


def publish_gated(
    root: IndexRoot, version: str, gate: GateOptions | None, *, publish: bool
) -> dict[str, Any] | None:
    """The last step of a build: judges its version and publishes it if asked to.

    Args:
        root: the index root with the complete version.
        version: its name.
        gate: options of the gate; None: no gate.
        publish: whether to publish it.

    Returns:
        The verdict as JSON values; None without a gate.

    Raises:
        GateError: if the gate refused it; it stays unpublished.
        ArtifactError, InputError, BusyError, ReadOnlyError: as `judge`.
    """
    if gate is not None:
        return judge(root, version, gate, publish=publish)
    if publish:
        root.publish(version)
    return None


def judge(root: IndexRoot, version: str, options: GateOptions, *, publish: bool) -> dict[str, Any]:
    """Compares a version with the live one, records the verdict in its manifest, and publishes it if it passed.

    Args:
        root: the index root.
        version: the version to judge.
        options: queries and limits.
        publish: whether to publish it.

    Returns:
        The verdict as JSON values.

    Raises:
        GateError: if it failed and `options.force` is not set.
        ArtifactError: if a version is missing or damaged.
        InputError: if the queries cannot be used.
        BusyError: if another process changes the root, or the live version keeps changing.
        ReadOnlyError: if the root cannot be written.
    """
    root.manifest(version)
    queries = read_gate_queries(options)
    for _ in range(TRIES):
        live = root.live()
        against = None if live == version else live
        beside = None if against is None else root.folder(against)
        checks = check_version(root.folder(version), beside, queries, options)
        verdict = Verdict(version, against, queries.source, len(queries.texts), tuple(checks))
        with root.locked():
            if root.live() == live:
                return _settle(root, verdict, options.force, publish)
    raise BusyError(f"the live version of {root.path} changed {TRIES} times while the gate ran; try again")


def publish_judged(root: IndexRoot, version: str, *, force: bool = False) -> None:
    """Publishes a version unless a gate refused it.

    Args:
        root: the index root.
        version: its name.
        force: publishes it despite a refusal, and records that.

    Raises:
        GateError: if a gate refused it and `force` is not set.
        ArtifactError, BusyError, ReadOnlyError: as `IndexRoot.publish`.
    """
    root.manifest(version)
    with root.locked():
        manifest = root.manifest(version)
        failed = failed_checks(manifest)
        if force and failed is not None:
            root.amend(version, {GATE: _forced(manifest.parameters[GATE], failed)})
        root.publish(version)


def _settle(root: IndexRoot, verdict: Verdict, force: bool, publish: bool) -> dict[str, Any]:
    """Records the verdict and acts on it; needs the lock."""
    failed = verdict.failed
    record = verdict.record()
    if failed and force and publish:
        record = _forced(record, [check.name for check in failed])
    if verdict.version not in (root.live(), *root.history()):
        root.amend(verdict.version, {GATE: record})
    if failed and not force:
        raise GateError(_refusal(root.path, verdict, failed), {GATE: record, "version": verdict.version})
    if publish:
        root.publish(verdict.version)
    return record


def _refusal(root: Path, verdict: Verdict, failed: Sequence[Check]) -> str:
    live = f"{verdict.against} stays live" if verdict.against else "nothing is live"
    return (
        f"version {verdict.version} is complete but unpublished, {live}: "
        f"{'; '.join(check.words() for check in failed)}; to publish it anyway: "
        f"glow publish --index-root {root} {verdict.version} --force"
    )


def _forced(record: dict[str, Any], failed: list[str]) -> dict[str, Any]:
    who = {"user": _user(), "host": socket.gethostname(), "time": _now(), "failed": failed}
    return {**record, "status": "forced", "override": who}


def _user() -> str:
    """The user's name or number; in a container, the number may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
