"""The emulated GPU: a model for Triton's Python backend that takes the time and memory a real one would.

Becomes `model.py` in a model repository and runs in the server's stub processes, one per instance. Nothing is
computed: a batch of n items sleeps for the transfer (instances overlap there), then holds the device's lock while it
sleeps for the compute time of n (one instance at a time, as kernels that fill a GPU do). All instances of one
tritonserver share one emulated device: the lock and the memory ledger in $EMULATED_GPU_DIRECTORY.

Parameters, as strings in config.pbtxt:
  batch_latency_ms       JSON object: batch size to exclusive compute time, linear between the points
  transfer_ms_per_item   overlapping time for each item of a batch
  instance_memory_mb     memory that one instance takes; device_memory_mb: what the device has
  jitter_sigma           log-normal spread of the compute time, mean kept (0: none); jitter_seed
Faults to be rehearsed; each concerns configurations with exactly that max_queue_delay_microseconds:
  fail_load_when_delay_us   loading fails
  hang_load_when_delay_us   loading never ends
  slow_when_delay_us        compute takes five times as long
"""

import asyncio  # noqa: F401  the stub imports it after the first batch; here no request waits for that
import bisect
import contextlib
import ctypes
import fcntl
import json
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dlpack  # copied beside this file
import numpy as np
import triton_python_backend_utils as pb_utils

DEVICE_VARIABLE = "EMULATED_GPU_DIRECTORY"
MEGABYTE = 1_000_000
PUBLISH_SECONDS = 0.1
SLOW_FACTOR = 5.0
PR_SET_TIMERSLACK = 29


class Curve:
    """Compute time by batch size: linear between the given points, constant beyond them."""

    def __init__(self, points_ms: dict[int, float]) -> None:
        self._sizes = sorted(points_ms)
        self._seconds = [points_ms[size] / 1e3 for size in self._sizes]

    def seconds(self, items: int) -> float:
        """Compute time of a batch."""
        right = bisect.bisect_left(self._sizes, items)
        if right == len(self._sizes):
            return self._seconds[-1]
        if right == 0 or self._sizes[right] == items:
            return self._seconds[right]
        low, high = self._sizes[right - 1], self._sizes[right]
        share = (items - low) / (high - low)
        return self._seconds[right - 1] + share * (self._seconds[right] - self._seconds[right - 1])


class Device:
    """One emulated GPU, shared by the instance processes of one server through files in one directory."""

    def __init__(self, directory: Path, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._ledger = directory / "memory.json"
        self._compute = os.open(directory / "compute.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._memory = os.open(directory / "memory.lock", os.O_RDWR | os.O_CREAT, 0o600)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """The device for this process alone; the kernel releases it when the process dies."""
        fcntl.flock(self._compute, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._compute, fcntl.LOCK_UN)

    def allocate(self, wanted_bytes: int) -> None:
        """Enter this process in the ledger; raises MemoryError when the device has not that much left."""
        with self._entries() as entries:
            used = sum(entries.values())
            if used + wanted_bytes > self.total_bytes:
                raise MemoryError(
                    f"emulated GPU out of memory: tried to allocate {wanted_bytes // MEGABYTE} MB,"
                    f" {used // MEGABYTE} of {self.total_bytes // MEGABYTE} MB in use by {len(entries)} instances"
                )
            entries[_identity(os.getpid())] = wanted_bytes

    def release(self) -> None:
        """Take this process out of the ledger."""
        with self._entries() as entries:
            entries.pop(_identity(os.getpid()), None)

    def used_bytes(self) -> int:
        """What all living instances have allocated."""
        with self._entries() as entries:
            return sum(entries.values())

    @contextlib.contextmanager
    def _entries(self) -> Iterator[dict[str, int]]:
        """The ledger (living processes only) under its lock; written back when it was changed."""
        fcntl.flock(self._memory, fcntl.LOCK_EX)
        try:
            text = self._ledger.read_text() if self._ledger.exists() else "{}"
            entries = {
                who: size for who, size in json.loads(text).items() if who == _identity(who.split(":")[0])
            }
            yield entries
            if (changed := json.dumps(entries)) != text:
                scratch = self._ledger.with_suffix(".new")
                scratch.write_text(changed)
                scratch.replace(self._ledger)
        finally:
            fcntl.flock(self._memory, fcntl.LOCK_UN)


def _identity(process_id: object) -> str:
    """Process id and start time, `pid:ticks`: survives the reuse of ids; empty for a dead process or a zombie."""
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else f"{process_id}:{fields[19]}"


class Metrics:
    """What the server's /metrics tells of the emulated device; published off the request path."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._unpublished_us = 0
        self._published_bytes = -1
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        counter, gauge = pb_utils.MetricFamily.COUNTER, pb_utils.MetricFamily.GAUGE
        self._families = {
            "busy": pb_utils.MetricFamily(
                name="emulated_gpu_busy_microseconds_total",
                description="Time the emulated GPU was computing, in microseconds",
                kind=counter,
            ),
            "used": pb_utils.MetricFamily(
                name="emulated_gpu_memory_used_bytes",
                description="Memory of the emulated GPU that model instances have allocated",
                kind=gauge,
            ),
            "total": pb_utils.MetricFamily(
                name="emulated_gpu_memory_total_bytes",
                description="Memory that the emulated GPU has",
                kind=gauge,
            ),
        }
        labels = {"gpu": "emulated-0"}
        self._metrics = {name: family.Metric(labels=labels) for name, family in self._families.items()}
        self._thread = threading.Thread(target=self._publish_forever, name="metrics", daemon=True)

    def start(self) -> None:
        """Publish now and from now on."""
        self._publish()
        self._thread.start()

    def add_busy(self, seconds: float) -> None:
        """Count compute time."""
        with self._lock:
            self._unpublished_us += round(seconds * 1e6)

    def stop(self) -> None:
        """Publish what is left and end."""
        self._stopped.set()
        self._thread.join()
        self._publish()

    def _publish_forever(self) -> None:
        while not self._stopped.wait(PUBLISH_SECONDS):
            self._publish()

    def _publish(self) -> None:
        with self._lock:
            busy_us, self._unpublished_us = self._unpublished_us, 0
        if busy_us:
            self._metrics["busy"].increment(busy_us)
        used_bytes = self._device.used_bytes()
        if used_bytes != self._published_bytes:
            self._metrics["used"].set(used_bytes)
            self._metrics["total"].set(self._device.total_bytes)
            self._published_bytes = used_bytes


class TritonPythonModel:
    """The interface that Triton's Python backend calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Allocate the instance's memory; raises TritonModelException when the device has not enough."""
        config = json.loads(args["model_config"])
        parameters = {name: entry["string_value"] for name, entry in config["parameters"].items()}
        delay_us = str(config.get("dynamic_batching", {}).get("max_queue_delay_microseconds", 0))
        _rehearse_load_faults(parameters, delay_us)
        self._curve = Curve(
            {int(size): ms for size, ms in json.loads(parameters["batch_latency_ms"]).items()}
        )
        self._transfer_seconds = float(parameters["transfer_ms_per_item"]) / 1e3
        self._factor = SLOW_FACTOR if parameters.get("slow_when_delay_us") == delay_us else 1.0
        self._sigma = float(parameters.get("jitter_sigma", "0"))
        self._random = random.Random(f"{parameters.get('jitter_seed', '0')} {args['model_instance_name']}")
        self._device = Device(
            Path(os.environ[DEVICE_VARIABLE]), int(float(parameters["device_memory_mb"]) * MEGABYTE)
        )
        try:
            self._device.allocate(int(float(parameters["instance_memory_mb"]) * MEGABYTE))
        except MemoryError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        self._metrics = Metrics(self._device)
        self._metrics.start()
        _sharpen_timer()
        pb_utils.Logger.log_info(
            f"emulated GPU: instance {args['model_instance_name']} (no real GPU is used)"
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        """Take the time of one batch, then answer each request with the sum of its items."""
        inputs = [dlpack.input_array(request, "INPUT0") for request in requests]
        items = sum(len(array) for array in inputs)
        _sleep_until(time.monotonic() + self._transfer_seconds * items)
        compute_seconds = self._curve.seconds(items) * self._factor * self._jitter()
        with self._device.exclusive():
            started = time.monotonic()
            _sleep_until(started + compute_seconds)
            busy_seconds = time.monotonic() - started
        self._metrics.add_busy(busy_seconds)
        return [_response(array) for array in inputs]

    def _jitter(self) -> float:
        if self._sigma == 0:
            return 1.0
        return math.exp(self._random.gauss(0.0, self._sigma) - self._sigma**2 / 2)

    def finalize(self) -> None:
        """Give the memory back."""
        self._device.release()
        self._metrics.stop()


def _rehearse_load_faults(parameters: dict[str, str], delay_us: str) -> None:
    if parameters.get("fail_load_when_delay_us") == delay_us:
        raise pb_utils.TritonModelException(
            f"emulated GPU: planted failure for a queue delay of {delay_us} us"
        )
    if parameters.get("hang_load_when_delay_us") == delay_us:
        pb_utils.Logger.log_info(f"emulated GPU: planted hang for a queue delay of {delay_us} us")
        while True:
            time.sleep(1)


def _sharpen_timer() -> None:
    """Let this thread's sleeps end within microseconds instead of the default 50 late."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


def _sleep_until(deadline: float, sleep: Callable[[float], None] = time.sleep) -> None:
    if (remaining := deadline - time.monotonic()) > 0:
        sleep(remaining)


def _response(array: np.ndarray[Any, Any]) -> Any:
    total = array.sum(axis=1, keepdims=True, dtype=np.float32)
    return pb_utils.InferenceResponse(output_tensors=[dlpack.output_tensor("OUTPUT0", total)])
