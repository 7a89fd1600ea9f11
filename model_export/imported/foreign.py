"""What a folder of Hugging Face's or sentence-transformers' says of its encoder: pooling, lengths, prefixes, tokenizer."""

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
"""A tokenizer may have so many bytes, and so many more for each row of the word table; those of 250,000 pieces take 70 for each."""
PROBE = "how do bees find their way home? \U0010fffd 東京 naïve"
"""Some of it is in no vocabulary: a tokenizer that cannot spell it fails at import, not at a query."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """How an encoder is to be used.

    Attributes:
        pooling: `cls`, or the `mean` of all tokens.
        tokens: the longest input, [CLS] and [SEP] counted.
        query_prefix, document_prefix: what it was trained to read before a text.
    """

    pooling: ForeignPooling
    tokens: int
    query_prefix: str = ""
    document_prefix: str = ""


def read_foreign(folder: Path, pooling: ForeignPooling | None = None) -> Foreign:
    """Reads a folder's own configuration; a plain Hugging Face folder says nothing of pooling: mean, unless given.

    Args:
        folder: holds `config.json`, and sentence-transformers' files if it is one of theirs.
        pooling: overrides what it says.

    Raises:
        ConfigError: if a file cannot be read, or asks for what no tower does.
    """
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{folder} holds no config.json; expected a folder of Hugging Face's or sentence-transformers'"
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
                f"{MODULES_FILE} asks for {kind}; expected Transformer, Pooling and Normalize alone"
            )
    if found.tokens < FEWEST_TOKENS:
        raise ConfigError(f"{folder} reads at most {found.tokens} tokens; expected {FEWEST_TOKENS} or more")
    prompts = _optional(PromptsFile, folder / PROMPTS_FILE)
    return replace(found, query_prefix=prompts.query_prefix, document_prefix=prompts.document_prefix)


def write_vocabulary(source: Path, folder: Path, rows: int) -> WordPieces:
    """Writes a vocabulary as a model holds it: `vocab.txt`, and `tokenizer.json` where it is no uncased WordPiece of BERT's.

    Args:
        source: the foreign folder.
        folder: where to write.
        rows: of the encoder's word table; every piece must have one.

    Raises:
        ConfigError: if there is no tokenizer that can be read, or it is one that no tower can be fed by.
    """
    try:
        pieces, greatest = _write_vocabulary(source, folder, rows)
        ids = [number for word in pieces.words(PROBE) for number in pieces.pieces(word)]
    except (FormatError, OSError) as error:
        raise ConfigError(f"{source}: {error}") from error
    beyond = max([greatest, pieces.cls_id, pieces.sep_id, pieces.pad_id, *ids])
    if beyond >= rows:
        raise ConfigError(
            f"the tokenizer of {source} has a piece of number {beyond}, the word table has {rows} rows; "
            "expected a tokenizer and weights that belong together"
        )
    return pieces


def _write_vocabulary(source: Path, folder: Path, rows: int) -> tuple[WordPieces, int]:
    """The vocabulary, and the greatest number of a piece."""
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
        raise ConfigError(f"{TOKENIZER_FILE} knows no padding; expected pad_token in tokenizer_config.json")
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
            f"cannot read {path}: it has {size} bytes, expected at most {most} for {rows} rows of the word table"
        )


def _is_berts(tokenizer: Tokenizer) -> bool:
    """Whether GLOW's own splitting and spelling are this tokenizer's: BERT's uncased WordPiece."""
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
    """A folder in the folder.

    Raises:
        ConfigError: if it is another one.
    """
    place = Path(os.path.realpath(folder / path))
    if not place.is_relative_to(os.path.realpath(folder)):
        raise ConfigError(f"{MODULES_FILE} names the path {path!r}; expected one in its own folder")
    return place


def _optional(kind: type[F], path: Path) -> F:
    """A file, or what it says where there is none."""
    return kind.load(path) if path.is_file() else kind()


def _tokenizer_file(folder: Path) -> TokenizerFile:
    return _optional(TokenizerFile, folder / "tokenizer_config.json")
