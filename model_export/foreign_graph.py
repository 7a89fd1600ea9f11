"""The graph of a tower without torch: from its parameters, in the form that `torch.onnx` gives an exported tower.

Initializers have the names of the tower's parameters, and matrices are stored transposed as `NAME.weight^T`, so imported and
trained encoders are read alike. Attention has no weights (`weight_form` is `plain`).

    B   batch       L   tokens      H   hidden size     n   heads
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from glow.artifact import TensorNames
from glow.encoders import MASKED_LOGIT, MIN_WEIGHT, Parameters, TowerConfig

INPUTS = ("ids", "mask", "field_ids", "weights")
OUTPUT = "vector"
_OPSET, _IR = 20, 10


def tower_graph(parameters: Parameters, config: TowerConfig) -> ModelProto:
    """A tower's graph in float32, with dynamic batch and length; inputs and output are those of `graph.export_graph`."""
    graph = _Graph(parameters, config)
    x, bias = graph.embeddings(), graph.attention_bias()
    for number in range(len({name.split(".")[1] for name in parameters if name.startswith("layers.")})):
        x = graph.layer(x, bias, f"layers.{number}")
    graph.normalized(graph.pooled(x))
    kinds = dict.fromkeys(INPUTS, TensorProto.INT64) | {"weights": TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(name, kind, ["batch", "length"]) for name, kind in kinds.items()]
    output = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", config.hidden])
    onnx_graph = helper.make_graph(graph.nodes, "main_graph", inputs, [output], list(graph.tensors.values()))
    opsets = [helper.make_opsetid("", _OPSET)]
    model: ModelProto = helper.make_model(
        onnx_graph, opset_imports=opsets, ir_version=_IR, producer_name="glow"
    )
    return model


class _Graph:
    """Nodes and initializers; methods return the name of what they add."""

    def __init__(self, parameters: Parameters, config: TowerConfig) -> None:
        self.parameters, self.config = parameters, config
        self.nodes: list[NodeProto] = []
        self.tensors: dict[str, TensorProto] = {}

    def step(self, kind: str, name: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], f"{name}.{kind}", **attributes))
        return name

    def tensor(self, name: str, value: NDArray[Any] | None = None) -> str:
        """An initializer: a parameter, unless its value is given."""
        if name not in self.tensors:
            array = np.asarray(self.parameters[name] if value is None else value, order="C")
            self.tensors[name] = numpy_helper.from_array(array, name)
        return name

    def constant(self, value: float | list[int]) -> str:
        kind = np.float32 if isinstance(value, float) else np.int64
        return self.tensor(f"constant {value}", np.array(value, kind))

    def embeddings(self) -> str:
        """Token embeddings below the first layer, [B, L, H]."""
        words = self.step("Gather", "words", self.tensor("words.weight"), "ids")
        self.step("Shape", "length", "ids", start=1, end=2)
        zero = self.constant([0])
        positions = self.step("Slice", "positions", self.tensor("positions.weight"), zero, "length", zero)
        fields = self.step("Gather", "fields", self.tensor("fields.weight"), "field_ids")
        placed = self.step("Add", "embeddings", self.step("Add", "words.placed", words, positions), fields)
        return self.norm(placed, "embedding_norm")

    def attention_bias(self) -> str:
        """What every layer adds to its logits, [B, 1 or n, 1 or L, L]: for padding, and for the distances between tokens."""
        mask = self.step("Unsqueeze", "mask.wide", "mask", self.constant([1, 2]))
        mask = self.step("Cast", "mask.float", mask, to=TensorProto.FLOAT)
        padding = self.step("Sub", "mask.padding", self.constant(1.0), mask)
        bias = self.step("Mul", "mask.bias", padding, self.constant(MASKED_LOGIT))
        if "distances.weight" not in self.parameters:
            return bias
        length = self.step("Squeeze", "length.number", "length", self.constant([0]))
        places = self.step("Range", "places", self.constant(0), length, self.constant(1))
        most = self.constant([len(self.parameters["positions.weight"]) - 1])
        row = self.step("Add", "places.row", places, most)
        column = self.step("Unsqueeze", "places.column", places, self.constant([1]))
        rows = self.step("Sub", "places.rows", row, column)
        table = self.step("Gather", "distances", self.tensor("distances.weight"), rows)  # [L, L, n]
        heads = self.step("Transpose", "distances.heads", table, perm=[2, 0, 1])
        return self.step("Add", "bias", bias, heads)

    def layer(self, x: str, bias: str, name: str) -> str:
        """[B, L, H] -> [B, L, H]."""
        attended = self.step("Add", f"{name}.attended", x, self.attention(x, bias, f"{name}.attention"))
        x = self.norm(attended, f"{name}.attention_norm")
        inner = self.step("Gelu", f"{name}.gelu", self.linear(x, f"{name}.inner"))
        total = self.step("Add", f"{name}.sum", x, self.linear(inner, f"{name}.outer"))
        return self.norm(total, f"{name}.output_norm")

    def attention(self, x: str, bias: str, name: str) -> str:
        size = self.config.hidden // self.config.heads
        q, k, v = parts = [f"{name}.{part}" for part in ("query", "key", "value")]
        together = self.linear(x, f"{name}.qkv")
        self.nodes.append(
            helper.make_node("Split", [together], parts, f"{name}.split", axis=2, num_outputs=3)
        )
        shape = self.constant([0, 0, self.config.heads, size])
        scaled = self.step("Mul", f"{q}.scaled", q, self.constant(size**-0.5))

        def heads(part: str, perm: list[int]) -> str:
            split = self.step("Reshape", f"{part}.split", part, shape)
            return self.step("Transpose", f"{part}.heads", split, perm=perm)

        q, k, v = heads(scaled, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1]), heads(v, [0, 2, 1, 3])
        logits = self.step("Add", f"{name}.biased", self.step("MatMul", f"{name}.logits", q, k), bias)
        shares = self.step("Softmax", f"{name}.softmax", logits, axis=-1)
        mixed = self.step("MatMul", f"{name}.mixed", shares, v)
        mixed = self.step("Transpose", f"{name}.back", mixed, perm=[0, 2, 1, 3])
        joined = self.step("Reshape", f"{name}.joined", mixed, self.constant([0, 0, self.config.hidden]))
        return self.linear(joined, f"{name}.output")

    def linear(self, x: str, name: str) -> str:
        """x·Wᵀ + b; the product is named after the module, as quantization expects."""
        matrix = self.tensor(f"{name}.weight{TensorNames.TRANSPOSED}", self.parameters[f"{name}.weight"].T)
        self.nodes.append(helper.make_node("MatMul", [x, matrix], [f"{name}.rows"], name))
        return self.step("Add", f"{name}.linear", f"{name}.rows", self.tensor(f"{name}.bias"))

    def norm(self, x: str, name: str) -> str:
        gain, bias = (self.tensor(f"{name}.{kind}") for kind in ("weight", "bias"))
        epsilon = self.config.layer_norm_eps
        return self.step("LayerNormalization", f"{name}.normal", x, gain, bias, axis=-1, epsilon=epsilon)

    def pooled(self, x: str) -> str:
        """[B, L, H] -> [B, H]."""
        if self.config.pooling == "cls":
            return self.step("Gather", "pooled", x, self.constant(0), axis=1)
        share = self.step("Cast", "share.mask", "mask", to=TensorProto.FLOAT)
        if self.config.pooling == "weighted":
            weights = self.step("Clip", "weights.clipped", "weights", self.constant(MIN_WEIGHT))
            weights = self.step("Log", "weights.log", weights)
            weights = self.step("Mul", "weights.power", self.tensor("gain"), weights)
            share = self.step("Mul", "share.weighted", share, self.step("Exp", "weights.gained", weights))
        axis = self.constant([1])
        total = self.step("ReduceSum", "share.total", share, axis, keepdims=1)
        share = self.step("Div", "share", share, total)
        mean = self.step("MatMul", "pooled.row", self.step("Unsqueeze", "share.row", share, axis), x)
        return self.step("Squeeze", "pooled", mean, axis)

    def normalized(self, x: str) -> str:
        length = self.step("ReduceL2", "pooled.length", x, self.constant([-1]), keepdims=1)
        return self.step("Div", OUTPUT, x, self.step("Clip", "pooled.positive", length, self.constant(1e-12)))
