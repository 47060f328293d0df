"""`onnx_model`: the model of a run with its preprocessing as one ONNX graph, from the columns of a table to answers.

An ONNX runtime needs neither tacit nor torch. The format: https://onnx.ai/onnx/repo-docs/IR.html.

The preprocessing of a table as a part of an ONNX graph: `Schema.encode` for every column, without an error.

A graph cannot refuse a row. Where `encode` would, the output `broken` is true for the row, and its features are 0.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit import check
from tacit.data.files import optional
from tacit.data.schema import CATEGORY, CODE, Column, Schema

_NETWORK = "tacit/network/"
_ANSWERS = _NETWORK + "answers"
_OUTPUTS = ("prediction", "probabilities")
_IR_VERSION = 10  # the first with opset 20, so that old runtimes read the file, too


def onnx_model(
    module: nn.Module,
    example: np.ndarray,
    *,
    task: str,
    classes: tuple[str, ...],
    schema: Schema | None = None,
    facts: Mapping[str, str] | None = None,
) -> bytes:
    """The ONNX file of `module` behind the preprocessing of `schema`.

    Inputs are the columns of the schema, (rows, 1) each: float64 numbers (a date in days since 1970-01-01), NaN where a
    cell is missing, and texts for categories; or `features`, (rows, ...), without a schema. Outputs are `prediction`,
    (rows,), and `probabilities`, (rows, classes), unless it is a regression. A row that `tacit predict` would refuse
    gets NaN and the text "".

    Args:
        module: features (rows, ...) to class probabilities (rows, classes), or to values (rows,) of a regression.
        example: features of one row or more, of the type that `module` takes.
        task: "classification", "ratings" or "regression".
        classes: names of the classes; empty for a regression.
        schema: how columns become features; None where the features are the input.
        facts: what the file says of itself, such as its guarantee.

    Raises:
        TacitError: the extra `onnx` is not installed.
        InvalidInput: torch cannot write the network as ONNX.
    """
    graph = Graph()
    if schema is None:
        _add_features(graph, example)
    else:
        if taken := [column.name for column in schema.columns if column.name in _OUTPUTS]:
            rule = f"other than the outputs {' and '.join(_OUTPUTS)}"
            raise check.fail("columns", rule, taken, "Rename them in FILE.")
        add_columns(graph, schema)
    network = _network(module, example)
    graph.add("Identity", FEATURES, name=_NETWORK + "features")
    graph.nodes.extend(network.graph.node)
    graph.constants.extend(network.graph.initializer)
    outputs = _outputs(graph, task, classes)
    onnx = graph.onnx
    made = onnx.helper.make_graph(graph.nodes, "tacit", graph.inputs, outputs, graph.constants)
    opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    of_file = {"ir_version": _IR_VERSION, "producer_name": "tacit"}
    model = onnx.helper.make_model(made, opset_imports=opsets, functions=network.functions, **of_file)
    onnx.helper.set_model_props(model, dict(facts or {}))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _network(module: nn.Module, example: np.ndarray) -> Any:
    """The ONNX graph of `module` from `features` to `answers`."""
    optional("onnxscript", "to export a model to ONNX", extra="onnx")
    compose = optional("onnx.compose", "to export a model to ONNX", extra="onnx")
    # One row would be taken for a constant size.
    rows = torch.from_numpy(np.concatenate([example[:1], example[:1]]))
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.eval(),
                (rows,),
                dynamo=True,
                opset_version=OPSET,
                input_names=["features"],
                output_names=["answers"],
                dynamic_shapes=({0: torch.export.Dim("rows")},),
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        hint = "The safetensors of the run remain; tacit.load reads them."
        raise check.fail("model", "one that torch can write as ONNX", type(error).__name__, hint) from None
    finally:
        log.setLevel(level)
    assert program is not None, "dynamo=True returns the program"
    return compose.add_prefix(program.model_proto, _NETWORK)


def _add_features(graph: Graph, example: np.ndarray) -> None:
    """Add the input `features`, (rows, ...), and `broken`, (rows,): whether one of the row is NaN or infinite."""
    types = graph.onnx.TensorProto
    kind = types.FLOAT if example.dtype.kind == "f" else types.INT64
    graph.inputs.append(graph.onnx.helper.make_tensor_value_info("features", kind, ["rows", *example.shape[1:]]))
    graph.add("Identity", "features", name=FEATURES)
    numbers = graph.cast(FEATURES, "FLOAT")
    bad = graph.either([graph.add("IsNaN", numbers), graph.add("IsInf", numbers)])
    flat = graph.add("Flatten", graph.cast(bad, "FLOAT"), axis=1)
    largest = graph.add("ReduceMax", flat, graph.constant(np.array([1])), keepdims=0)
    graph.add("Greater", largest, graph.constant(np.array(0, dtype=np.float32)), name=BROKEN)


def _outputs(graph: Graph, task: str, classes: tuple[str, ...]) -> list[Any]:
    """Add the outputs, NaN in broken rows, and return what they are."""
    describe, types = graph.onnx.helper.make_tensor_value_info, graph.onnx.TensorProto
    nan = graph.constant(np.array(np.nan))
    if task == "regression":
        graph.add("Where", BROKEN, nan, _ANSWERS, name="prediction")
        return [describe("prediction", types.DOUBLE, ["rows"])]
    column = graph.add("Unsqueeze", BROKEN, graph.constant(np.array([1])))
    graph.add("Where", column, nan, _ANSWERS, name="probabilities")
    probabilities = describe("probabilities", types.DOUBLE, ["rows", len(classes)])
    if task == "ratings":
        graph.add("MatMul", "probabilities", graph.constant(np.array(classes, dtype=float)), name="prediction")
        return [describe("prediction", types.DOUBLE, ["rows"]), probabilities]
    best = graph.add("ArgMax", _ANSWERS, axis=1, keepdims=0)
    named = graph.add("Gather", graph.constant(np.array(classes)), best)
    graph.add("Where", BROKEN, graph.constant(np.array("")), named, name="prediction")
    return [describe("prediction", types.STRING, ["rows"]), probabilities]


OPSET = 20
"""Version of the ONNX operators; the first with `IsNaN` of float64 and `Equal` of texts in every runtime."""
FEATURES, BROKEN = "tacit/features", "tacit/broken"
"""Values of the graph; no column has a slash and this word before it."""


class Graph:
    """ONNX nodes, constants and inputs as they are added; every value is named.

    Attributes:
        nodes: in their order.
        constants: tensors.
        inputs: (name, shape) of what the caller gives, with its type.
    """

    def __init__(self) -> None:
        self.onnx = optional("onnx", "to export a model to ONNX", extra="onnx")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def input(self, name: str, *, texts: bool) -> str:
        """The input `name` of one column, (rows, 1): texts, or float64 numbers."""
        types = self.onnx.TensorProto
        kind = types.STRING if texts else types.DOUBLE
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["rows", 1]))
        return name

    def constant(self, value: Any) -> str:
        """A tensor of numbers, flags or texts."""
        name = f"tacit/constant_{len(self.constants)}"
        array = np.asarray(value)
        texts = array.dtype.kind == "U"
        self.constants.append(self.onnx.numpy_helper.from_array(array.astype(object) if texts else array, name))
        return name

    def add(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """The output of `operator`.

        Args:
            operator: of ONNX.
            inputs: names of values.
            name: of the output; a new one where empty.
            attributes: of the operator.
        """
        name = name or f"tacit/value_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def either(self, flags: Iterable[str]) -> str:
        """Whether any of `flags` holds, elementwise."""
        first, *others = flags
        for other in others:
            first = self.add("Or", first, other)
        return first

    def cast(self, value: str, kind: str, name: str = "") -> str:
        """`value` as the type `kind` of ONNX, such as "FLOAT"."""
        return self.add("Cast", value, name=name, to=getattr(self.onnx.TensorProto, kind))


def add_columns(graph: Graph, schema: Schema) -> None:
    """Add the columns of `schema` as inputs, (rows, 1) each, and from them `features` and `broken`, (rows,).

    A number and a date are float64 (a date in days since 1970-01-01), NaN where the cell is missing; a category and a
    code with categories are texts.
    """
    blocks, broken = zip(*[_column(graph, column) for column in schema.columns], strict=True)
    graph.add("Concat", *blocks, name=FEATURES, axis=1)
    graph.add("Squeeze", graph.either(broken), graph.constant(np.array([1])), name=BROKEN)


def _column(graph: Graph, column: Column) -> tuple[str, str]:
    """The names of the features of `column`, (rows, width), and of its flags of broken cells, (rows, 1)."""
    return {CATEGORY: _category, CODE: _code}.get(column.kind, _number)(graph, column)


def _number(graph: Graph, column: Column) -> tuple[str, str]:
    cells = graph.input(column.name, texts=False)
    amounts = [float(code) for code in column.missing if check.is_number(code)]
    codes = [graph.add("Equal", cells, graph.constant(amount)) for amount in amounts if np.isfinite(amount)]
    absent = graph.either([graph.add("IsNaN", cells), *codes])
    fill = float("nan") if column.fill is None else column.fill
    read = graph.add("Where", absent, graph.constant(np.array(fill, dtype=float)), cells)
    bad = graph.either([graph.add("IsNaN", read), graph.add("IsInf", read)])
    # The runtimes differ in Clip of NaN, so that no NaN may reach it.
    whole = graph.add("Where", bad, graph.constant(np.array(column.low, dtype=float)), read)
    low, high = (graph.constant(np.array(end, dtype=float)) for end in (column.low, column.high))
    width = graph.constant(np.array((column.high - column.low) or 1.0))
    unit = graph.add("Div", graph.add("Sub", graph.add("Clip", whole, low, high), low), width)
    block = graph.cast(unit, "FLOAT")
    if column.indicator:
        block = graph.add("Concat", block, graph.cast(absent, "FLOAT"), axis=1)
    return block, bad


def _category(graph: Graph, column: Column) -> tuple[str, str]:
    cells = graph.input(column.name, texts=True)
    block = graph.cast(graph.add("Equal", cells, graph.constant(np.array(column.categories))), "FLOAT")
    if column.missing:
        absent = graph.either(graph.add("Equal", cells, graph.constant(np.array(code))) for code in column.missing)
        empty = np.array([[category == "" for category in column.categories]], dtype=np.float32)
        block = graph.add("Where", absent, graph.constant(empty), block)
    total = graph.add("ReduceMax", block, graph.constant(np.array([1])), keepdims=1)
    return block, graph.add("Equal", total, graph.constant(np.array(0, dtype=np.float32)))


def _code(graph: Graph, column: Column) -> tuple[str, str]:
    if column.categories:
        cells = graph.input(column.name, texts=True)
        keys, places = list(column.categories), list(range(len(column.categories)))
        named = {"domain": "ai.onnx.ml", "keys_strings": keys, "values_int64s": places, "default_int64": -1}
        place = graph.add("LabelEncoder", cells, **named)
        bad = graph.add("Less", place, graph.constant(np.array(0)))
    else:
        cells = graph.input(column.name, texts=False)
        read = graph.add("Sub", cells, graph.constant(np.array(column.low, dtype=float)))
        ends = graph.constant(np.array(0.0)), graph.constant(np.array(float(column.size)))
        inside = graph.add("And", graph.add("GreaterOrEqual", read, ends[0]), graph.add("Less", read, ends[1]))
        whole = graph.add("Equal", read, graph.add("Floor", read))
        bad = graph.add("Not", graph.add("And", inside, whole))
        place = graph.cast(graph.add("Where", bad, ends[0], read), "INT64")
    return graph.add("Where", bad, graph.constant(np.array(0)), place), bad
