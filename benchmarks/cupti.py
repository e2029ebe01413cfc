"""What a GPU did and when, from CUPTI, NVIDIA's interface for profilers.

Whoever launched a kernel (JAX, CuPy, CUDA by hand), its start and its end are noted by the device
in the same way, so no peer is charged for the host's part of a launch or for gaps between kernels.

Source of the records' layout: ``cupti_activity.h``; the fields read here are where they are in
every version since CUDA 9.
"""

import ctypes
import glob
import os
import site
from typing import NamedTuple

_MEMCPY, _MEMSET, _KERNEL = 1, 2, 10  # CUpti_ActivityKind; kernels without serialising them
_FORCED = 1
_BUFFER = 8 << 20


class Activity(NamedTuple):
    """A kernel, a copy or a memset.

    Attributes:
      start: in nanoseconds.
      end: likewise.
      name: of a kernel, mangled; "memcpy" and "memset" of the others.
    """

    start: int
    end: int
    name: str


class _Record(ctypes.Structure):
    """The fields that kernels, copies and memsets have at the same place, and a kernel's name."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("_unused", ctypes.c_uint32 * 3),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("_of_kernels", ctypes.c_uint8 * 72),
        ("name", ctypes.c_char_p),
    )


_Requested = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_Completed = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


class Recorder:
    """Records what all GPUs of this process do, from now on.

    Raises:
      OSError: there is no CUPTI.
    """

    def __init__(self) -> None:
        self._library = _library()
        self._buffers: dict[int, ctypes.Array] = {}
        self._activities: list[Activity] = []
        self._callbacks = _Requested(self._requested), _Completed(self._completed)
        self._check("cuptiActivityRegisterCallbacks", *self._callbacks)
        for kind in (_KERNEL, _MEMCPY, _MEMSET):
            self._check("cuptiActivityEnable", kind)

    def take(self) -> list[Activity]:
        """What was done since the last time, in order; all of it must have come to an end."""
        self._check("cuptiActivityFlushAll", _FORCED)
        taken, self._activities = self._activities, []
        return sorted(taken)

    def _check(self, function: str, *arguments: object) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            raise OSError(f"{function} returned {status}")

    def _requested(self, buffer, size, records):
        memory = ctypes.create_string_buffer(_BUFFER)
        address = ctypes.addressof(memory)
        self._buffers[address] = memory
        buffer[0], size[0], records[0] = address, _BUFFER, 0  # as many records as fit

    def _completed(self, _context, _stream, buffer, _size, valid):
        record = ctypes.c_void_p()
        following = self._library.cuptiActivityGetNextRecord
        while not following(ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)):
            kind = ctypes.cast(record, ctypes.POINTER(ctypes.c_uint32))[0]
            found = ctypes.cast(record, ctypes.POINTER(_Record))[0]
            if kind == _KERNEL:
                name = found.name.decode()
            else:  # its record ends before a kernel's name
                name = "memcpy" if kind == _MEMCPY else "memset"
            self._activities.append(Activity(found.start, found.end, name))
        del self._buffers[buffer]


def _library() -> ctypes.CDLL:
    """CUPTI as JAX's wheels bring it along, or the system's."""
    folders = site.getsitepackages()
    patterns = [os.path.join(folder, "nvidia/*/lib/libcupti.so.1*") for folder in folders]
    wheels = [path for pattern in patterns for path in sorted(glob.glob(pattern), reverse=True)]
    for name in (*wheels, "libcupti.so.13", "libcupti.so.12", "libcupti.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("CUPTI is not installed: it comes with the wheel nvidia-cuda-cupti")
