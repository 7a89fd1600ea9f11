"""A server that asks who it talks to, in a file of its own: a process runs one server at a time."""

from collections.abc import Iterator

import pytest

from glow.errors import ConfigError
from glow.index.milvus import StoreAccess, connect
from tests.stores.server import Milvus


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milvus]:
    """A server that asks for credentials."""
    server = Milvus(tmp_path_factory.mktemp("closed"), password="Milvus")  # noqa: S106 - Milvus' own default
    server.start()
    yield server
    server.remove()


def test_wrong_credentials_and_databases_are_told_apart_from_no_server(closed: Milvus) -> None:
    for token in ("", "root:wrong"):
        with pytest.raises(ConfigError, match=r"refuses the credentials.*GLOW_STORE_TOKEN"):
            connect(closed.address, StoreAccess(token, 10.0)).run(lambda client, _: client.list_collections())
    connection = connect(closed.address, StoreAccess("root:Milvus", 10.0))
    assert connection.run(lambda client, _: client.list_collections()) == []
    with pytest.raises(ConfigError, match="no such database"):
        connect(f"{closed.address}/absent", StoreAccess("root:Milvus", 10.0)).run(
            lambda client, _: client.list_collections()
        )
