"""Teachers, and their vectors of texts: float16 on disk, memory-mapped, computed once.

A directory has `vectors.f16` (rows), `keys.bin` (16 bytes each), and `teacher.json` with the teacher, the number of rows
and hashes of both files. A stopped call resumes after the last row that both files hold.
"""

import hashlib
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from glow.artifact import QUERY_TOWER, file_sha256
from glow.errors import ConfigError, IntegrityError, MismatchError
from glow.negatives import documents_hash
from glow.nn import Tower, bert_config, init_tower, load_weights
from glow.records import Document
from glow.text import WordPieces, batches_by_length
from glow.training.checkpoint import kind_of
from glow.training.data import one_at_a_time
from glow.training.encode import EncodedCorpus, EncodeOptions, open_source
from glow.training.run import parts_hash

VECTORS_HEADER = "teacher.json"
VECTORS, KEYS = "vectors.f16", "keys.bin"
KEY_BYTES, CHUNK = 16, 2048
MAX_TOKENS = 128
BATCH_TOKENS = 8192
SENTENCE_TRANSFORMERS = "modules.json"
_FILES = ("model.safetensors", "config.json")
Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[int]], NDArray[np.float32]]
"""Numbers of missing texts -> float32 [n, W]."""


def query_key(text: str) -> bytes:
    """The key of a query's text."""
    return _key("query", text)


def document_key(document: Document) -> bytes:
    """The key of a document's fields."""
    return _key("document", repr(document.fields))


def _key(kind: str, text: str) -> bytes:
    return hashlib.blake2b(f"{kind}\0{text}".encode("utf-8", "replace"), digest_size=KEY_BYTES).digest()


class Aims:
    """A teacher's vectors of some texts; `aims[rows]` is float32 [n, W]."""

    def __init__(self, vectors: NDArray[np.float16], rows: NDArray[np.int64]) -> None:
        self._vectors, self._rows = vectors, rows
        self.width = int(vectors.shape[1])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, numbers: Any) -> NDArray[np.float32]:
        """Vectors of texts, by numbers or a slice."""
        found: NDArray[np.float32] = self._vectors[self._rows[numbers]].astype(np.float32)
        return found


class TeacherVectors:
    """Finished vectors of a teacher: `teacher` is its hash, `width` the numbers of a vector."""

    def __init__(self, folder: Path) -> None:
        try:
            header = json.loads((folder / VECTORS_HEADER).read_bytes())
            for name in (VECTORS, KEYS):
                if _sha256(folder / name) != header["files"][name]:
                    raise IntegrityError(f"{folder / name} is damaged; remove {folder}")
            self.folder, self.teacher, self.width = folder, str(header["teacher"]), int(header["width"])
            shape = (int(header["count"]), self.width)
            self._vectors: NDArray[np.float16] = np.memmap(folder / VECTORS, np.float16, "r", shape=shape)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise IntegrityError(
                f"{folder} holds no finished vectors of a teacher ({error}); remove it"
            ) from error
        keys = np.fromfile(folder / KEYS, f"V{KEY_BYTES}")
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def __len__(self) -> int:
        return len(self._keys)

    def aims(self, keys: Sequence[bytes], what: str) -> Aims:
        """The vectors of texts by their keys."""
        wanted = np.array(keys, f"V{KEY_BYTES}")
        places = np.minimum(np.searchsorted(self._keys, wanted), max(len(self._keys) - 1, 0))
        missing = np.flatnonzero(self._keys[places] != wanted) if len(self._keys) else np.arange(len(wanted))
        if len(missing):
            raise MismatchError(
                f"{self.folder} lacks {len(missing):,} of {len(wanted):,} vectors of {what} (the first: number {missing[0]})"
            )
        return Aims(self._vectors, self._order[places])

    @classmethod
    def make(
        cls,
        folder: Path,
        teacher: str,
        keys: Sequence[bytes],
        encode: Encode,
    ) -> Self:
        """Computes the vectors of missing texts, which `encode` gets by their numbers in `keys`.

        `teacher` is the hash of all that decides a vector besides its text.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(folder / "making.lock"):
            known, width, is_finished = _known(folder, teacher)
            missing = [number for number, key in enumerate(keys) if key not in known]
            missing = list({keys[number]: number for number in reversed(missing)}.values())[::-1]
            if not missing and is_finished:
                return cls(folder)
            with (folder / VECTORS).open("ab") as vectors, (folder / KEYS).open("ab") as names:
                for start in range(0, len(missing), CHUNK):
                    numbers = missing[start : start + CHUNK]
                    made = _checked(encode(numbers), len(numbers), width)
                    width = made.shape[1]
                    _write_header(folder, teacher, width, None)
                    vectors.write(made.tobytes())
                    vectors.flush()
                    names.write(b"".join(keys[number] for number in numbers))
                    names.flush()
            _write_header(folder, teacher, width, (folder / KEYS).stat().st_size // KEY_BYTES)
            return cls(folder)


def _known(folder: Path, teacher: str) -> tuple[set[bytes], int, bool]:
    """Keys of complete rows, their width, and whether all are there; truncates incomplete rows of a stopped call."""
    header: dict[str, Any] = {"width": 0, "teacher": teacher}
    try:
        if (folder / VECTORS_HEADER).is_file():
            header = json.loads((folder / VECTORS_HEADER).read_bytes())
        width, is_other, is_finished = int(header["width"]), header["teacher"] != teacher, "files" in header
    except (ValueError, TypeError, KeyError) as error:
        raise IntegrityError(f"{folder / VECTORS_HEADER} is damaged ({error}); remove {folder}") from error
    if is_other:
        raise MismatchError(
            f"{folder} holds vectors of another teacher, or of the same model over another corpus; remove it"
        )
    if is_finished:
        TeacherVectors(folder)  # otherwise new hashes would hide the damage
    for name in (VECTORS, KEYS):
        (folder / name).touch()
    rows = (folder / VECTORS).stat().st_size // (2 * width) if width else 0
    rows = min(rows, (folder / KEYS).stat().st_size // KEY_BYTES)
    for name, size in ((VECTORS, 2 * width), (KEYS, KEY_BYTES)):
        with (folder / name).open("r+b") as file:
            file.truncate(rows * size)
    data = (folder / KEYS).read_bytes()
    return {data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES)}, width, is_finished


def _checked(made: Any, count: int, width: int) -> NDArray[np.float16]:
    """Checks vectors and converts them for storage."""
    vectors = np.asarray(made, np.float32)
    expected = f"({count}, {width or 'numbers'})"
    if vectors.ndim != 2 or len(vectors) != count or vectors.shape[1] != (width or vectors.shape[1]):
        raise ConfigError(
            f"the teacher gave an array of shape {vectors.shape} for {count} texts, expected {expected}"
        )
    if not np.isfinite(vectors).all():
        raise ConfigError("the teacher gave a vector with NaN or infinity, expected finite numbers")
    return vectors.astype(np.float16)


@lru_cache(maxsize=64)
def _sha256_of(path: Path, size: int, changed: int) -> str:
    return file_sha256(path)


def _sha256(path: Path) -> str:
    """Hash of a file, cached by size and modification time: a run opens a directory once per collection."""
    stat = path.stat()
    return _sha256_of(path, stat.st_size, stat.st_mtime_ns)


def _write_header(folder: Path, teacher: str, width: int, count: int | None) -> None:
    """Writes the teacher's hash and, once all vectors exist (`count`), their number and the files' hashes."""
    header: dict[str, Any] = {"format": 1, "teacher": teacher, "width": width}
    if count is not None:
        header |= {"count": count, "files": {name: _sha256(folder / name) for name in (VECTORS, KEYS)}}
    temporary = folder / f".{VECTORS_HEADER}"
    temporary.write_text(json.dumps(header) + "\n", encoding="utf-8")
    temporary.replace(folder / VECTORS_HEADER)


@dataclass(frozen=True, slots=True, eq=False)
class Teacher:
    """A teacher's encoding functions."""

    hash: str  # of all inputs that decide a vector, besides its text
    # Both encode into float32 [n, W], L2-normalized.
    queries: Callable[[Sequence[str]], Vectors]
    documents: Callable[[Sequence[Document]], Vectors]


def joined_text(document: Document) -> str:
    """A document as one text for single-text encoders: its fields in order, except the URL."""
    parts = [text for name, values in document.fields.items() if name != "url" for text in values]
    return ". ".join(parts)


def open_teacher(folder: Path, pieces: WordPieces | None, corpus: Sequence[Document]) -> Teacher:
    """Opens a model, a checkpoint of towers, a BERT directory (mean pooling, all weights 1), or a sentence-transformers directory.

    A sentence-transformers directory with the vocabulary `pieces` of a run and only mean pooling is read as a BERT
    directory, without the library. Term statistics of `corpus` decide the word weights of a model.
    """
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
            f"{folder} is not a teacher: expected a model, checkpoint, sentence-transformers or BERT directory"
        )
    pieces = pieces or WordPieces(folder / "vocab.txt")
    return _of_texts(
        _bert(folder, pieces), _hash_of([*(folder / name for name in _FILES), pieces.vocabulary])
    )


def teacher_vectors(
    folder: Path,
    pieces: WordPieces | None,
    queries: Sequence[str],
    documents: Sequence[Document],
    corpus: Sequence[Document],
    cache: Path,
) -> TeacherVectors:
    """A teacher's vectors of a collection, from a cache in which missing ones are computed."""
    teacher = open_teacher(folder, pieces, corpus)
    keys = [*map(query_key, queries), *map(document_key, documents)]

    def encode(numbers: Sequence[int]) -> Vectors:
        split = len(queries)
        texts = [queries[number] for number in numbers if number < split]
        read = [documents[number - split] for number in numbers if number >= split]
        blocks = [teacher.queries(texts)] if texts else []
        return np.concatenate([*blocks, teacher.documents(read)] if read else blocks)

    return TeacherVectors.make(cache / teacher.hash[:24], teacher.hash, keys, encode)


def _of_texts(encode: Callable[[Sequence[str]], Vectors], hash_: str) -> Teacher:
    return Teacher(hash_, encode, lambda documents: encode([joined_text(each) for each in documents]))


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
    words.weight.data.copy_(torch.from_numpy(weights["embeddings.word_embeddings.weight"]))
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
