"""`glow import-model`: imports an encoder of Hugging Face or sentence-transformers as a model artifact, without torch.

Its directory is untrusted: configuration files are validated, and its tokenizer is tried in a separate process.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, numpy_helper
from pydantic import ConfigDict, Field, TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from glow.artifact import BASE_MODEL, DOCUMENT_TOWER, QUERY_TOWER, TensorNames, file_sha256
from glow.commands import command, option
from glow.encoders import (
    WEIGHTS_FILE,
    EncoderFile,
    Parameters,
    TowerConfig,
    bert_config,
    load_weights,
    tower_parameters,
)
from glow.errors import BuildError, ConfigError, FormatError
from glow.options import ForeignModel, StrictModel, load_foreign
from glow.records import Document
from glow.schema import FieldSchema, FieldSpec
from glow.text import (
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    Preprocessor,
    TermTable,
    TokenizerPieces,
    Weighting,
    WordPieces,
)
from glow_model_export.base import base_encoder, run_program
from glow_model_export.foreign_graph import tower_graph
from glow_model_export.package import (
    OutputOptions,
    Source,
    check_quality,
    export_model,
    judged_texts,
    show_report,
)
from glow_model_export.quantize import quantize_columns

ONNX_FILES = ("onnx/model.onnx", "model.onnx")
_WRAPPER = re.compile(r"^(?:\d+\.)?(?:auto_model|model)\.")
"""What libraries put before the names of an encoder's modules."""
FIELDS = "title,anchor,clicked_queries,text"
LISTS = {"anchor": 8, "clicked_queries": 5}
LONGEST_QUERY = 256
SENTENCES = (
    "how do bees find their way home",
    "Extract an archive to a directory",
    "what are the symptoms of too much vitamin D?",
    "A steam engine turns heat into motion; its boiler makes steam from water.",
    "Coffee is roasted before it is ground, brewed with hot water and served in a cup.",
)
ForeignPooling = Literal["cls", "mean"]
_POOLINGS: dict[str, ForeignPooling] = {
    **{"cls": "cls", "pooling_mode_cls_token": "cls"},
    **{"mean": "mean", "pooling_mode_mean_tokens": "mean"},
}
MAX_MODULES, MAX_PATH, MAX_NAME, MAX_PROMPT = 16, 60, 200, 2_000
Name = Annotated[str, Field(max_length=MAX_NAME)]
Prompt = Annotated[str, Field(max_length=MAX_PROMPT)] | None
MODULES_FILE, PROMPTS_FILE = "modules.json", "config_sentence_transformers.json"
LENGTH_FILE, TOKENIZER_SETTINGS = "sentence_bert_config.json", "tokenizer_config.json"
F = TypeVar("F", bound=ForeignModel)
FEWEST_TOKENS = 8
MAX_TOKENIZER_BYTES, BYTES_OF_PIECE = 1 << 20, 256
"""Size limit of a tokenizer: base bytes, and bytes per token embedding. 250,000 tokens take 70 each."""
PROBE = "how do bees find their way home? \U0010fffd 東京 naïve"
"""Some characters are in no vocabulary: a tokenizer that cannot encode them fails at import, not at a query."""
CODES, SCALES, ABOUT = ".codes", ".scales", "about"
MAX_LAYERS = 128


@dataclass(frozen=True, slots=True)
class Foreign:
    """The settings of an encoder, with the prefixes of texts that it was trained with."""

    pooling: ForeignPooling
    tokens: int  # the longest input, including [CLS] and [SEP]
    query_prefix: str = ""
    document_prefix: str = ""


class ImportModelOptions(OutputOptions):
    """Which encoder, and its input format."""

    source: Path = option(
        ...,
        "Model directory of Hugging Face or sentence-transformers, or `glow-base`, which is downloaded.",
        is_argument=True,
        metavar="PATH",
    )
    pooling: Literal["cls", "mean"] | None = option(
        None, "Pooling of token vectors; default: as in PATH, otherwise mean."
    )
    query_prefix: str | None = option(None, "Text before every query; default: as in PATH.")
    document_prefix: str | None = option(None, "Text before every document; default: as in PATH.")
    fields: str = option(FIELDS, "Document fields, in the order in which they form one text.")
    query_tokens: int | None = option(None, "Token limit of a query; default: 256, or of --queries.", ge=8)
    document_tokens: int | None = option(None, "Token limit of a document; default: as in PATH.", ge=8)
    word_weights: float = option(
        0.0, "Extra weight of rare words in the mean; 0: none, as the encoder was trained.", ge=0.0, le=2.0
    )


class ImportOptions(ImportModelOptions):
    """The encoder and the query tower to import."""

    queries: Path | None = option(
        None, "Distilled query tower of this encoder, from `glow distil --keep-queries`.", metavar="FILE"
    )


@command(ImportOptions)
def import_command(options: ImportOptions) -> None:
    """Makes a model of an encoder that others trained: BERT, RoBERTa, DistilBERT or MPNet, with any tokenizer."""
    if options.queries is not None and options.query_tokens is None:
        options = options.model_copy(update={"query_tokens": QueriesAbout.read(options.queries).tokens})
    with tempfile.TemporaryDirectory() as scratch, encoder_folder(options) as folder:
        encoder = read_encoder(folder, options, Path(scratch))
        if options.queries is not None:
            encoder = read_queries_file(options.queries, encoder)
        source = encoder.source()
        data, split = options.parity_data, options.split
        schema = source.preprocessor.schema
        texts = judged_texts(data, split, schema) if data else sentences(schema)
        quality = check_quality(source, options.quantize, data, split, *texts) if data else {}
        report = export_model(source, options.out, options.quantize, *texts, quality, replace=options.replace)
    show_report(options, report)


@dataclass(frozen=True, slots=True)
class ImportedEncoder:
    """An encoder as two towers."""

    config: TowerConfig
    towers: Mapping[str, Parameters]  # a tower's file -> its parameters by name
    preprocessor: Preprocessor
    parent: Mapping[str, Any]

    def source(self) -> Source:
        """The input of an export."""

        def graph(name: str) -> ModelProto:
            return tower_graph(self.towers[name], self.config)

        report = {"imported": self.parent["imported"]}
        return Source(self.config, self.preprocessor, report, self.parent, graph)


@contextmanager
def encoder_folder(options: ImportModelOptions) -> Iterator[Path]:
    """Yields the encoder's directory; that of `glow-base` is downloaded, and removed at the end."""
    if str(options.source) != BASE_MODEL or options.source.exists():
        with _with_weights(options.source) as folder:
            yield folder
        return
    if options.out.exists() and not options.replace:
        raise BuildError(f"{options.out} exists already; choose another name or remove it first")
    with base_encoder(options.out) as folder:
        yield folder


@contextmanager
def _with_weights(folder: Path) -> Iterator[Path]:
    """Yields the directory, or a copy with weights of its ONNX graph if it has no others."""
    graph = next((folder / name for name in ONNX_FILES if (folder / name).is_file()), None)
    if graph is None or (folder / WEIGHTS_FILE).exists():
        yield folder
        return
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / folder.resolve().name
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.onnx*", "*.bin"))
        save_file(onnx_weights(graph), str(copy / WEIGHTS_FILE))
        yield copy


def onnx_weights(path: Path) -> dict[str, NDArray[np.float32]]:
    """The weights of an encoder's graph by modules; exports number matrices, so each is named after its product's bias."""
    try:
        graph = onnx.load(path).graph
        floats = [each for each in graph.initializer if each.data_type == TensorProto.FLOAT]
        tensors = {each.name: numpy_helper.to_array(each, str(path.parent)) for each in floats}
    except Exception as error:  # of protobuf and onnx, of many kinds
        raise ConfigError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from error
    products = {
        node.output[0]: tensors[node.input[1]]
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in tensors
    }
    for node in graph.node if products else ():
        biases = [name for name in node.input if name.endswith(".bias")]
        matrices = [products[name] for name in node.input if name in products]
        if node.op_type == "Add" and biases and matrices:
            tensors[f"{biases[0].removesuffix('bias')}weight"] = matrices[0].T
    return {_WRAPPER.sub("", name): np.ascontiguousarray(value) for name, value in tensors.items()}


def read_encoder(folder: Path, options: ImportModelOptions, scratch: Path) -> ImportedEncoder:
    """Reads the encoder; its vocabulary is written to `scratch`."""
    foreign = read_foreign(folder, options.pooling)
    if options.word_weights and foreign.pooling != "mean":
        raise ConfigError(
            "--word-weights weighs the tokens of a mean; this encoder's vector is that of [CLS]"
        )
    pooling: dict[str, Any] = {"pooling": foreign.pooling}
    if options.word_weights:
        pooling = {"pooling": "weighted", "pooling_gain": options.word_weights}
    config = bert_config(folder, dropout=0.0, weight_form="plain", **pooling)
    # Before the weights are read, so that an unreadable directory costs no memory.
    pieces = write_vocabulary(folder, scratch, config.vocabulary)
    schema = _schema(options, foreign)
    weights = load_weights(folder)
    layers, fields = range(config.layers), len(schema.names)
    towers = {
        QUERY_TOWER: tower_parameters(weights, layers, schema.query_tokens, 1),
        DOCUMENT_TOWER: tower_parameters(weights, layers, schema.document_tokens, fields),
    }
    if config.pooling == "weighted":
        for parameters in towers.values():
            parameters["gain"] = np.full(1, config.exponent, np.float32)
    weighs = options.word_weights > 0
    weighting = Weighting(formula="paper" if weighs else "none", saturate_specials=weighs)
    # It has no counts; an index uses the statistics of its own documents.
    terms = TermTable.from_counts({}, 1, dict.fromkeys((*schema.names, "query"), 1.0))
    preprocessor = Preprocessor(pieces, schema, weighting, terms)
    parent: dict[str, Any] = {"imported": folder.name, "sha256": file_sha256(folder / WEIGHTS_FILE)}
    return ImportedEncoder(config, towers, preprocessor, parent)


def _schema(options: ImportModelOptions, foreign: Foreign) -> FieldSchema:
    tokens = min(options.document_tokens or foreign.tokens, foreign.tokens)
    query, document = options.query_prefix, options.document_prefix
    names = [name.strip() for name in options.fields.split(",")]
    return FieldSchema(
        name="imported",
        query_tokens=min(options.query_tokens or LONGEST_QUERY, foreign.tokens),
        document_tokens=tokens,
        fields=tuple(FieldSpec(name=name, tokens=tokens, max_values=LISTS.get(name)) for name in names),
        one_field_id=True,
        joined=True,
        query_prefix=foreign.query_prefix if query is None else query,
        document_prefix=foreign.document_prefix if document is None else document,
    )


def sentences(schema: FieldSchema) -> tuple[list[str], list[Document]]:
    """Sentences of every length, for a parity check without judged data."""
    texts = [*SENTENCES, *(" ".join(SENTENCES[: place + 1] * (place + 1)) for place in range(len(SENTENCES)))]
    body = schema.fields[-1].name
    return list(SENTENCES), [Document(str(place), {body: (text,)}) for place, text in enumerate(texts)]


class Module(ForeignModel):
    """A step of `modules.json`."""

    type: Name = ""  # a class of sentence-transformers, of which only the last part of the name counts
    path: str = Field(default="", max_length=MAX_PATH, pattern=r"^[^\x00]*$")


_MODULES = TypeAdapter(Annotated[tuple[Module, ...], Field(max_length=MAX_MODULES)])


def read_modules(path: Path) -> tuple[Module, ...]:
    """Reads `modules.json`, a short list of modules."""
    return load_foreign(path, _MODULES.validate_json)


class PoolingFile(ForeignModel):
    """`config.json` of a pooling; old versions have a `pooling_mode_…` for every kind, new ones name the kind."""

    model_config = ConfigDict(extra="allow")

    pooling_mode: Name | Annotated[tuple[Name, ...], Field(max_length=8)] | None = None
    include_prompt: bool | None = None

    def mode(self) -> ForeignPooling:
        """The pooling; towers support [CLS] or the mean."""
        extra = (self.model_extra or {}).items()
        modes = [name for name, value in extra if name.startswith("pooling_mode_") and value is True]
        name = modes[0] if len(modes) == 1 else str(self.pooling_mode)
        if name not in _POOLINGS:
            names = ", ".join(modes)[:MAX_NAME] or self.pooling_mode
            raise ConfigError(
                f"pooling by {names}: expected the [CLS] token or the mean; --pooling names one"
            )
        if self.include_prompt is False:
            raise ConfigError(
                "towers do not support a pooling without the prompt; give --query-prefix '' --document-prefix ''"
            )
        return _POOLINGS[name]


class LengthFile(ForeignModel):
    """`sentence_bert_config.json`: the longest input in tokens; None or 0: the tokenizer's."""

    max_seq_length: int | None = Field(default=None, ge=0)


class _Piece(ForeignModel):
    content: Name = ""


class TokenizerFile(ForeignModel):
    """`tokenizer_config.json`."""

    model_max_length: (
        Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None
    ) = None  # in tokens; huge if there is no limit
    pad_token: Name | _Piece | None = None
    do_lower_case: bool | None = True

    @property
    def pad(self) -> str:
        """The padding token; empty if none is named."""
        return self.pad_token.content if isinstance(self.pad_token, _Piece) else self.pad_token or ""


class _Prompts(ForeignModel):
    query: Prompt = None
    search_query: Prompt = None
    document: Prompt = None
    passage: Prompt = None
    search_document: Prompt = None


class PromptsFile(ForeignModel):
    """`config_sentence_transformers.json`: prefixes of texts that the encoder was trained with."""

    prompts: _Prompts | None = None

    @property
    def query_prefix(self) -> str:
        prompts = self.prompts or _Prompts()
        return prompts.query or prompts.search_query or ""

    @property
    def document_prefix(self) -> str:
        prompts = self.prompts or _Prompts()
        return prompts.document or prompts.passage or prompts.search_document or ""


def read_foreign(folder: Path, pooling: ForeignPooling | None = None) -> Foreign:
    """Reads a directory's configuration; a plain Hugging Face directory names no pooling, so it is `mean` unless given."""
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{folder} holds no config.json; expected a Hugging Face or sentence-transformers directory"
        )
    rows = EncoderFile.load(folder / "config.json").tokens
    longest = _optional(TokenizerFile, folder / TOKENIZER_SETTINGS).model_max_length or rows
    foreign = Foreign(pooling or "mean", min(rows, int(longest)))
    for module in read_modules(folder / MODULES_FILE) if (folder / MODULES_FILE).is_file() else ():
        kind, place = module.type.rsplit(".", 1)[-1], _inside(folder, module.path)
        if kind == "Pooling":
            foreign = replace(
                foreign, pooling=pooling or _optional(PoolingFile, place / "config.json").mode()
            )
        elif kind == "Transformer":
            lengths = _optional(LengthFile, place / LENGTH_FILE)
            foreign = replace(foreign, tokens=min(rows, lengths.max_seq_length or foreign.tokens))
        elif kind != "Normalize":
            raise ConfigError(
                f"{MODULES_FILE} requires {kind}; expected only Transformer, Pooling and Normalize"
            )
    if foreign.tokens < FEWEST_TOKENS:
        raise ConfigError(f"{folder} reads at most {foreign.tokens} tokens; expected {FEWEST_TOKENS} or more")
    prompts = _optional(PromptsFile, folder / PROMPTS_FILE)
    return replace(foreign, query_prefix=prompts.query_prefix, document_prefix=prompts.document_prefix)


def write_vocabulary(source: Path, folder: Path, rows: int) -> WordPieces:
    """Writes `vocab.txt`, and `tokenizer.json` unless it is BERT's; every token needs one of the matrix's `rows`."""
    try:
        pieces, greatest = _write_vocabulary(source, folder, rows)
        ids = [number for word in pieces.words(PROBE) for number in pieces.pieces(word)]
    except (FormatError, OSError) as error:
        raise ConfigError(f"{source}: {error}") from error
    beyond = max([greatest, pieces.cls_id, pieces.sep_id, pieces.pad_id, *ids])
    if beyond >= rows:
        raise ConfigError(
            f"the tokenizer of {source} has a token id {beyond}, the embedding matrix has {rows} rows; "
            "expected a matching tokenizer and weights"
        )
    return pieces


def _write_vocabulary(source: Path, folder: Path, rows: int) -> tuple[WordPieces, int]:
    """The vocabulary, and the largest token id."""
    path = source / TOKENIZER_FILE
    if not path.is_file():
        lines = source / VOCABULARY_FILE
        if (
            not lines.is_file()
            or _optional(TokenizerFile, source / TOKENIZER_SETTINGS).do_lower_case is not True
        ):
            raise ConfigError(f"{source} holds no {TOKENIZER_FILE}; save its tokenizer with `use_fast=True`")
        _require_small(lines, rows)
        shutil.copyfile(lines, folder / VOCABULARY_FILE)
        plain = WordPieces(folder / VOCABULARY_FILE)
        return plain, plain.size - 1
    tokenizer = _tokenizer(path, rows)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    greatest = max(vocabulary.values(), default=-1)
    names = [""] * len(vocabulary)
    for piece, place in vocabulary.items():
        if place < len(names):
            names[place] = piece.replace("\n", "\\n").replace("\r", "\\r")
    (folder / VOCABULARY_FILE).write_text("\n".join(names) + "\n", encoding="utf-8")
    if _is_berts(tokenizer):
        return WordPieces(folder / VOCABULARY_FILE), greatest
    pad = _optional(TokenizerFile, source / TOKENIZER_SETTINGS).pad or next(
        (name for name in ("[PAD]", "<pad>") if tokenizer.token_to_id(name) is not None), ""
    )
    number = tokenizer.token_to_id(pad) if pad else None
    if number is None:
        raise ConfigError(f"{TOKENIZER_FILE} lacks padding; expected pad_token in tokenizer_config.json")
    tokenizer.enable_padding(pad_id=number, pad_token=pad)
    tokenizer.save(str(folder / TOKENIZER_FILE))
    return TokenizerPieces(folder / VOCABULARY_FILE), greatest


def _tokenizer(path: Path, rows: int) -> Tokenizer:
    _require_small(path, rows)
    command = [sys.executable, "-P", str(Path(__file__).with_name("trial.py")), str(path)]
    done = run_program(command, TOKENIZERS_PARALLELISM="false", RUST_BACKTRACE="0")
    if done.returncode:
        ended = f"it was ended by signal {-done.returncode}: it takes too long, or too much memory"
        raise ConfigError(f"cannot read {path}: {done.stdout.strip() or ended}")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _require_small(path: Path, rows: int) -> None:
    most = MAX_TOKENIZER_BYTES + rows * BYTES_OF_PIECE
    if (size := path.stat().st_size) > most:
        raise ConfigError(
            f"cannot read {path}: it has {size} bytes, expected at most {most} for {rows} rows of the embedding matrix"
        )


def _is_berts(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer is BERT's uncased WordPiece, which GLOW implements itself."""
    normalizer = tokenizer.normalizer
    return bool(
        isinstance(normalizer, normalizers.BertNormalizer)
        and normalizer.lowercase
        and normalizer.strip_accents in (None, True)
        and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        and isinstance(tokenizer.model, models.WordPiece)
        and tokenizer.model.continuing_subword_prefix == "##"
        and tokenizer.encode("").tokens == ["[CLS]", "[SEP]"]
        and all(tokenizer.token_to_id(name) is not None for name in ("[PAD]", "[UNK]"))
    )


def _inside(folder: Path, path: str) -> Path:
    place = Path(os.path.realpath(folder / path))
    if not place.is_relative_to(os.path.realpath(folder)):
        raise ConfigError(f"{MODULES_FILE} names the path {path!r}; expected one in its own directory")
    return place


def _optional(kind: type[F], path: Path) -> F:
    return kind.load(path) if path.is_file() else kind()


class QueriesAbout(StrictModel):
    """Identifies the encoder of a query tower, and the layers of it that the tower started from."""

    encoder: str = Field(pattern="^[0-9a-f]{64}$")  # SHA-256 of the full encoder's weights
    layers: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1, max_length=MAX_LAYERS)
    tokens: int = Field(ge=2)  # longest query

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            with safe_open(str(path), framework="np") as opened:
                return cls.model_validate_json((opened.metadata() or {}).get(ABOUT, ""))
        except (OSError, ValueError, SafetensorError) as error:
            raise ConfigError(
                f"{path} holds no query tower; expected a file of `glow distil --keep-queries`"
            ) from error


def write_queries_file(path: Path, tower: Parameters, about: QueriesAbout) -> None:
    """Writes a query tower as one small file, which rebuilds the model together with the full encoder's weights.

    Matrices have 7 bits and a scale per output, as in an exported int8 model, so the rebuilt int8 model is identical.
    """
    tensors: dict[str, np.ndarray] = {}
    for name, array in tower.items():
        if name.endswith(".weight") and name.startswith("layers.") and array.ndim == 2:
            codes, scales = quantize_columns(np.ascontiguousarray(array.T))
            tensors |= {name + CODES: np.ascontiguousarray(codes.T), name + SCALES: scales}
        elif not name.startswith("words."):
            tensors[name] = array
    part = path.with_name(f"{path.name}.part")
    save_file(tensors, str(part), {ABOUT: json.dumps(about.model_dump(mode="json"))})
    part.replace(path)


def read_queries_file(path: Path, encoder: ImportedEncoder) -> ImportedEncoder:
    """The full encoder with the query tower of a file in place of its own."""
    about, depth = QueriesAbout.read(path), encoder.config.layers
    if about.encoder != encoder.parent["sha256"]:
        raise ConfigError(
            f"the query tower {path.name} belongs to an encoder of SHA-256 {about.encoder[:12]}…, "
            f"found {encoder.parent['sha256'][:12]}…"
        )
    if about.tokens != encoder.preprocessor.schema.query_tokens:
        raise ConfigError(
            f"{path.name} reads queries of {about.tokens} tokens; give --query-tokens {about.tokens}"
        )
    if max(about.layers) >= depth:
        raise ConfigError(f"{path.name} requires layer {max(about.layers)}, the encoder has {depth}")
    with safe_open(str(path), framework="np") as opened:
        tensors: dict[str, NDArray[Any]] = {name: opened.get_tensor(name) for name in opened.keys()}
    for name in [each for each in tensors if each.endswith(CODES)]:
        plain, codes = name.removesuffix(CODES), tensors.pop(name)
        scales = tensors.pop(plain + SCALES, np.empty(0, np.float32))
        tensors[plain] = codes * scales[:, None] if scales.shape == codes.shape[:1] else scales
    own = encoder.towers[QUERY_TOWER]
    layers = tuple(f"layers.{place}." for place in range(len(about.layers)))
    names = (name for name in own if not name.startswith("layers.") or name.startswith(layers))
    shapes = {name: own[name].shape for name in names if name != TensorNames.TABLE}
    if {name: value.shape for name, value in tensors.items()} != shapes:
        raise ConfigError(f"{path.name} does not hold {len(about.layers)} layers of this encoder's shape")
    if not all(np.isfinite(value).all() for value in tensors.values()):
        raise ConfigError(f"{path.name} holds NaN or infinity; expected trained weights")
    query = {name: value.astype(np.float32) for name, value in tensors.items()}
    query[TensorNames.TABLE] = own[TensorNames.TABLE]
    config = encoder.config.model_copy(update={"layers": len(about.layers), "document_layers": depth})
    return replace(encoder, config=config, towers={**encoder.towers, QUERY_TOWER: query})
