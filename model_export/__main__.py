"""Command line of the export: `python -m model_export --checkpoint CKPT --out models/NAME`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from glow.collection import read_documents, read_qrels, read_queries
from glow.errors import ConfigError, GlowError
from glow.records import Document
from glow.runtime import Model
from glow.schema import FieldSchema
from glow.training import load_checkpoint, read_towers
from glow_model_export.explain import add_explain as add_explain_graphs
from glow_model_export.package import Source, export_model
from glow_model_export.quality import check_quality
from glow_model_export.quantise import Quantisation

app = typer.Typer(add_completion=False, help="Export trained towers to a model artefact (ONNX).")


@app.command()
def export(
    out: Annotated[Path | None, typer.Option(help="Model folder to make.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Checkpoint to export.")] = None,
    from_model: Annotated[
        Path | None, typer.Option(help="Model to read back and export again, in place of a checkpoint.")
    ] = None,
    quantize: Annotated[Quantisation, typer.Option(help="Precision of the towers.")] = "none",
    parity_data: Annotated[
        Path | None,
        typer.Option(
            help="BEIR-style folder: parity on its texts, and nDCG@10 of shipped against float towers."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of --parity-data.")] = "dev",
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing model.")] = False,
    add_explain: Annotated[
        Path | None,
        typer.Option(help="Existing model to give explain graphs, and nothing else; its hash stays."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write the parity report.")
    ] = None,
) -> None:
    """Export both towers to ONNX, check them against torch, and package the model."""
    console = Console(stderr=True)
    try:
        if add_explain:
            report = _add_explain(add_explain, out, checkpoint, from_model)
        else:
            target, source = _target(out), _source(checkpoint, from_model)
            queries, documents = _texts(parity_data, split, source.preprocessor.schema)
            quality = check_quality(source, quantize, parity_data, split) if parity_data else {}
            report = export_model(source, target, quantize, queries, documents, quality, replace=replace)
    except GlowError as error:
        console.print(f"[red]error[/red] ({error.code}): {error}")
        raise typer.Exit(2) from error
    text = json.dumps(report, indent=2)
    if json_file:
        json_file.write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(text + "\n")


def _add_explain(model: Path, *others: Path | None) -> dict[str, Any]:
    if any(others):
        raise ConfigError("--add-explain changes a model in place: give it without the options of an export")
    return {"model": model.name, "explain_bytes": add_explain_graphs(model)}


def _target(out: Path | None) -> Path:
    if out is None:
        raise ConfigError("give --out, the model folder to make")
    return out


def _source(checkpoint: Path | None, from_model: Path | None) -> Source:
    if (checkpoint is None) == (from_model is None):
        raise ConfigError("give either --checkpoint or --from-model")
    if checkpoint:
        found = load_checkpoint(checkpoint)
        parent = {"checkpoint": checkpoint.name, "sha256": found.manifest.hash}
        return Source(found.towers, found.preprocessor, found.report, parent)
    model = Model.open(from_model or Path())
    report = json.loads((model.folder / "report.json").read_bytes())
    parent = {"model": model.manifest.name, "hash": model.hash}
    return Source(read_towers(model), model.preprocessor, report.get("training", {}), parent)


def _texts(data: Path | None, split: str, schema: FieldSchema) -> tuple[list[str], list[Document]]:
    """Queries and documents of the split, for parity."""
    if data is None:
        return [], []
    judged = list(read_qrels(data / "qrels" / f"{split}.tsv"))
    wanted_queries = {qrel.query_id for qrel in judged}
    wanted_documents = {qrel.document_id for qrel in judged}
    queries = [query.text for query in read_queries(data / "queries.jsonl") if query.id in wanted_queries]
    documents = [
        document
        for document in read_documents(data / "corpus.jsonl", schema.names)
        if document.id in wanted_documents
    ]
    return queries, documents


if __name__ == "__main__":
    app()
