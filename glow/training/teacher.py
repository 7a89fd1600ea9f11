"""Vectors of a teacher bi-encoder, which distillation draws both towers towards."""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from glow.artifact import QUERY_TOWER, file_sha256
from glow.errors import ConfigError
from glow.nn import Tower, bert_config, init_tower, load_weights
from glow.records import Document
from glow.text import WordPieces, batches_by_length
from glow.training.checkpoint import TOWERS_FILE
from glow.training.encode import EncodedCorpus, EncodeOptions, open_source

__all__ = ["is_model", "joined_text", "model_vectors", "teacher_hash", "teacher_vectors"]

MAX_TOKENS = 128
_FILES = ("model.safetensors", "config.json")
BATCH_TOKENS = 8192


def joined_text(document: Document) -> str:
    """A document as single-text encoders are given it: its fields but the url, in order, as one text."""
    parts = [text for name, values in document.fields.items() if name != "url" for text in values]
    return ". ".join(parts)


def is_model(folder: Path) -> bool:
    """Whether a teacher is a pair of towers, a model or a checkpoint, and not a BERT-layout folder."""
    return (folder / QUERY_TOWER).is_file() or (folder / TOWERS_FILE).is_file()


def model_vectors(
    queries: Sequence[str], documents: Sequence[Document], folder: Path, cache: Path | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What two towers say of a collection, with the term table that an index of these documents has.

    Args:
        queries, documents: of the collection.
        folder: model or checkpoint.
        cache: folder where vectors are kept between runs, under a hash of texts and teacher.

    Returns:
        float32 [queries, H] and [documents, H], L2-normalised.

    Raises:
        ArtifactError: if the teacher cannot be used.
    """
    source = open_source(folder, EncodeOptions(threads=torch.get_num_threads()))
    key = _key([*queries, *(repr(document.fields) for document in documents)], source.hash)
    file = cache / f"{key}.npy" if cache else None
    if file and file.exists():
        both: NDArray[np.float32] = np.load(file, allow_pickle=False)
    else:
        corpus = EncodedCorpus(source, documents)
        both = np.concatenate([corpus.encode(queries)[0], corpus.vectors])
        if file:
            _keep(file, both)
    return both[: len(queries)], both[len(queries) :]


def teacher_hash(folder: Path, pieces: WordPieces) -> str:
    """SHA-256, as hexadecimal digits, of all that decides a text's vector: of a BERT-layout folder weights, shape, vocabulary, length.

    Raises:
        ConfigError: if a file cannot be read.
    """
    if is_model(folder):
        return open_source(folder, EncodeOptions()).hash
    digest = hashlib.sha256(str(MAX_TOKENS).encode())
    for path in (*(folder / name for name in _FILES), pieces.vocabulary):
        try:
            digest.update(file_sha256(path).encode())
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()


def teacher_vectors(
    texts: Sequence[str],
    folder: Path,
    pieces: WordPieces,
    cache: Path | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> NDArray[np.float32]:
    """Encodes texts with a whole BERT-layout encoder: mean pooling, all weights 1.

    Args:
        texts: any number.
        folder: the teacher's, as `init_from_bert` reads it.
        pieces: the vocabulary, which the teacher must share.
        cache: folder where vectors are kept between runs, under a hash of texts and teacher.
        progress: called with the number of texts done since the last call.

    Returns:
        float32 [texts, H], L2-normalised.

    Raises:
        ConfigError: if the teacher's files cannot be read.
    """
    file = cache / f"{_key(texts, teacher_hash(folder, pieces))}.npy" if cache else None
    if file and file.exists():
        found: NDArray[np.float32] = np.load(file, allow_pickle=False)
        return found
    config = bert_config(folder, dropout=0.0, pooling="mean")
    words = nn.Embedding(config.vocabulary, config.hidden)
    weights = load_weights(folder)
    words.weight.data.copy_(weights["embeddings.word_embeddings.weight"])
    tower = Tower(config, words, MAX_TOKENS, 1)
    init_tower(tower, weights, range(config.layers))
    vectors = _encode(tower.eval(), [_ids(text, pieces) for text in texts], config.hidden, progress)
    if file:
        _keep(file, vectors)
    return vectors


def _keep(file: Path, vectors: NDArray[np.float32]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(f".{os.getpid()}.npy")  # other processes may encode the same
    np.save(temporary, vectors, allow_pickle=False)
    temporary.replace(file)


def _encode(
    tower: Tower, sequences: Sequence[list[int]], hidden: int, progress: Callable[[int], None]
) -> NDArray[np.float32]:
    vectors = np.empty((len(sequences), hidden), np.float32)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for rows in batches_by_length([len(sequence) for sequence in sequences], BATCH_TOKENS):
            batch = [torch.tensor(sequences[row]) for row in rows]
            ids = nn.utils.rnn.pad_sequence(batch, batch_first=True)
            mask = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in batch], batch_first=True)
            states = tower(ids, mask, torch.zeros_like(ids), torch.ones(ids.shape))
            vectors[rows] = states.float().numpy()
            progress(len(rows))
    return vectors


def _ids(text: str, pieces: WordPieces) -> list[int]:
    ids: list[int] = []
    for word in pieces.words(text):
        ids.extend(pieces.pieces(word))
        if len(ids) >= MAX_TOKENS - 2:
            break
    return [pieces.cls_id, *ids[: MAX_TOKENS - 2], pieces.sep_id]


def _key(texts: Sequence[str], teacher: str) -> str:
    digest = hashlib.sha256(teacher.encode())
    for text in texts:
        digest.update(text.encode("utf-8", "replace") + b"\0")
    return digest.hexdigest()[:24]
