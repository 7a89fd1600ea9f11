"""The gate's result for a version: `parameters["gate"]` in its manifest, written before it can be published."""

from glow.artifact.manifest import Manifest
from glow.errors import GateError

__all__ = ["GATE", "failed_checks", "require_passed"]

GATE = "gate"
"""Name of the parameter: an object with `status` (`passed`, `failed`, `forced`), `checks` and more (docs/versions.md)."""


def failed_checks(manifest: Manifest) -> list[str] | None:
    """Names of the checks that a version failed; None if no gate refused it."""
    record = manifest.parameters.get(GATE)
    if not isinstance(record, dict) or record.get("status") != "failed":
        return None
    checks = record.get("checks")
    rows = [check for check in checks if isinstance(check, dict)] if isinstance(checks, list) else []
    return [str(check.get("name")) for check in rows if not check.get("passed")]


def require_passed(manifest: Manifest) -> None:
    """Raises an error if a gate refused the version.

    Raises:
        GateError: if a gate refused it, and nobody forced it.
    """
    failed = failed_checks(manifest)
    if failed is not None:
        record = manifest.parameters[GATE]
        raise GateError(
            f"the gate refused version {manifest.name} at {record.get('time')} for {', '.join(failed)}; "
            "run `glow gate` again, or publish it anyway with `publish --force`",
            {GATE: record, "version": manifest.name},
        )
