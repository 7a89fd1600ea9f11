"""Reads an encoder's pooling, lengths, prefixes and tokenizer from a Hugging Face or sentence-transformers directory."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from glow.errors import ConfigError, FormatError
from glow.nn import EncoderFile
from glow.options import ForeignModel
from glow.text import TOKENIZER_FILE, VOCABULARY_FILE, TokenizerPieces, WordPieces
from glow_model_export.imported.files import (
    ForeignPooling,
    LengthFile,
    PoolingFile,
    PromptsFile,
    TokenizerFile,
    read_modules,
)

__all__ = ["Foreign", "read_foreign", "write_vocabulary"]

MODULES_FILE, PROMPTS_FILE, LENGTH_FILE = (
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
)
F = TypeVar("F", bound=ForeignModel)
FEWEST_TOKENS = 8
MAX_TOKENIZER_BYTES, BYTES_OF_PIECE = 1 << 20, 256
"""Size limit of a tokenizer: base bytes, and bytes per token embedding. 250,000 tokens take 70 each."""
PROBE = "how do bees find their way home? \U0010fffd 東京 naïve"
"""Some characters are in no vocabulary: a tokenizer that cannot encode them fails at import, not at a query."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """The settings of an encoder.

    Attributes:
        pooling: `cls`, or the `mean` of all tokens.
        tokens: the longest input, including [CLS] and [SEP].
        query_prefix, document_prefix: prefixes of texts that it was trained with.
    """

    pooling: ForeignPooling
    tokens: int
    query_prefix: str = ""
    document_prefix: str = ""


def read_foreign(folder: Path, pooling: ForeignPooling | None = None) -> Foreign:
    """Reads a directory's configuration; a plain Hugging Face directory names no pooling, so it is `mean` unless given.

    Args:
        folder: holds `config.json`, and perhaps sentence-transformers' files.
        pooling: overrides the configured one.

    Raises:
        ConfigError: if a file cannot be read, or requires an unsupported feature.
    """
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{folder} holds no config.json; expected a Hugging Face or sentence-transformers directory"
        )
    rows = EncoderFile.load(folder / "config.json").tokens
    longest = _tokenizer_file(folder).model_max_length or rows
    found = Foreign(pooling or "mean", min(rows, int(longest)))
    for module in read_modules(folder / MODULES_FILE) if (folder / MODULES_FILE).is_file() else ():
        kind, place = module.kind, _inside(folder, module.path)
        if kind == "Pooling":
            found = replace(found, pooling=pooling or _optional(PoolingFile, place / "config.json").mode())
        elif kind == "Transformer":
            lengths = _optional(LengthFile, place / LENGTH_FILE)
            found = replace(found, tokens=min(rows, lengths.max_seq_length or found.tokens))
        elif kind != "Normalize":
            raise ConfigError(
                f"{MODULES_FILE} requires {kind}; expected only Transformer, Pooling and Normalize"
            )
    if found.tokens < FEWEST_TOKENS:
        raise ConfigError(f"{folder} reads at most {found.tokens} tokens; expected {FEWEST_TOKENS} or more")
    prompts = _optional(PromptsFile, folder / PROMPTS_FILE)
    return replace(found, query_prefix=prompts.query_prefix, document_prefix=prompts.document_prefix)


def write_vocabulary(source: Path, folder: Path, rows: int) -> WordPieces:
    """Writes a model's vocabulary: `vocab.txt`, and `tokenizer.json` unless it is BERT's uncased WordPiece.

    Args:
        source: the third-party directory.
        folder: directory to write to.
        rows: rows of the encoder's token embedding matrix; every token needs one.

    Raises:
        ConfigError: if there is no readable tokenizer, or towers do not support it.
    """
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
        if not lines.is_file() or _tokenizer_file(source).do_lower_case is not True:
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
    pad = _tokenizer_file(source).pad or next(
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
    alone = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0"}
    done = subprocess.run(  # noqa: S603 - this Python, and a program of ours
        command,
        env=alone,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
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
    """A subdirectory of the directory.

    Raises:
        ConfigError: if it is outside of the directory.
    """
    place = Path(os.path.realpath(folder / path))
    if not place.is_relative_to(os.path.realpath(folder)):
        raise ConfigError(f"{MODULES_FILE} names the path {path!r}; expected one in its own directory")
    return place


def _optional(kind: type[F], path: Path) -> F:
    """Reads a file, or the defaults if it is missing."""
    return kind.load(path) if path.is_file() else kind()


def _tokenizer_file(folder: Path) -> TokenizerFile:
    return _optional(TokenizerFile, folder / "tokenizer_config.json")
