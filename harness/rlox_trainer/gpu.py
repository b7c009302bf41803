"""GPU utilisation, sampled through NVML by a thread; nothing where there is no GPU.

NVML is called through ctypes: it comes with the driver, so no package is needed, and `nvidia-smi`
would start a process per sample inside the process whose children the trial counts.
"""

from __future__ import annotations

import ctypes
import os
import threading

INTERVAL_SECS = 0.25


class Utilization(ctypes.Structure):
    """nvmlUtilization_t: percent of the last sampling period."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class GpuSampler:
    """Mean utilisation of the first visible GPU since it was last asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: list[int] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml, self._device = open_first_gpu()
        if self._nvml is not None:
            self._thread = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)
            self._thread.start()

    def take(self) -> float | None:
        """Percent, or None without a GPU or without a sample; starts the next period."""
        with self._lock:
            values, self._values = self._values, []
        return sum(values) / len(values) if values else None

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        assert self._nvml is not None
        reading = Utilization()
        while not self._stop.wait(INTERVAL_SECS):
            if self._nvml.nvmlDeviceGetUtilizationRates(self._device, ctypes.byref(reading)) == 0:
                with self._lock:
                    self._values.append(reading.gpu)


def open_first_gpu() -> tuple[ctypes.CDLL | None, ctypes.c_void_p]:
    """NVML and a handle of the GPU that CUDA calls number 0, or None."""
    device = ctypes.c_void_p()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None, device
    if nvml.nvmlInit_v2() != 0:
        return None, device
    if visible.isdecimal():
        code = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(visible)), ctypes.byref(device))
    else:
        code = nvml.nvmlDeviceGetHandleByUUID(visible.encode(), ctypes.byref(device))
    return (nvml, device) if code == 0 else (None, device)
