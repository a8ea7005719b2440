"""A Triton model repository for a workload, and the requests that its model answers.

The repository holds the incumbent: what a server starts with, and what a restarted server is back to.
"""

from __future__ import annotations

import json
import math
import shutil
import struct
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autotuner.cache import cache_directory
from autotuner.sandbox.wheels import Report, Wheel, to_stderr, unpacked
from autotuner.sandbox.workload import ModelKind, Workload

BACKENDS = Path(__file__).with_name("backends")
VERSION = "1"

MAGIKA = Wheel(
    name="magika",
    version="1.0.3",
    size_bytes=16_244_594,
    glibc=(2, 28),
    wanted=lambda path: "/models/standard_v3_3/" in path,
)
MAGIKA_MODEL = "magika/models/standard_v3_3"
MAGIKA_BYTES = 2048
MAGIKA_LABELS = 214
MAGIKA_SAMPLE_FILES = 64

EMULATED_INPUT = (1.0, 2.0, 3.0, 4.0)


@dataclass(frozen=True, slots=True)
class ReferenceRequests:
    """Inference requests over HTTP with binary tensors, one item each, and what a right answer looks like.

    path and headers are those of every request; bodies may be sent in any order, again and again.
    output_count: float32 values in an answer; output_sum: what they add up to.
    """

    path: str
    headers: Mapping[str, str]
    bodies: tuple[bytes, ...]
    output_count: int
    output_sum: float

    def answered_rightly(self, body: bytes) -> bool:
        """Whether the body of a response with status 200 carries the right values."""
        size = 4 * self.output_count
        if len(body) <= size:
            return False
        values = struct.unpack(f"<{self.output_count}f", body[-size:])
        return math.isclose(math.fsum(values), self.output_sum, rel_tol=1e-3)


def write_repository(
    workload: Workload, directory: Path, cache: Path | None = None, report: Report = to_stderr
) -> Path:
    """Write the repository with the one model (named as the workload) into `directory`, which is returned.

    Downloads the model file of an onnx workload at the first call (16 MB). Raises as `wheels.unpacked` does.
    """
    model = directory / workload.name
    version = model / VERSION
    version.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(BACKENDS / "dlpack.py", version / "dlpack.py")
    if workload.model is ModelKind.ONNX:
        shutil.copyfile(BACKENDS / "onnx_model.py", version / "model.py")
        shutil.copyfile(magika_directory(cache, report) / "model.onnx", version / "model.onnx")
    else:
        shutil.copyfile(BACKENDS / "emulated_gpu.py", version / "model.py")
    (model / "config.pbtxt").write_text(config_pbtxt(workload), "utf-8")
    return directory


def config_pbtxt(workload: Workload) -> str:
    """The text of config.pbtxt: the incumbent, and the emulated device's parameters."""
    if workload.model is ModelKind.ONNX:
        tensors = (
            f'name: "bytes" data_type: TYPE_INT32 dims: [{MAGIKA_BYTES}]',
            f'name: "target_label" data_type: TYPE_FP32 dims: [{MAGIKA_LABELS}]',
        )
    else:
        tensors = (
            f'name: "INPUT0" data_type: TYPE_FP32 dims: [{len(EMULATED_INPUT)}]',
            'name: "OUTPUT0" data_type: TYPE_FP32 dims: [1]',
        )
    incumbent = workload.incumbent
    lines = [
        f'name: "{workload.name}"',
        'backend: "python"',
        f"max_batch_size: {workload.max_batch_size}",
        f"input [{{ {tensors[0]} }}]",
        f"output [{{ {tensors[1]} }}]",
        "dynamic_batching {",
        *(f"  preferred_batch_size: {size}" for size in incumbent.preferred_batch_size),
        f"  max_queue_delay_microseconds: {incumbent.max_queue_delay_microseconds}",
        "}",
        f"instance_group [{{ kind: KIND_CPU count: {incumbent.instance_count} }}]",
        *(_parameter(name, value) for name, value in device_parameters(workload).items()),
    ]
    return "\n".join(lines) + "\n"


def _parameter(name: str, value: str) -> str:
    return f"parameters {{ key: {json.dumps(name)} value {{ string_value: {json.dumps(value)} }} }}"


def device_parameters(workload: Workload) -> dict[str, str]:
    """What the emulated GPU reads from the model's configuration; empty for a real model."""
    if workload.model is ModelKind.ONNX or workload.batch_latency_ms is None:
        return {}
    curve = {str(size): ms for size, ms in sorted(workload.batch_latency_ms.items())}
    parameters = {
        "batch_latency_ms": json.dumps(curve),
        "transfer_ms_per_item": str(workload.transfer_ms_per_item),
        "instance_memory_mb": str(workload.instance_memory_mb),
        "device_memory_mb": str(workload.device_memory_mb),
        "jitter_sigma": str(workload.jitter_sigma),
    }
    planted = workload.faults.model_dump(exclude_none=True) if workload.faults else {}
    return parameters | {name: str(value) for name, value in planted.items()}


def reference_requests(
    workload: Workload, cache: Path | None = None, report: Report = to_stderr
) -> ReferenceRequests:
    """The requests that the traffic source sends to the workload's model."""
    if workload.model is ModelKind.ONNX:
        features = magika_features(magika_directory(cache, report))
        size = len(features[0])
        tensors = [struct.pack(f"<{size}i", *row) for row in features]
        return _requests(
            workload.name, ("bytes", "INT32", size), "target_label", tensors, (MAGIKA_LABELS, 1.0)
        )
    tensors = [struct.pack(f"<{len(EMULATED_INPUT)}f", *EMULATED_INPUT)]
    described = ("INPUT0", "FP32", len(EMULATED_INPUT))
    return _requests(workload.name, described, "OUTPUT0", tensors, (1, sum(EMULATED_INPUT)))


def _requests(
    model: str, described: tuple[str, str, int], output: str, tensors: list[bytes], answer: tuple[int, float]
) -> ReferenceRequests:
    """Requests in Triton's binary tensor format: a JSON header whose length a header field tells, then the data."""
    name, datatype, size = described
    parameters = {"binary_data_size": len(tensors[0])}
    header = json.dumps(
        {
            "inputs": [{"name": name, "shape": [1, size], "datatype": datatype, "parameters": parameters}],
            "outputs": [{"name": output, "parameters": {"binary_data": True}}],
        },
        separators=(",", ":"),
    ).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(header)),
    }
    bodies = tuple(header + tensor for tensor in tensors)
    return ReferenceRequests(f"/v2/models/{model}/infer", headers, bodies, *answer)


def magika_directory(cache: Path | None = None, report: Report = to_stderr) -> Path:
    """The directory with Magika's `model.onnx` and its `config.min.json`, downloaded at the first call."""
    return unpacked(MAGIKA, cache or cache_directory(), report) / MAGIKA_MODEL


def magika_features(directory: Path) -> list[list[int]]:
    """Features of real files (Python's standard library) as the model's own configuration defines them.

    At most `block_size` bytes from each end of a file; white space is stripped at that end; the first `beg_size`
    and the last `end_size` of them, padded with `padding_token`. Shape (files, beg_size + end_size).
    """
    config = json.loads((directory / "config.min.json").read_text())
    return [_file_features(path.read_bytes(), config) for path in _sample_files()]


def _file_features(content: bytes, config: Mapping[str, int]) -> list[int]:
    block = min(config["block_size"], len(content))
    begin = content[:block].lstrip()[: config["beg_size"]]
    end = content[len(content) - block :].rstrip()[-config["end_size"] :]
    padding = [config["padding_token"]]
    behind = padding * (config["beg_size"] - len(begin))
    before = padding * (config["end_size"] - len(end))
    return [*begin, *behind, *before, *end]


@cache
def _sample_files() -> tuple[Path, ...]:
    """Files of the standard library that are long enough for the model to say something."""
    library = Path(sysconfig.get_path("stdlib"))
    found = sorted(path for path in library.iterdir() if path.is_file() and path.stat().st_size >= 1000)
    return tuple(found[:MAGIKA_SAMPLE_FILES])
