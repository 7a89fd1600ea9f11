"""`python -m index_builder`: the builder's commands under their old names."""

from glow.commands import package_app
from glow_index_builder.commands import build, delta, diff, gate, ingest, learn, snapshot, versions

__all__ = ["app"]

app = package_app(
    {
        "build": build.build_command,
        "verify": build.verify_command,
        "tune": build.tune_command,
        "publish": gate.publish_command,
        "rollback": versions.rollback_command,
        "versions": versions.versions_command,
        "gate": gate.gate_command,
        "gc": versions.gc_command,
        "pin": versions.pin_command,
        "unpin": versions.unpin_command,
        "diff": diff.diff_command,
        "upsert": delta.upsert_command,
        "delete": delta.delete_command,
        "compact": delta.compact_command,
        "ingest": ingest.ingest_command,
        "learn-clicks": learn.learn_command,
        "export": snapshot.export_command,
        "import": snapshot.import_command,
    },
    "Builds, verifies and publishes index versions.",
)
