"""Teachers, their vectors of texts (float16 on disk, memory-mapped, computed once), and the recipe that distills a query tower.

A directory has `vectors.f16` (rows), `keys.bin` (16 bytes each), and `teacher.json` with the teacher, the number of rows
and hashes of both files. A stopped call resumes after the last row that both files hold.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from glow.artifact import QUERY_TOWER, file_sha256
from glow.errors import ConfigError, IntegrityError, MismatchError
from glow.negatives import documents_hash
from glow.nn import Tower, TwoTowers, bert_config, init_tower, load_weights
from glow.records import Document
from glow.text import VOCABULARY_FILE, Preprocessor, WordPieces, batches_by_length
from glow.training.checkpoint import kind_of
from glow.training.data import Epochs, one_at_a_time
from glow.training.encode import EncodedCorpus, EncodeOptions, Encoding, encode, open_source, vectors
from glow.training.run import (
    Loss,
    Moment,
    OptimizerOptions,
    Progress,
    Recipe,
    RunConfig,
    WatchConfig,
    linear,
    parameters_hash,
    parts_hash,
)

VECTORS_HEADER = "teacher.json"
VECTORS, KEYS = "vectors.f16", "keys.bin"
KEY_BYTES, CHUNK = 16, 2048
MAX_TOKENS = 128
BATCH_TOKENS = 8192
POOLING = "1_Pooling/config.json"
"""Pooling of a sentence-transformers directory."""
Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[int]], NDArray[np.float32]]
"""Numbers of missing texts -> float32 [n, W]."""


def query_key(text: str) -> bytes:
    """The key of a query's text."""
    return hashlib.blake2b(f"query\0{text}".encode("utf-8", "replace"), digest_size=KEY_BYTES).digest()


def document_key(document: Document) -> bytes:
    """The key of a document's fields."""
    text = f"document\0{document.fields!r}"
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=KEY_BYTES).digest()


class Aims:
    """A teacher's vectors of some texts; `aims[rows]` is float32 [n, W]."""

    def __init__(self, vectors: NDArray[np.float16], rows: NDArray[np.int64]) -> None:
        self._vectors, self._rows = vectors, rows
        self.width = int(vectors.shape[1])

    def __getitem__(self, numbers: Any) -> NDArray[np.float32]:
        """Vectors of texts, by numbers or a slice."""
        return self._vectors[self._rows[numbers]].astype(np.float32)  # type: ignore[no-any-return]


class TeacherVectors:
    """Finished vectors of a teacher: `teacher` is its hash, `width` the numbers of a vector."""

    def __init__(self, folder: Path) -> None:
        try:
            header = json.loads((folder / VECTORS_HEADER).read_bytes())
            for name in (VECTORS, KEYS):
                if file_sha256(folder / name) != header["files"][name]:
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
    def make(cls, folder: Path, teacher: str, keys: Sequence[bytes], encode: Encode) -> Self:
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
                    made = encode(numbers).astype(np.float16)
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


def _write_header(folder: Path, teacher: str, width: int, count: int | None) -> None:
    """Writes the teacher's hash and, once all vectors exist (`count`), their number and the files' hashes."""
    header: dict[str, Any] = {"format": 1, "teacher": teacher, "width": width}
    if count is not None:
        header |= {"count": count, "files": {name: file_sha256(folder / name) for name in (VECTORS, KEYS)}}
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


def open_teacher(folder: Path, corpus: Sequence[Document]) -> Teacher:
    """Opens a model, a checkpoint of towers, or a BERT directory (mean pooling, all weights 1).

    Term statistics of `corpus` decide the word weights of a model.
    """
    if (folder / QUERY_TOWER).is_file() or kind_of(folder) == "towers":
        source = open_source(folder, EncodeOptions(threads=torch.get_num_threads()))
        encoded = EncodedCorpus(source, corpus[:0], statistics_of=corpus)
        return Teacher(
            parts_hash([source.hash, documents_hash(corpus)]),
            lambda texts: encoded.encode(texts)[0],
            encoded.encode_documents,
        )
    if not (folder / VOCABULARY_FILE).is_file():
        raise ConfigError(f"{folder} is not a teacher: expected a model, checkpoint or BERT directory")
    if (folder / POOLING).is_file():
        pooling = json.loads((folder / POOLING).read_bytes())
        if not (pooling.get("pooling_mode_mean_tokens") or pooling.get("pooling_mode") == "mean"):
            raise ConfigError(
                f"{folder} does not take its tokens' mean; make a model of it by glow import-model"
            )
    encode = _bert(folder, WordPieces(folder / VOCABULARY_FILE))
    return Teacher(
        _hash_of(folder), encode, lambda documents: encode([joined_text(each) for each in documents])
    )


def teacher_vectors(
    folder: Path,
    queries: Sequence[str],
    documents: Sequence[Document],
    corpus: Sequence[Document],
    cache: Path,
) -> TeacherVectors:
    """A teacher's vectors of a collection, from a cache in which missing ones are computed."""
    teacher = open_teacher(folder, corpus)
    keys = [*map(query_key, queries), *map(document_key, documents)]

    def encode(numbers: Sequence[int]) -> Vectors:
        split = len(queries)
        texts = [queries[number] for number in numbers if number < split]
        read = [documents[number - split] for number in numbers if number >= split]
        blocks = [teacher.queries(texts)] if texts else []
        return np.concatenate([*blocks, teacher.documents(read)] if read else blocks)

    return TeacherVectors.make(cache / teacher.hash[:24], teacher.hash, keys, encode)


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


def _hash_of(folder: Path) -> str:
    try:
        files = [file_sha256(folder / name) for name in ("model.safetensors", "config.json", VOCABULARY_FILE)]
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error
    return parts_hash([str(MAX_TOKENS), *files])


EPOCHS, PULL, SHOWN_STEPS = 8, 10.0, 50
WATCH = WatchConfig(steps=100, patience=4)
BATCH, OPTIMIZER = 128, OptimizerOptions(learning_rate=5e-4)


@dataclass(frozen=True, slots=True, eq=False)
class QueryTexts:
    """Training texts and held-out texts, with the full encoder's vectors of them."""

    # texts, held: texts
    texts: Sequence[str]
    held: Sequence[str]
    # aims, held_aims: their vectors, float32 [n, H]
    aims: Aims
    held_aims: Aims
    hash: str  # hash of the encoder

    @classmethod
    def make(
        cls, folder: Path, whole: Tower, preprocessor: Preprocessor, texts: Sequence[str], held: Sequence[str]
    ) -> Self:
        """Encodes the texts whose vectors the directory lacks; refuses a directory of another encoder."""
        every = [*texts, *held]

        def encode(numbers: Sequence[int]) -> NDArray[np.float32]:
            sequences = [preprocessor.query(every[number]) for number in numbers]
            return vectors(whole, sequences, preprocessor.pieces.pad_id)

        keys, count = [query_key(text) for text in every], len(texts)
        made = TeacherVectors.make(folder, parameters_hash(whole), keys, encode)
        aims, held_aims = (made.aims(part, "texts") for part in (keys[:count], keys[count:]))
        return cls(texts, held, aims, held_aims, made.teacher)


class TextBatches:
    """Batches of text numbers in a random order for each epoch; implements `glow.training.run.Data`."""

    def __init__(self, count: int, seed: int, epochs: int, batch_size: int) -> None:
        size = min(batch_size, count)

        def plan(random: np.random.Generator) -> list[tuple[int, NDArray[np.int64]]]:
            order = random.permutation(count)
            return [(0, order[start : start + size]) for start in range(0, count - size + 1, size)]

        self._epochs = Epochs(count // size, epochs, 0, seed, plan)
        self.steps = self._epochs.steps

    def batch(self, step: int, process: int, processes: int) -> NDArray[np.int64]:
        """Int64 [n]."""
        return self._epochs.turn(step, process, processes).rows


class QueryLoss(nn.Module):
    """The loss between a query tower's vectors and the full encoder's."""

    def __init__(self, tower: Tower, preprocessor: Preprocessor, made: QueryTexts) -> None:
        super().__init__()
        self.tower = tower
        self._preprocessor, self._made = preprocessor, made

    def forward(self, rows: NDArray[np.int64], moment: Moment) -> Loss:
        """Mean of 1 - cosine over a batch."""
        encoding = Encoding(self._preprocessor.pieces.pad_id, moment.device, moment.autocast)
        found = encode(
            encoding, self.tower, [self._preprocessor.query(self._made.texts[row]) for row in rows]
        )
        wanted = torch.from_numpy(self._made.aims[rows]).to(moment.device)
        distance = (1.0 - nn.functional.cosine_similarity(found, wanted)).mean()
        return Loss(PULL * distance, len(rows), {"cosine": 1.0 - float(distance.detach())})

    def measure(self, moment: Moment) -> dict[str, float]:
        """Mean cosine of held-out texts."""
        tokens = [self._preprocessor.query(text) for text in self._made.held]
        found = vectors(self.tower, tokens, self._preprocessor.pieces.pad_id, "fp32", str(moment.device))
        wanted = self._made.held_aims[:]
        lengths = np.maximum(np.linalg.norm(wanted, axis=1), 1e-12)
        return {"held-out cosine": float(((found * wanted).sum(1) / lengths).mean())}


def query_recipe(
    towers: TwoTowers,
    preprocessor: Preprocessor,
    made: QueryTexts,
    seed: int,
    hours: float = 0.0,
    epochs: int = EPOCHS,
) -> Recipe[NDArray[np.int64]]:
    """The recipe that distills the query tower of `towers`, which may be partly frozen; 0 hours: all epochs."""
    loss = QueryLoss(towers.query, preprocessor, made)
    return Recipe(
        RunConfig(name="distil", seed=seed, optimizer=OPTIMIZER, watch=WATCH),
        TextBatches(len(made.texts), seed, epochs, BATCH),
        towers.query,
        loss,
        lambda folder, report: None,
        [made.hash, parameters_hash(towers)],
        rate=linear(0.05),
        measures=loss.measure if made.held else None,
        about={"texts": len(made.texts), "held_out": len(made.held)},
        unit="texts",
        minutes=60.0 * hours,
    )


def teller(say: Callable[[str], None]) -> Callable[[Progress], None]:
    """Says the loss at some steps, and every measurement."""

    def tell(progress: Progress) -> None:
        if progress.dev or progress.step % SHOWN_STEPS == 0:
            dev = "".join(f", {name} {value:.4f}" for name, value in progress.dev.items())
            say(f"step {progress.step:,} of {progress.steps:,}: loss {progress.loss:.4f}{dev}")

    return tell
