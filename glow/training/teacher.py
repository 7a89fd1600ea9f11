"""Teachers: encode texts to the target vectors of distillation."""

import hashlib
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from glow.artifact import QUERY_TOWER, file_sha256
from glow.errors import ConfigError
from glow.negatives import documents_hash
from glow.nn import Tower, bert_config, init_tower, load_weights
from glow.records import Document
from glow.text import WordPieces, batches_by_length
from glow.training.encode import EncodedCorpus, EncodeOptions, open_source
from glow.training.run import kind_of, parts_hash
from glow.training.teacher_vectors import VECTORS_HEADER, TeacherVectors, document_key, query_key

__all__ = ["Teacher", "joined_text", "make_vectors", "open_teacher", "teacher_vectors"]

MAX_TOKENS = 128
BATCH_TOKENS = 8192
SENTENCE_TRANSFORMERS = "modules.json"
_FILES = ("model.safetensors", "config.json")
Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Teacher:
    """A teacher's encoding functions.

    Attributes:
        hash: hash of all inputs that decide a vector, besides its text.
        queries, documents: encode into float32 [n, W], L2-normalized.
    """

    hash: str
    queries: Callable[[Sequence[str]], Vectors]
    documents: Callable[[Sequence[Document]], Vectors]


def joined_text(document: Document) -> str:
    """A document as one text for single-text encoders: its fields in order, except the URL."""
    parts = [text for name, values in document.fields.items() if name != "url" for text in values]
    return ". ".join(parts)


def open_teacher(where: str | Path, pieces: WordPieces | None, corpus: Sequence[Document]) -> Teacher:
    """Opens a teacher.

    Args:
        where: a model or a checkpoint of towers; a BERT directory (mean pooling, all weights 1); a sentence-transformers
            directory; or MODULE:FUNCTION, which returns float32 [n, W] for n texts.
        pieces: the vocabulary of a run. A sentence-transformers directory with this vocabulary and only mean pooling is
            read as a BERT directory, without the library. None: no run.
        corpus: its term statistics decide the word weights of a model.

    Raises:
        ConfigError: if there is no such teacher, or a file cannot be read.
        ArtifactError: if a model or checkpoint cannot be used.
    """
    module, _, function = str(where).rpartition(":")
    if module and not Path(where).exists():
        return _of_texts(_imported(module, function), parts_hash(["callable", str(where)]))
    folder = Path(where)
    if (folder / QUERY_TOWER).is_file() or kind_of(folder) == "towers":
        source = open_source(folder, EncodeOptions(threads=torch.get_num_threads()))
        encoded = EncodedCorpus(source, corpus[:0], statistics_of=corpus)
        return Teacher(
            parts_hash([source.hash, documents_hash(corpus)]),
            lambda texts: encoded.encode(texts)[0],
            encoded.encode_documents,
        )
    if (folder / SENTENCE_TRANSFORMERS).is_file() and not (pieces and _is_plain(folder, pieces)):
        return _of_texts(_sentence_transformer(folder), _folder_hash(folder))
    if pieces is None and not (folder / "vocab.txt").is_file():
        raise ConfigError(
            f"{where} is not a teacher: expected a model, checkpoint, sentence-transformers or BERT directory, or MODULE:FUNCTION"
        )
    pieces = pieces or WordPieces(folder / "vocab.txt")
    return _of_texts(
        _bert(folder, pieces), _hash_of([*(folder / name for name in _FILES), pieces.vocabulary])
    )


def teacher_vectors(
    where: str | Path,
    pieces: WordPieces | None,
    queries: Sequence[str],
    documents: Sequence[Document],
    corpus: Sequence[Document],
    cache: Path,
) -> TeacherVectors:
    """A teacher's vectors of a collection: those of `glow teach`, or cached ones, which are computed if missing.

    Args:
        where: as for `open_teacher`, or a directory of `glow teach`.
        pieces: as for `open_teacher`.
        queries, documents: the texts to encode; empty for a side that is not needed.
        corpus: as for `open_teacher`.
        cache: directory of cached vectors, with one subdirectory per teacher.
    """
    if (Path(where) / VECTORS_HEADER).is_file():
        return TeacherVectors(Path(where))
    teacher = open_teacher(where, pieces, corpus)
    return make_vectors(teacher, queries, documents, cache / teacher.hash[:24])


def make_vectors(
    teacher: Teacher,
    queries: Sequence[str],
    documents: Sequence[Document],
    folder: Path,
    advance: Callable[[int], None] = lambda done: None,
) -> TeacherVectors:
    """Computes a directory's missing vectors; calls `advance` with the number computed or found since its last call."""

    def encode(numbers: Sequence[int]) -> Vectors:
        split = len(queries)
        asked = [queries[number] for number in numbers if number < split]
        read = [documents[number - split] for number in numbers if number >= split]
        blocks = [teacher.queries(asked)] if asked else []
        return np.concatenate([*blocks, teacher.documents(read)] if read else blocks)

    keys = [*map(query_key, queries), *map(document_key, documents)]
    return TeacherVectors.make(folder, teacher.hash, keys, encode, advance)


def _of_texts(encode: Callable[[Sequence[str]], Vectors], hash_: str) -> Teacher:
    return Teacher(hash_, encode, lambda documents: encode([joined_text(each) for each in documents]))


def _imported(module: str, function: str) -> Callable[[Sequence[str]], Vectors]:
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"there is no teacher {module}:{function} ({error}); give a directory, or a function that Python can import"
        ) from error

    def encode(texts: Sequence[str]) -> Vectors:
        made = np.asarray(found(list(texts)), np.float32)
        with np.errstate(invalid="ignore"):  # `make` refuses values that are not finite
            unit: Vectors = made / np.maximum(np.linalg.norm(made, axis=-1, keepdims=True), 1e-12)
        return unit

    return encode


def _sentence_transformer(folder: Path) -> Callable[[Sequence[str]], Vectors]:
    try:
        library: Any = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise ConfigError(
            f"{folder} is a sentence-transformers directory, which needs the library: pip install sentence-transformers"
        ) from error
    model = library.SentenceTransformer(str(folder), local_files_only=True)
    return lambda texts: np.asarray(
        model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False), np.float32
    )


def _bert(folder: Path, pieces: WordPieces) -> Callable[[Sequence[str]], Vectors]:
    """Opens a complete BERT encoder."""
    config = bert_config(folder, dropout=0.0, pooling="mean")
    words = nn.Embedding(config.vocabulary, config.hidden)
    weights = load_weights(folder)
    words.weight.data.copy_(weights["embeddings.word_embeddings.weight"])
    tower = Tower(config, words, MAX_TOKENS, 1)
    init_tower(tower, weights, range(config.layers))
    tower.eval()

    def encode(texts: Sequence[str]) -> Vectors:
        sequences = [_ids(text, pieces) for text in texts]
        vectors = np.empty((len(sequences), config.hidden), np.float32)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            for rows in batches_by_length([len(sequence) for sequence in sequences], BATCH_TOKENS):
                batch = [torch.tensor(sequences[row]) for row in rows]
                ids = nn.utils.rnn.pad_sequence(batch, batch_first=True)
                mask = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in batch], batch_first=True)
                states = tower(ids, mask, torch.zeros_like(ids), torch.ones(ids.shape))
                vectors[rows] = states.float().numpy()
        return vectors

    return encode


def _ids(text: str, pieces: WordPieces) -> list[int]:
    ids: list[int] = []
    for word in pieces.words(text):
        ids.extend(pieces.pieces(word))
        if len(ids) >= MAX_TOKENS - 2:
            break
    return [pieces.cls_id, *ids[: MAX_TOKENS - 2], pieces.sep_id]


def _is_plain(folder: Path, pieces: WordPieces) -> bool:
    """Whether a sentence-transformers directory is BERT with the run's vocabulary and mean pooling."""
    vocabulary = folder / "vocab.txt"
    if not vocabulary.is_file() or vocabulary.read_bytes() != pieces.vocabulary.read_bytes():
        return False
    try:
        modules = json.loads((folder / SENTENCE_TRANSFORMERS).read_bytes())
        kinds = {str(each["type"]).rsplit(".", 1)[-1]: str(each["path"]) for each in modules}
        pooling = json.loads((folder / kinds["Pooling"] / "config.json").read_bytes())
    except (OSError, ValueError, TypeError, KeyError):
        return False
    modes = [name for name, value in pooling.items() if name.startswith("pooling_mode_") and value is True]
    is_mean = modes == ["pooling_mode_mean_tokens"] or pooling.get("pooling_mode") == "mean"
    return is_mean and kinds.keys() <= {"Transformer", "Pooling", "Normalize"}


def _folder_hash(folder: Path) -> str:
    return _hash_of(sorted(path for path in folder.rglob("*") if path.is_file()))


def _hash_of(files: Sequence[Path]) -> str:
    digest = hashlib.sha256(str(MAX_TOKENS).encode())
    for path in files:
        try:
            digest.update(file_sha256(path).encode())
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()
