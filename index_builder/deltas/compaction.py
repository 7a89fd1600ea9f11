"""Merges base and delta into one version, with the same documents, term statistics and vectors; re-encodes nothing."""

import shutil
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from glow import __version__
from glow.artifact import QUERY_TOWER, ArtifactWriter, IndexRoot
from glow.errors import BuildError
from glow.index import (
    COMPONENTS,
    DELTA,
    MODEL_FOLDER,
    REPORT_FILE,
    Index,
    MergeSource,
    Rows,
    Segment,
    counts_of,
    existing_rules,
    is_made_anew,
    merge_segments,
    view_of,
)
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS, KeptVectors, set_threads
from glow.runtime import Encoder
from glow_index_builder.building.documents import store_rows
from glow_index_builder.building.report import measure_recall, write_json
from glow_index_builder.deltas.plan import CompactOptions
from glow_index_builder.input.lines import REJECTS_FILE
from glow_index_builder.open_version import OpenVersion
from glow_index_builder.progress import Stages
from glow_index_builder.versions.writer import VersionWriter, describe_heir, disk_errors, link_files

NOTES_FOLDER = "import"
OF_ONE_BUILD = (REPORT_FILE, REJECTS_FILE)
"""Files that describe one build; a compaction rewrites them or leaves them out."""


def compact(options: CompactOptions, stages: Stages) -> dict[str, Any]:
    """Merges the delta of the live version into its base under the root's lock, and publishes it; returns the report."""
    root = IndexRoot(options.index_root)
    root.current()
    set_threads(options.thread_count)
    with disk_errors(options.index_root), root.locked(options.wait_s):
        live = OpenVersion.open(root)
        if live.delta is None:
            return {"status": "unchanged", "version": live.folder.name, "documents": live.base.rows.documents}
        if not live.documents.count:
            raise BuildError("no document is left to compact; build an index of others")
        target = VersionWriter(root)
        report = _Compaction(options, live, live.delta.segment, stages).run(target)
        with stages.stage("publish"):
            target.open(Index.open)
            root.publish(target.version)
    return {**report, "seconds": stages.report}


class _Compaction:
    """The stages of a compaction, which write one directory."""

    def __init__(self, options: CompactOptions, live: OpenVersion, delta: Segment, stages: Stages) -> None:
        self.options, self.live, self.stages = options, live, stages
        is_live = np.ones(live.base.rows.documents, np.bool_)
        is_live[live.tombstones] = False
        everything = np.ones(delta.rows.documents, np.bool_)
        self.sources = [MergeSource(live.base, is_live), MergeSource(delta, everything)]

    def run(self, target: VersionWriter) -> dict[str, Any]:
        """Writes the version; returns the report."""
        with target.write() as writer:
            # What does not change: term statistics, model, fusion and the files that components keep.
            files = {
                name: record
                for name, record in self.live.manifest.files.items()
                if not (name.startswith(DELTA) or name in OF_ONE_BUILD or is_made_anew(name))
            }
            writer.known = link_files(self.live.folder, files, writer.folder)
            segment, report = self._write(writer)
            report["version"] = target.version
            write_json(writer.folder / REPORT_FILE, report)
            notes = writer.folder / NOTES_FOLDER
            store_rows(
                writer.folder, segment, existing_rules(self.live.base, delta=False), notes, self.stages
            )
            shutil.rmtree(notes, ignore_errors=True)
        return report

    def _write(self, writer: ArtifactWriter) -> tuple[Segment, dict[str, Any]]:
        live, base = self.live, self.live.base
        rows = Rows(sum(each.documents for each in self.sources))
        target = replace(base, folder=writer.folder, root=writer.folder, files=None, rows=rows, readers={})
        segment = merge_segments(
            self.sources, target, delta=False, stage=lambda component: self.stages.stage(component.stage)
        )
        with self.stages.stage("recall"):
            recall = self._recall(segment)
        counts = counts_of(view_of([segment]))
        rules = existing_rules(base, delta=False)
        parameters: dict[str, Any] = {}
        members: dict[str, Any] = {}
        for component in COMPONENTS:
            if (reader := segment.get(component)) is not None:
                parameters |= component.parameters(reader)
                members |= component.report(segment, rules[component.name], self.stages.seconds)
        parents = {name: parent for name, parent in live.manifest.parents.items() if name != "base"}
        describe_heir(writer, live.manifest, parents, parameters, {**counts, "rejects": 0})
        report = {
            "status": "compacted",
            "tool": f"glow {__version__}",
            "compacted_version": live.folder.name,
            "counts": {name: count for name, count in counts.items() if name != "dimensions"},
            "recall": recall,
            "lexical": None,
            **members,
        }
        return segment, report

    def _recall(self, segment: Segment) -> dict[str, Any]:
        """Recall of the new index, against the vectors that it was built from."""
        preprocessor, dense = self.live.preprocessor, segment[VECTORS]
        tower = self.live.folder / MODEL_FOLDER / QUERY_TOWER
        encoder = Encoder(tower, preprocessor.pieces.pad_id, "cpu", self.options.thread_count)
        parts = [(each.segment[VECTORS].vectors, each.rows(VECTORS.per)) for each in self.sources]
        vectors = KeptVectors(parts, dense.dimensions)
        return asdict(measure_recall(dense, vectors, segment[STORED_FIELDS], preprocessor, encoder))
