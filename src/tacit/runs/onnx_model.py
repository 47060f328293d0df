"""`onnx_model`: the model of a run with its preprocessing as one ONNX graph, from the columns of a table to answers.

An ONNX runtime needs neither tacit nor torch. The format: https://onnx.ai/onnx/repo-docs/IR.html.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit import check
from tacit.data.files import optional
from tacit.data.onnx_columns import BROKEN, FEATURES, OPSET, Graph, add_columns
from tacit.data.schema import Schema

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
        _check_names(schema)
        add_columns(graph, schema)
    network = _network(module, example)
    graph.add("Identity", FEATURES, name=_NETWORK + "features")
    graph.nodes.extend(network.graph.node)
    graph.constants.extend(network.graph.initializer)
    outputs = _outputs(graph, task, classes)
    onnx = graph.onnx
    made = onnx.helper.make_graph(graph.nodes, "tacit", graph.inputs, outputs, graph.constants)
    opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    model = onnx.helper.make_model(
        made, opset_imports=opsets, functions=network.functions, ir_version=_IR_VERSION, producer_name="tacit"
    )
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


def _check_names(schema: Schema) -> None:
    taken = [column.name for column in schema.columns if column.name in _OUTPUTS]
    if taken:
        raise check.fail("columns", f"other than the outputs {' and '.join(_OUTPUTS)}", taken, "Rename them in FILE.")


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
        stars = graph.constant(np.array(classes, dtype=float))
        graph.add("MatMul", "probabilities", stars, name="prediction")
        return [describe("prediction", types.DOUBLE, ["rows"]), probabilities]
    best = graph.add("ArgMax", _ANSWERS, axis=1, keepdims=0)
    named = graph.add("Gather", graph.constant(np.array(classes)), best)
    graph.add("Where", BROKEN, graph.constant(np.array("")), named, name="prediction")
    return [describe("prediction", types.STRING, ["rows"]), probabilities]
