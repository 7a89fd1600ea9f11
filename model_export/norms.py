"""Layer normalization in plain steps, for CPUs.

ONNX Runtime's own kernels (LayerNormalization, SkipLayerNormalization) process a token's numbers one by one and take a
quarter of a quantized tower's time. Reductions and products over whole arrays use vector instructions. A sum of squares
replaces the mean, so that the runtime does not fuse the steps again.
"""

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from glow.artifact import TensorNames

__all__ = ["spread_norms"]

_AXIS = "norm.axis"


def spread_norms(model: ModelProto) -> ModelProto:
    """Replaces every LayerNormalization over the last axis by (x - x̄) / √(Σ(x - x̄)² + n·ε) · (√n·gain) + bias.

    Args:
        model: float32 tower, changed in place.
    """
    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), _AXIS))
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type != "LayerNormalization":
            nodes.append(node)
            continue
        gain = tensors[node.input[1]]
        size = gain.dims[0]
        scaled = numpy_helper.to_array(gain) * np.float32(np.sqrt(size))
        graph.initializer.remove(gain)
        graph.initializer.append(numpy_helper.from_array(scaled, gain.name + TensorNames.SCALED))
        epsilon = next(attribute.f for attribute in node.attribute if attribute.name == "epsilon")
        nodes += _steps(model, node, gain.name, np.float32(size * epsilon))
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def _steps(model: ModelProto, node: NodeProto, gain: str, least: np.float32) -> list[NodeProto]:
    tokens, _, bias = node.input
    name = gain.removesuffix(".weight")
    model.graph.initializer.append(numpy_helper.from_array(np.array(least), f"{name}.least"))

    def step(kind: str, inputs: list[str], out: str, **attributes: Any) -> NodeProto:
        return helper.make_node(kind, inputs, [out], f"{out}.{kind}", **attributes)

    return [
        step("ReduceMean", [tokens, _AXIS], f"{name}.mean", keepdims=1),
        step("Sub", [tokens, f"{name}.mean"], f"{name}.centred"),
        step("ReduceSumSquare", [f"{name}.centred", _AXIS], f"{name}.squares", keepdims=1),
        step("Add", [f"{name}.squares", f"{name}.least"], f"{name}.positive"),
        step("Sqrt", [f"{name}.positive"], f"{name}.length"),
        step("Div", [f"{name}.centred", f"{name}.length"], f"{name}.direction"),
        step("Mul", [f"{name}.direction", gain + TensorNames.SCALED], f"{name}.scaled"),
        step("Add", [f"{name}.scaled", bias], node.output[0]),
    ]
