"""The stores that vectors can lie in, each with the same vectors and metadata."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.index.columns import Columns, build_columns
from glow.index.milvus import (
    SCORE_TOLERANCE,
    FilterFields,
    MilvusVectors,
    StoreAccess,
    StoreHeader,
    connect,
    write_vectors,
)
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.index.vectors import DenseView, IndexKind, build_dense
from glow.records import Document
from tests.stores.ray_cluster import RayCluster
from tests.stores.server import TOKEN, Milvus

COUNT, DIMENSIONS = 1_500, 32
HASHES = {"model": "m" * 64, "terms": "t" * 64}
PATIENT = StoreAccess(TOKEN, timeout_s=30.0)
Vectors = NDArray[np.float32]


def assert_alike(one: Any, other: Any) -> None:
    """The same, but for scores within the tolerance, and for the order of hits whose scores differ by less."""
    if isinstance(one, float):
        assert other == pytest.approx(one, rel=SCORE_TOLERANCE)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert_alike(value, other[name])
    elif isinstance(one, list | tuple):
        for left, right in zip(one, other, strict=True):
            if isinstance(left, dict) and "score" in left and left["id"] != right["id"]:
                own = [each["score"] for each in one if each["id"] == right["id"]] or [one[-1]["score"]]
                assert [left["score"], *own] == pytest.approx([right["score"]] * 2, rel=SCORE_TOLERANCE)
            else:
                assert_alike(left, right)
    else:
        assert one == other


@pytest.fixture(scope="package")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milvus]:
    """A server for all tests of this folder: a start takes ten seconds."""
    server = Milvus(tmp_path_factory.mktemp("milvus"))
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="package")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A cluster for all tests of this folder; who needs nodes says how many."""
    pytest.importorskip("ray")
    with RayCluster(tmp_path_factory.mktemp("ray")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def lite(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a Milvus Lite file."""
    return f"milvus://{tmp_path_factory.mktemp('lite') / 'vectors.db'}"


@pytest.fixture(scope="session")
def vectors() -> Vectors:
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((40, DIMENSIONS))
    found = centres[generator.integers(0, 40, COUNT)] + generator.standard_normal((COUNT, DIMENSIONS)) * 0.8
    found[700:710] = found[700]  # documents with the same text
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)


@pytest.fixture(scope="session")
def queries(vectors: Vectors) -> Vectors:
    found = vectors[::150] + 0.1 * np.random.default_rng(1).standard_normal((10, DIMENSIONS))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def metadata_of(row: int) -> dict[str, Any]:
    """What document `row` is filtered by: texts with quotes, dates, numbers of all sizes, missing values, lists."""
    names = ['"quoted"', "it's", "ünï", "", "a", "b\\n", "日本", "true"]
    found: dict[str, Any] = {
        "name": names[row % 8],
        "number": [0, -1, 2**53 + 1, 2.5, 1e300][row % 5],
        "row": row,
    }
    if row % 3:
        found["day"] = f"2024-0{1 + row % 9}-1{row % 10}"
    if row % 4 == 0:
        found["flag"] = row % 8 == 0
    if row % 7 == 0:
        found["mixed"] = [1, "1", True][row % 3]
    found["tags"] = [f"t{row % 5}", f"t{row % 3}"]
    return found


@pytest.fixture(scope="session")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Columns:
    folder = tmp_path_factory.mktemp("columns")
    with DocumentWriter(folder / "documents.sqlite") as writer:
        for row in range(COUNT):
            writer.add(Document(f"d{row}", {}, metadata_of(row)))
    store = DocumentStore(folder / "documents.sqlite")
    build_columns(store, folder)
    return Columns.open(folder, COUNT)


@dataclass(frozen=True)
class Made:
    """A store with the vectors, and what says where."""

    view: DenseView
    header: StoreHeader | None = None


Make = Callable[..., Made]


@pytest.fixture(scope="module")
def make(
    vectors: Vectors,
    columns: Columns,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Make:
    """Makes a store: its name, the kind of index, and vectors if other ones are wanted."""

    def build(store: str, kind: IndexKind, wanted: Vectors = vectors, name: str = "") -> Made:
        if store == "faiss":
            return Made(build_dense(wanted, kind))
        server = request.getfixturevalue(store)
        address = server if isinstance(server, str) else server.address
        connection = connect(address, PATIENT)
        collection = name or f"glow_{kind.replace('-', '_')}_{len(wanted)}"
        fields = FilterFields(columns) if len(wanted) == COUNT else None
        folder = tmp_path_factory.mktemp("version")
        header = write_vectors(connection, collection, kind, fields, folder, wanted, HASHES)
        view = MilvusVectors(connection, header, columns if fields else None)
        view.check(HASHES)
        return Made(view, header)

    return build


@pytest.fixture(scope="module")
def made(make: Make) -> Callable[[str, IndexKind], Made]:
    """Stores of the vectors, each made once."""
    known: dict[tuple[str, str], Made] = {}

    def found(store: str, kind: IndexKind) -> Made:
        if (store, kind) not in known:
            known[store, kind] = make(store, kind)
        return known[store, kind]

    return found
