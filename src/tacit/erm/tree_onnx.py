"""Symmetric trees as an ONNX file with one `TreeEnsemble` (ai.onnx.ml, opset 5)."""

from __future__ import annotations

import numpy as np

from tacit.data.files import optional
from tacit.erm.trees import SymmetricTrees

_OPSET, _ML_OPSET, _IR_VERSION = 20, 5, 10
_GREATER, _MEMBER = 3, 6  # BRANCH_GT and BRANCH_MEMBER of the operator's modes
_SUM, _NO_TRANSFORM = 1, 0


def tree_ensemble(model: SymmetricTrees, columns: int) -> bytes:
    """The ONNX file of the scores: input "X", double (n, columns), output "scores", double (n, K).

    A node of `TreeEnsemble` adds to one score, so K scores take K copies of a tree.

    Args:
        model: the trees.
        columns: number of columns of X.

    Raises:
        TacitError: the extra `onnx` is not installed.
    """
    onnx = optional("onnx", "onnx")
    helper, double = onnx.helper, onnx.TensorProto.DOUBLE
    trees, depth = model.columns.shape
    outputs, inner, leaves = model.values.shape[2], 2**depth - 1, 2**depth
    # Node i of a tree in heap order is at level floor(log2(i + 1)); its children are 2 i + 1 (no) and 2 i + 2 (yes).
    level = np.floor(np.log2(np.arange(inner) + 1)).astype(np.int64)
    child = 2 * np.arange(inner) + 1
    # Leaves in heap order hold the first answer in their highest bit, places of `values` in their lowest.
    order = np.array([int(f"{each:0{depth}b}"[::-1], 2) for each in range(leaves)])
    copies, starts = np.arange(trees * outputs), np.arange(trees * outputs)[:, None]
    tree = copies // outputs
    member = np.isnan(model.cuts)
    last = level == depth - 1
    no = np.where(last, starts * leaves + child - inner, starts * inner + child)
    cuts = np.where(member, 0.0, model.cuts)[tree][:, level].ravel()
    modes = np.where(member, _MEMBER, _GREATER)[tree][:, level].ravel()
    sets = [
        np.append(np.flatnonzero(model.members[each, at]).astype(np.float64), np.nan)
        for each in tree
        for at in level
        if member[each, at]
    ]
    attributes = {
        "n_targets": outputs,
        "aggregate_function": _SUM,
        "post_transform": _NO_TRANSFORM,
        "tree_roots": (copies * inner).tolist(),
        "nodes_featureids": model.columns[tree][:, level].ravel().tolist(),
        "nodes_splits": helper.make_tensor("splits", double, cuts.shape, cuts),
        "nodes_modes": helper.make_tensor("modes", onnx.TensorProto.UINT8, modes.shape, modes.astype(np.uint8)),
        "nodes_falsenodeids": no.ravel().tolist(),
        "nodes_truenodeids": (no + 1).ravel().tolist(),
        "nodes_falseleafs": np.tile(last, len(copies)).astype(int).tolist(),
        "nodes_trueleafs": np.tile(last, len(copies)).astype(int).tolist(),
        "leaf_targetids": np.repeat(copies % outputs, leaves).tolist(),
        "leaf_weights": helper.make_tensor(
            "weights", double, (len(copies) * leaves,), model.values[:, order].transpose(0, 2, 1).ravel()
        ),
    }
    if sets:
        values = np.concatenate(sets)
        attributes["membership_values"] = helper.make_tensor("members", double, values.shape, values)
    node = helper.make_node("TreeEnsemble", ["X"], ["scores"], domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph(
        [node],
        "tacit",
        [helper.make_tensor_value_info("X", double, ["n", columns])],
        [helper.make_tensor_value_info("scores", double, ["n", outputs])],
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="tacit")
    onnx.checker.check_model(made)
    return made.SerializeToString()
