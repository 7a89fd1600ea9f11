"""The table of all `glow` commands; a module is imported only when its command is used."""

from dataclasses import dataclass

__all__ = ["GROUPS", "VERBS", "Verb"]


@dataclass(frozen=True, slots=True)
class Verb:
    """One command.

    Attributes:
        name: the command's name.
        target: `module:function`; the function is a command (`glow.commands`) or a typer application.
        help: one line for `glow --help`; the function's own docstring begins with it.
    """

    name: str
    target: str
    help: str


_BUILDER, _SERVICE = "glow_index_builder.commands", "glow_service.commands"
_EVALUATION, _TRAINING = "glow.evaluation.commands", "glow.training.commands"

# fmt: off
GROUPS: dict[str, tuple[Verb, ...]] = {
    "Documents": (
        Verb("build", f"{_BUILDER}.build:build_command", "Builds a version from documents, and publishes it."),
        Verb("upsert", f"{_BUILDER}.delta:upsert_command", "Adds documents to the live version, or replaces them."),
        Verb("delete", f"{_BUILDER}.delta:delete_command", "Deletes documents of the live version by ids or a filter."),
        Verb("sync", f"{_BUILDER}.delta:sync_command", "Makes the index equal to a file or directory."),
        Verb("compact", f"{_BUILDER}.delta:compact_command", "Merges the delta into the base."),
        Verb("export-documents", f"{_BUILDER}.delta:export_command", "Writes all documents of a version as JSON Lines."),
        Verb("ingest", "glow_index_builder.ingest:ingest_command", "Applies writes that services accepted."),
        Verb("learn-clicks", "glow_index_builder.clicks:learn_command", "Learns from clicks."),
        Verb("demo", "glow_demo.command:demo_command", "Indexes this Python's documentation and serves it."),
    ),
    "Index": (
        Verb("versions", f"{_BUILDER}.versions:versions_command", "Lists the versions, and which one is live."),
        Verb("publish", f"{_BUILDER}.versions:publish_command", "Makes a version the live one."),
        Verb("rollback", f"{_BUILDER}.versions:rollback_command", "Makes the version before the live one live again."),
        Verb("verify", f"{_BUILDER}.build:verify_command", "Checks every file of a version and opens it."),
        Verb("gate", f"{_BUILDER}.versions:gate_command", "Compares a version with the live one, and may publish it."),
        Verb("tune", f"{_BUILDER}.build:tune_command", "Fits how hybrid search fuses to judged queries."),
        Verb("pin", f"{_BUILDER}.versions:pin_command", "Keeps a version from removal by gc."),
        Verb("unpin", f"{_BUILDER}.versions:unpin_command", "Lets gc remove a version again."),
        Verb("gc", f"{_BUILDER}.versions:gc_command", "Removes old versions and remains of killed commands."),
    ),
    "Serving": (
        Verb("mcp", "glow.adapters.mcp:mcp_command", "Offers a service to agents."),
        Verb("serve", f"{_SERVICE}.serve:serve_command", "Serves the live version of an index over HTTP."),
        Verb("search", f"{_SERVICE}.search:search_command", "Searches an index or a service, and prints the hits."),
        Verb("explain", f"{_SERVICE}.explain:explain_command", "Says why documents match a query."),
        Verb("key", f"{_SERVICE}.serve:key_command", "Makes a key for searching, /admin or writing."),
        Verb("doctor", f"{_SERVICE}.doctor:doctor_command", "Checks the installation and says what to do."),
    ),
    "Models": (
        Verb("train", f"{_TRAINING}:train_command", "Trains the two encoders on judged pairs."),
        Verb("pretrain", f"{_TRAINING}:pretrain_command", "Pre-trains an encoder on text alone."),
        Verb("mine", f"{_TRAINING}:mine_command", "Finds hard negatives for judged queries."),
        Verb("synthesize", f"{_TRAINING}:synthesize_command", "Makes training pairs from documents alone."),
        Verb("import-model", "glow_model_export.imported:import_command", "Makes a model of an encoder that others trained."),
        Verb("distil", "glow_model_export.distil:distil_command", "Makes a fast model of an encoder that others trained."),
        Verb("export-model", "glow_model_export.command:export_command", "Exports a checkpoint to a model (ONNX)."),
    ),
    "Evaluation": (
        Verb("evaluate", f"{_EVALUATION}:evaluate_command", "Measures one retriever over judged queries."),
        Verb("compare", f"{_EVALUATION}:compare_command", "Compares runs with a baseline, query by query."),
    ),
}
# fmt: on
VERBS: dict[str, Verb] = {verb.name: verb for group in GROUPS.values() for verb in group}
