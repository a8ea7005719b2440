"""A real, small ONNX model on the CPU for Triton's Python backend: each instance computes with one thread.

Becomes `model.py` in a model repository, beside `model.onnx` in the same version directory. Nothing is emulated
here: a bigger batch costs what it costs, and instances compete for the machine's cores.
"""

import asyncio  # noqa: F401  the stub imports it after the first batch; here no request waits for that
import json
from pathlib import Path
from typing import Any

import dlpack  # copied beside this file
import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The interface that Triton's Python backend calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model; its input and output names are those of the configuration."""
        config = json.loads(args["model_config"])
        self._input = config["input"][0]["name"]
        self._output = config["output"][0]["name"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        model = Path(args["model_repository"]) / args["model_version"] / "model.onnx"
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def execute(self, requests: list[Any]) -> list[Any]:
        """Run all requests as one batch and hand each its rows."""
        inputs = [dlpack.input_array(request, self._input) for request in requests]
        batch = inputs[0] if len(inputs) == 1 else np.concatenate(inputs)
        (results,) = self._session.run([self._output], {self._input: batch})
        responses, row = [], 0
        for array in inputs:
            rows = results[row : row + len(array)]
            responses.append(pb_utils.InferenceResponse([dlpack.output_tensor(self._output, rows)]))
            row += len(array)
        return responses
