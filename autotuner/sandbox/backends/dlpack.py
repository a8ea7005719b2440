"""Tensors in and out of Triton's Python backend, whatever numpy the interpreter has.

Copied into each model's version directory and imported by its model.py inside the server's stub process.

The stub was compiled against numpy 1. With numpy 2 its own conversions misread the item size, so inputs come out
wrong and outputs are refused. The DLPack protocol does not pass through numpy's C structures and works with both.
For outputs the capsule is made here: numpy's own one prints an error for each response, because the stub renames
a consumed capsule differently than numpy expects.
"""

import ctypes
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

CPU = 1
TYPE_CODES = {"i": 0, "u": 1, "f": 2}


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


Array = np.ndarray[Any, Any]

_in_use: dict[int, tuple[_DLManagedTensor, Array]] = {}


def _forget(address: int) -> None:
    _in_use.pop(address, None)


_release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_forget)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def input_array(request: Any, name: str) -> Array:
    """The named input of a request as a read-only array that shares the request's memory."""
    return np.from_dlpack(pb_utils.get_input_tensor_by_name(request, name))


def output_tensor(name: str, array: Array) -> Any:
    """A Triton tensor that shares the memory of `array` (numbers only), kept until the server has read it."""
    array = np.ascontiguousarray(array)
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    managed = _DLManagedTensor(
        tensor=_DLTensor(
            data=array.ctypes.data,
            device_type=CPU,
            device_id=0,
            dimensions=array.ndim,
            type_code=TYPE_CODES[array.dtype.kind],
            type_bits=8 * array.dtype.itemsize,
            type_lanes=1,
            shape=shape,
            strides=None,
            byte_offset=0,
        ),
        context=None,
        deleter=ctypes.cast(_release, ctypes.c_void_p),
    )
    address = ctypes.addressof(managed)
    _in_use[address] = (managed, array)
    return pb_utils.Tensor.from_dlpack(name, _new_capsule(address, b"dltensor", None))
