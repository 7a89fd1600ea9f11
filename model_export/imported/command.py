"""`glow import-model`: imports a third-party encoder as a model artifact."""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER, file_sha256
from glow.collection import read_documents, read_qrels, read_queries
from glow.commands import JsonOptions, command, option, write_report
from glow.errors import ConfigError
from glow.nn import TwoTowers, bert_config, init_from_bert
from glow.records import Document
from glow.schema import FieldSchema, FieldSpec
from glow.text import Preprocessor, TermTable, Weighting
from glow_model_export.imported.files import ForeignPooling
from glow_model_export.imported.foreign import Foreign, read_foreign, write_vocabulary
from glow_model_export.imported.queries import read_queries_file
from glow_model_export.package import Source, export_model
from glow_model_export.parity import parity_texts, torch_vectors
from glow_model_export.quality import check_quality
from glow_model_export.quantize import Quantization

__all__ = ["ImportModelOptions", "import_command", "read_source", "require_finite"]

FIELDS = "title,anchor,clicked_queries,text"
LISTS = {"anchor": 8, "clicked_queries": 5}
LONGEST_QUERY = 64
SENTENCES = (
    "how do bees find their way home",
    "Extract an archive to a directory",
    "what are the symptoms of too much vitamin D?",
    "A steam engine turns heat into motion; its boiler makes steam from water.",
    "Coffee is roasted before it is ground, brewed with hot water and served in a cup.",
)


class ImportModelOptions(JsonOptions):
    """Which encoder, and its input format."""

    source: Path = option(
        ..., "Model directory of Hugging Face or sentence-transformers.", is_argument=True, metavar="PATH"
    )
    out: Path = option(..., "Model directory to write.", metavar="DIR")
    pooling: Literal["cls", "mean"] | None = option(
        None, "Pooling of token vectors; default: as in PATH, otherwise mean."
    )
    query_prefix: str | None = option(None, "Text before every query; default: as in PATH.")
    document_prefix: str | None = option(None, "Text before every document; default: as in PATH.")
    fields: str = option(FIELDS, "Document fields, in the order in which they form one text.")
    query_tokens: int = option(LONGEST_QUERY, "Token limit of a query.", ge=8)
    document_tokens: int | None = option(None, "Token limit of a document; default: as in PATH.", ge=8)
    word_weights: float = option(
        0.0, "Extra weight of rare words in the mean; 0: none, as the encoder was trained.", ge=0.0, le=2.0
    )
    quantize: Quantization = option("none", "Precision of the towers.")
    parity_data: Path | None = option(
        None,
        "BEIR directory for the parity check; also reports nDCG@10 of quantized against float towers.",
        metavar="DIR",
    )
    split: str = option("dev", "Split of --parity-data.")
    replace: bool = option(False, "Replace an existing model.")


class ImportOptions(ImportModelOptions):
    """The encoder and the query tower to import."""

    queries: Path | None = option(
        None,
        "Distilled query tower of this encoder, from `glow distil --keep-queries`.",
        metavar="FILE",
    )


@command(ImportOptions)
def import_command(options: ImportOptions) -> None:
    """Makes a model of an encoder that others trained: BERT, RoBERTa, DistilBERT or MPNet, with any tokenizer."""
    with tempfile.TemporaryDirectory() as scratch:
        source = read_source(options, Path(scratch))
        if options.queries is not None:
            towers = read_queries_file(options.queries, source.towers, source.parent["sha256"])
            source = replace(source, towers=towers.eval())
        require_finite(source)
        data, split = options.parity_data, options.split
        queries, documents = _texts(data, split, source.preprocessor.schema)
        quality = check_quality(source, options.quantize, data, split, queries, documents) if data else {}
        report = export_model(
            source, options.out, options.quantize, queries, documents, quality, replace=options.replace
        )
    write_report(options.json_file, report)
    if str(options.json_file) != "-":
        sys.stdout.write(json.dumps(report, indent=2) + "\n")


def read_source(options: ImportModelOptions, scratch: Path) -> Source:
    """Reads the encoder as two towers; its vocabulary is written to `scratch`.

    Raises:
        ConfigError: if the directory lacks a file, or its encoder type is unknown.
    """
    folder = options.source
    foreign = read_foreign(folder, options.pooling)
    if options.word_weights and foreign.pooling != "mean":
        raise ConfigError(
            "--word-weights weighs the tokens of a mean; this encoder's vector is that of [CLS]"
        )
    config = bert_config(folder, dropout=0.0, weight_form="plain", **_pooling(options, foreign.pooling))
    # Before the towers are built, so that an unreadable directory costs no memory.
    pieces = write_vocabulary(folder, scratch, config.vocabulary)
    schema = _schema(options, foreign)
    towers = TwoTowers(config, schema)
    init_from_bert(towers, folder, range(config.layers))
    weighs = options.word_weights > 0
    weighting = Weighting(formula="paper" if weighs else "none", saturate_specials=weighs)
    # It has no counts; an index uses the statistics of its own documents.
    terms = TermTable.from_counts({}, 1, dict.fromkeys((*schema.names, "query"), 1.0))
    preprocessor = Preprocessor(pieces, schema, weighting, terms)
    parent: dict[str, Any] = {"imported": folder.name, "sha256": file_sha256(folder / "model.safetensors")}
    return Source(towers.eval(), preprocessor, {"imported": folder.name}, parent)


def _pooling(options: ImportModelOptions, found: ForeignPooling) -> dict[str, Any]:
    if not options.word_weights:
        return {"pooling": found}
    return {"pooling": "weighted", "pooling_gain": options.word_weights}


def _schema(options: ImportModelOptions, foreign: Foreign) -> FieldSchema:
    tokens = min(options.document_tokens or foreign.tokens, foreign.tokens)
    prefixes = (
        foreign.query_prefix if options.query_prefix is None else options.query_prefix,
        foreign.document_prefix if options.document_prefix is None else options.document_prefix,
    )
    return FieldSchema(
        name="imported",
        query_tokens=min(options.query_tokens, foreign.tokens),
        document_tokens=tokens,
        fields=tuple(
            FieldSpec(name=name.strip(), tokens=tokens, max_values=LISTS.get(name.strip()))
            for name in options.fields.split(",")
        ),
        one_field_id=True,
        joined=True,
        query_prefix=prefixes[0],
        document_prefix=prefixes[1],
    )


def require_finite(source: Source) -> None:
    """Refuses finite weights that give vectors with NaN or infinity, before the export.

    Raises:
        ConfigError: if a vector holds NaN or infinity.
    """
    texts = parity_texts(source.preprocessor, *_texts(None, "", source.preprocessor.schema))
    pad_id = source.preprocessor.pieces.pad_id
    for name, tower in ((QUERY_TOWER, source.towers.query), (DOCUMENT_TOWER, source.towers.document)):
        if not np.isfinite(torch_vectors(tower, texts[name], pad_id)).all():
            raise ConfigError("the encoder's vectors hold NaN or infinity; expected trained weights")


def _texts(data: Path | None, split: str, schema: FieldSchema) -> tuple[list[str], list[Document]]:
    """Texts for the parity check: from judged data, otherwise sentences of every length."""
    if data is None:
        texts = [" ".join(SENTENCES[: place + 1] * (place + 1)) for place in range(len(SENTENCES))]
        body = schema.fields[-1].name
        return list(SENTENCES), [
            Document(str(place), {body: (text,)}) for place, text in enumerate([*SENTENCES, *texts])
        ]
    rows = list(read_qrels(data / "qrels" / f"{split}.tsv"))
    asked, found = {row.query_id for row in rows}, {row.document_id for row in rows}
    queries = [each.text for each in read_queries(data / "queries.jsonl") if each.id in asked]
    return queries, [each for each in read_documents(data / "corpus.jsonl", schema.names) if each.id in found]
