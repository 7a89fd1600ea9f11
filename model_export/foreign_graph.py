"""The graph of a tower without torch: from its parameters, in the form that `torch.onnx` gives an exported tower.

Initializers have the names of the tower's parameters, and matrices are stored transposed as `NAME.weight^T`. So quantization,
explanations and `glow train --init` read the graphs of imported and of trained encoders alike. Attention has no weights
(`weight_form` is `plain`).

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
    """A tower's graph in float32, with dynamic batch and length; inputs and output are those of `graph.export_graph`.

    Args:
        parameters: by the names of `glow.nn.Tower`; as many layers as they name.
        config: gives heads and pooling, which is `cls`, `mean` or `weighted`.
    """
    graph = _Graph(parameters)
    tokens = graph.embeddings(config)
    bias = graph.attention_bias()
    layers = {int(name.split(".")[1]) for name in parameters if name.startswith("layers.")}
    for number in range(len(layers)):
        tokens = graph.layer(tokens, bias, f"layers.{number}", config)
    graph.normalize(graph.pooled(tokens, config))
    shape = ["batch", "length"]
    kinds = [TensorProto.INT64] * 3 + [TensorProto.FLOAT]
    inputs = [
        helper.make_tensor_value_info(name, kind, shape) for name, kind in zip(INPUTS, kinds, strict=True)
    ]
    output = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", config.hidden])
    made = helper.make_graph(graph.nodes, "main_graph", inputs, [output], graph.tensors)
    opsets = [helper.make_opsetid("", _OPSET)]
    model: ModelProto = helper.make_model(made, opset_imports=opsets, ir_version=_IR, producer_name="glow")
    return model


class _Graph:
    """Nodes and initializers; each step returns the name of its output."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []
        self._names: set[str] = set()

    def step(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def tensor(self, name: str, value: NDArray[Any] | None = None) -> str:
        """An initializer: a parameter, or a constant with its value."""
        if name not in self._names:
            array = self.parameters[name] if value is None else value
            self.tensors.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
            self._names.add(name)
        return name

    def integers(self, *values: int) -> str:
        return self.tensor(
            "integers." + "_".join(map(str, values)).replace("-", "minus"), np.array(values, np.int64)
        )

    def number(self, value: float, name: str) -> str:
        return self.tensor(name, np.array(value, np.float32))

    def embeddings(self, config: TowerConfig) -> str:
        """Token embeddings of the first layer, [B, L, H]."""
        words = self.step("Gather", [self.tensor("words.weight"), "ids"], "words", axis=0)
        self.step("Shape", ["ids"], "length", start=1, end=2)
        begin = self.integers(0)
        positions = self.step("Slice", [self.tensor("positions.weight"), begin, "length", begin], "positions")
        fields = self.step("Gather", [self.tensor("fields.weight"), "field_ids"], "fields", axis=0)
        placed = self.step("Add", [words, positions], "words.placed")
        return self.norm(self.step("Add", [placed, fields], "embeddings"), "embedding_norm", config)

    def attention_bias(self) -> str:
        """What every layer adds to its logits: for padding, and for the distances between tokens."""
        mask = self.step("Unsqueeze", ["mask", self.integers(1, 2)], "mask.wide")  # [B, 1, 1, L]
        mask = self.step("Cast", [mask], "mask.float", to=TensorProto.FLOAT)
        padding = self.step("Sub", [self.number(1.0, "one"), mask], "mask.padding")
        bias = self.step("Mul", [padding, self.number(MASKED_LOGIT, "mask.logit")], "mask.bias")
        if "distances.weight" not in self.parameters:
            return bias
        middle = len(self.parameters["positions.weight"]) - 1
        zero, one = (self.tensor(f"integer.{value}", np.array(value, np.int64)) for value in (0, 1))
        length = self.step("Squeeze", ["length", self.integers(0)], "length.number")
        places = self.step("Range", [zero, length, one], "places")
        row = self.step("Add", [places, self.integers(middle)], "places.row")
        column = self.step("Unsqueeze", [places, self.integers(1)], "places.column")
        rows = self.step("Sub", [row, column], "distances.rows")  # [L, L]
        table = self.step("Gather", [self.tensor("distances.weight"), rows], "distances", axis=0)
        heads_first = self.step("Transpose", [table], "distances.heads", perm=[2, 0, 1])
        return self.step("Add", [bias, heads_first], "bias")  # [B, n, L, L]

    def layer(self, x: str, bias: str, name: str, config: TowerConfig) -> str:
        """[B, L, H] -> [B, L, H]."""
        attended = self.attention(x, bias, f"{name}.attention", config)
        x = self.norm(self.step("Add", [x, attended], f"{name}.attended"), f"{name}.attention_norm", config)
        inner = self.step("Gelu", [self.linear(x, f"{name}.inner")], f"{name}.gelu", approximate="none")
        outer = self.linear(inner, f"{name}.outer")
        return self.norm(self.step("Add", [x, outer], f"{name}.sum"), f"{name}.output_norm", config)

    def attention(self, x: str, bias: str, name: str, config: TowerConfig) -> str:
        size = config.hidden // config.heads
        thirds = [f"{name}.{part}" for part in ("query", "key", "value")]
        together = self.linear(x, f"{name}.qkv")
        self.nodes.append(
            helper.make_node("Split", [together], thirds, f"{name}.split", axis=2, num_outputs=3)
        )
        scale = self.number(size**-0.5, "attention.scale")
        thirds[0] = self.step("Mul", [thirds[0], scale], f"{name}.query.scaled")
        heads = self.integers(0, 0, config.heads, size)
        query, key, value = (
            self.step(
                "Transpose",
                [self.step("Reshape", [third, heads], f"{third}.split")],
                f"{third}.heads",
                perm=perm,
            )
            for third, perm in zip(thirds, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        logits = self.step(
            "Add", [self.step("MatMul", [query, key], f"{name}.logits"), bias], f"{name}.biased"
        )
        shares = self.step("Softmax", [logits], f"{name}.softmax", axis=-1)
        mixed = self.step("MatMul", [shares, value], f"{name}.mixed")
        back = self.step("Transpose", [mixed], f"{name}.back", perm=[0, 2, 1, 3])
        joined = self.step("Reshape", [back, self.integers(0, 0, config.hidden)], f"{name}.joined")
        return self.linear(joined, f"{name}.output")

    def linear(self, x: str, name: str) -> str:
        """x·Wᵀ + b; the product is named after the module, as quantization expects."""
        matrix = self.tensor(f"{name}.weight{TensorNames.TRANSPOSED}", self.parameters[f"{name}.weight"].T)
        self.nodes.append(helper.make_node("MatMul", [x, matrix], [f"{name}.rows"], name))
        return self.step("Add", [f"{name}.rows", self.tensor(f"{name}.bias")], f"{name}.linear")

    def norm(self, x: str, name: str, config: TowerConfig) -> str:
        gain, bias = (self.tensor(f"{name}.{kind}") for kind in ("weight", "bias"))
        return self.step(
            "LayerNormalization", [x, gain, bias], f"{name}.normal", axis=-1, epsilon=config.layer_norm_eps
        )

    def pooled(self, x: str, config: TowerConfig) -> str:
        """[B, L, H] -> [B, H]."""
        if config.pooling == "cls":
            return self.step("Gather", [x, self.tensor("integer.0", np.array(0, np.int64))], "pooled", axis=1)
        share = self.step("Cast", ["mask"], "share.mask", to=TensorProto.FLOAT)
        if config.pooling == "weighted":
            least = self.step(
                "Clip", ["weights", self.number(MIN_WEIGHT, "weights.least")], "weights.clipped"
            )
            power = self.step(
                "Mul", [self.tensor("gain"), self.step("Log", [least], "weights.log")], "weights.power"
            )
            share = self.step("Mul", [share, self.step("Exp", [power], "weights.gained")], "share.weighted")
        axis = self.integers(1)
        total = self.step("ReduceSum", [share, axis], "share.total", keepdims=1)
        row = self.step("Unsqueeze", [self.step("Div", [share, total], "share"), axis], "share.row")
        return self.step("Squeeze", [self.step("MatMul", [row, x], "pooled.row"), axis], "pooled")

    def normalize(self, x: str) -> str:
        length = self.step("ReduceL2", [x, self.integers(-1)], "pooled.length", keepdims=1)
        length = self.step("Clip", [length, self.number(1e-12, "pooled.least")], "pooled.positive")
        return self.step("Div", [x, length], OUTPUT)
