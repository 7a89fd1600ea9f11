"""Tracing a graph takes seconds and does not depend on the precision: tests trace each tower once."""

import hashlib
from collections.abc import Iterator

import pytest
from onnx import ModelProto

from glow.nn.towers import Tower
from glow_model_export.graph import export_graph


def _key(tower: Tower) -> str:
    """Shape and weights, bit for bit: a tower that was read back wrong is another one."""
    shape = [
        sorted((name, v) for name, v in vars(module).items() if isinstance(v, str | int | float))
        for module in tower.modules()
    ]
    digest = hashlib.sha256(repr(shape).encode())
    for name, tensor in sorted(tower.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


@pytest.fixture(scope="package", autouse=True)
def traced_once() -> Iterator[dict[str, ModelProto]]:
    """Remembers the graphs of all towers that these tests export; empty it to trace again."""
    graphs: dict[str, ModelProto] = {}

    def export(tower: Tower) -> ModelProto:
        key = _key(tower)
        if key not in graphs:
            graphs[key] = export_graph(tower)
        copied = ModelProto()
        copied.CopyFrom(graphs[key])
        return copied

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glow_model_export.graph.export_graph", export)
        yield graphs
