"""What a folder of Hugging Face's or sentence-transformers' says of its encoder: pooling, lengths, prefixes, tokenizer."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer, models

from glow.errors import ConfigError
from glow.text import TOKENIZER_FILE, VOCABULARY_FILE, TokenizerPieces, WordPieces

__all__ = ["Foreign", "read_foreign", "write_vocabulary"]

ForeignPooling = Literal["cls", "mean"]
MODULES_FILE, PROMPTS_FILE, LENGTH_FILE = (
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
)
_QUERY_PROMPTS, _DOCUMENT_PROMPTS = ("query", "search_query"), ("document", "passage", "search_document")
_POOLINGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}


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
    config = _read(folder / "config.json")
    if config is None:
        raise ConfigError(
            f"{folder} holds no config.json; expected a folder of Hugging Face's or sentence-transformers'"
        )
    rows = int(config.get("max_position_embeddings", 512))
    if config.get("model_type") in ("roberta", "xlm-roberta", "camembert"):
        rows -= int(config.get("pad_token_id", 1)) + 1
    longest = (_read(folder / "tokenizer_config.json") or {}).get("model_max_length") or rows
    found = Foreign(pooling or "mean", min(rows, int(longest)))
    for module in _read(folder / MODULES_FILE) or []:
        kind, place = str(module.get("type", "")).rsplit(".", 1)[-1], folder / str(module.get("path", ""))
        if kind == "Pooling":
            found = replace(found, pooling=pooling or _pooling(_read(place / "config.json") or {}))
        elif kind == "Transformer":
            lengths = _read(place / LENGTH_FILE) or {}
            found = replace(found, tokens=min(rows, int(lengths.get("max_seq_length") or found.tokens)))
        elif kind != "Normalize":
            raise ConfigError(
                f"{MODULES_FILE} asks for {kind}; expected Transformer, Pooling and Normalize alone"
            )
    prompts = (_read(folder / PROMPTS_FILE) or {}).get("prompts") or {}
    return replace(
        found,
        query_prefix=next((prompts[name] for name in _QUERY_PROMPTS if prompts.get(name)), ""),
        document_prefix=next((prompts[name] for name in _DOCUMENT_PROMPTS if prompts.get(name)), ""),
    )


def write_vocabulary(source: Path, folder: Path) -> WordPieces:
    """Writes a vocabulary as a model holds it: `vocab.txt`, and `tokenizer.json` where it is no uncased WordPiece of BERT's.

    Args:
        source: the foreign folder.
        folder: where to write.

    Raises:
        ConfigError: if there is no tokenizer that can be read.
        FormatError: if it is one that no tower can be fed by.
    """
    path = source / TOKENIZER_FILE
    if not path.is_file():
        if not (source / VOCABULARY_FILE).is_file() or not _lowers(source):
            raise ConfigError(f"{source} holds no {TOKENIZER_FILE}; save its tokenizer with `use_fast=True`")
        (folder / VOCABULARY_FILE).write_bytes((source / VOCABULARY_FILE).read_bytes())
        return WordPieces(folder / VOCABULARY_FILE)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # of the library, without a type of its own
        raise ConfigError(f"cannot read {path}: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    names = [""] * tokenizer.get_vocab_size(with_added_tokens=True)
    for piece, place in tokenizer.get_vocab(with_added_tokens=True).items():
        if place < len(names):
            names[place] = piece.replace("\n", "\\n")
    (folder / VOCABULARY_FILE).write_text("\n".join(names) + "\n", encoding="utf-8")
    if _is_berts(json.loads(path.read_bytes()), tokenizer):
        return WordPieces(folder / VOCABULARY_FILE)
    pad = _special(source, "pad_token") or next(
        (name for name in ("[PAD]", "<pad>") if tokenizer.token_to_id(name) is not None), ""
    )
    number = tokenizer.token_to_id(pad) if pad else None
    if number is None:
        raise ConfigError(f"{TOKENIZER_FILE} knows no padding; expected pad_token in tokenizer_config.json")
    tokenizer.enable_padding(pad_id=number, pad_token=pad)
    tokenizer.save(str(folder / TOKENIZER_FILE))
    return TokenizerPieces(folder / VOCABULARY_FILE)


def _pooling(config: dict[str, Any]) -> ForeignPooling:
    asked = [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
    mode = config.get("pooling_mode")  # newer versions name it
    found = _POOLINGS.get(asked[0]) if len(asked) == 1 else {"cls": "cls", "mean": "mean"}.get(str(mode))
    if found is None:
        raise ConfigError(
            f"pooling by {', '.join(asked) or mode}: expected the [CLS] token or the mean; --pooling names one"
        )
    if config.get("include_prompt") is False:
        raise ConfigError(
            "the pooling leaves the prompt out, which no tower does; give --query-prefix '' --document-prefix ''"
        )
    return "cls" if found == "cls" else "mean"


def _is_berts(spec: dict[str, Any], tokenizer: Tokenizer) -> bool:
    """Whether GLOW's own splitting and spelling are this tokenizer's: BERT's uncased WordPiece."""
    normalizer, splitter = spec.get("normalizer") or {}, spec.get("pre_tokenizer") or {}
    is_uncased = normalizer.get("type") == "BertNormalizer" and normalizer.get("lowercase") is True
    is_plain = normalizer.get("strip_accents") in (None, True) and splitter.get("type") == "BertPreTokenizer"
    return bool(
        is_uncased
        and is_plain
        and isinstance(tokenizer.model, models.WordPiece)
        and tokenizer.model.continuing_subword_prefix == "##"
        and tokenizer.encode("").tokens == ["[CLS]", "[SEP]"]
        and all(tokenizer.token_to_id(name) is not None for name in ("[PAD]", "[UNK]"))
    )


def _lowers(folder: Path) -> bool:
    return (_read(folder / "tokenizer_config.json") or {}).get("do_lower_case", True) is True


def _special(folder: Path, name: str) -> str:
    found = (_read(folder / "tokenizer_config.json") or {}).get(name)
    return str(found.get("content", "")) if isinstance(found, dict) else str(found or "")


def _read(path: Path) -> Any:
    """A file of JSON; None where there is none.

    Raises:
        ConfigError: if it cannot be read.
    """
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
