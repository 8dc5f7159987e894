"""Devices: published figures of accelerators and processors, each with its source. No torch.

Peaks are dense; where a sheet gives only the figure with sparsity it is halved. Half precision is that of matrix units that add
in float32. kind says how far a figure may be trusted:

    carried over  LLM-Viewer's table, hardwares/hardware_params.py, unedited
    vendor        of the maker's sheet, compared with published copies of it
    recalled      of the maker's sheet, recalled and compared with nothing
    derived       bandwidth of the maker's sheet; the peak is computed from cores, clock and operations, as the source says

No bandwidth of a cache is listed: LLM-Viewer's on-chip buffers are the register files, which never hold weights.
"""

from __future__ import annotations

from .roofline import HardwareProfile, Kind

_VIEWER = "LLM-Viewer, hardwares/hardware_params.py"
_CORES = "cores x 128 lanes x 2"


def _device(
    name: str,
    gb_s: float,
    fp16: float,
    int8: float | None,
    kind: Kind = "carried over",
    source: str = _VIEWER,
    gb: float | None = None,
    fp32: float | None = None,
) -> HardwareProfile:
    """GB/s, TFLOP/s and GB to bytes/s, FLOP/s and bytes."""
    listed = {"float16": fp16, "int8": int8, "float32": fp32}
    peaks = {dtype: x * 1e12 for dtype, x in listed.items() if x is not None}
    return HardwareProfile(
        name, peaks, gb_s * 1e9, source=source, kind=kind, memory_bytes=None if gb is None else gb * 1e9
    )


def _apple(name: str, gb_s: float, tflops: float, kind: Kind, source: str, gb: float) -> HardwareProfile:
    """One figure covers single and half precision: the units have the same rate in both."""
    return _device(name, gb_s, tflops, None, kind, source, gb, fp32=tflops)


def _cpu(
    name: str, gb_s: float, cores: int, ghz: float, each: int, what: str, half: int | None = None
) -> HardwareProfile:
    """each: operations a cycle of a core in float32; half: in bfloat16, twice that if not given."""
    fp32, rate = cores * ghz * each / 1e3, 2 * each if half is None else half
    source = f"{what}; peak {cores} cores x {ghz} GHz (base) x {each}, in bfloat16 x {rate}"
    return _device(name, gb_s, cores * ghz * rate / 1e3, None, "derived", source, fp32=fp32)


_CARRIED = {
    "v100": _device("V100", 900, 112, 62),
    "a6000": _device("A6000", 768, 309.677 / 2, 309.7, gb=48),
    "a100-40g": _device("A100 40 GB", 1555, 312, 624, gb=40),
    "a100-80g": _device("A100 80 GB, A800 80 GB SXM", 2039, 312, 624, gb=80),
    "a40": _device("A40", 696, 149.7, 299.3, gb=48),
    "h100-sxm": _device("H100 SXM", 3072, 1979 / 2, 1979, gb=80),
    "h100-sxm-vendor": _device(
        "H100 SXM (data sheet)",
        3350,
        1979 / 2,
        1979,
        "vendor",
        "NVIDIA H100 data sheet, dense (sparse / 2)",
        80,
    ),
    "h100-pcie": _device("H100 PCIe", 2048, 1513 / 2, 1513, gb=80),
    "l40": _device("L40", 864, 181, 362, gb=48),
    "i9-13900k": _device(
        "Core i9-13900K",
        89.6,
        1.3824,
        None,
        source=_VIEWER + ": 8 cores x 5.4 GHz x 32, which assumes AVX-512",
    ),
}

_CENTRE = {
    "t4": _device("T4", 320, 65, 130, "vendor", "NVIDIA T4 data sheet", 16),
    "a10": _device("A10", 600, 125, 250, "recalled", "NVIDIA A10 data sheet", 24),
    "a30": _device("A30", 933, 165, 330, "recalled", "NVIDIA A30 data sheet", 24),
    "l4": _device("L4", 300, 242 / 2, 485 / 2, "vendor", "NVIDIA L4 data sheet, dense (sparse / 2)", 24),
    "l40s": _device("L40S", 864, 362, 733, "vendor", "NVIDIA L40S data sheet, dense", 48),
    "h200": _device(
        "H200 SXM", 4800, 1979 / 2, 1979, "vendor", "NVIDIA H200 data sheet, dense (sparse / 2)", 141
    ),
    "b200": _device(
        "B200 SXM", 8000, 2250, 4500, "vendor", "NVIDIA Blackwell architecture brief, dense (sparse / 2)", 180
    ),
    "mi210": _device("Instinct MI210", 1638.4, 181, 181, "recalled", "AMD Instinct MI210 data sheet", 64),
    "mi250x": _device(
        "Instinct MI250X", 3276.8, 383, 383, "vendor", "AMD Instinct MI250X data sheet, two dies", 128
    ),
    "mi300x": _device(
        "Instinct MI300X", 5300, 1307.4, 2614.9, "vendor", "AMD Instinct MI300X data sheet, dense", 192
    ),
}

_DESK = {
    "rtx-3060": _device(
        "GeForce RTX 3060",
        360,
        25.5,
        101.9,
        "derived",
        "NVIDIA specifications; twice 12.74 TFLOP/s in float32",
        12,
    ),
    "rtx-3080": _device(
        "GeForce RTX 3080", 760, 59.5, 238, "recalled", "NVIDIA Ampere GA102 whitepaper, dense", 10
    ),
    "rtx-3090": _device(
        "GeForce RTX 3090", 936, 71, 284, "recalled", "NVIDIA Ampere GA102 whitepaper, dense", 24
    ),
    "rtx-4060": _device(
        "GeForce RTX 4060",
        272,
        30.2,
        120.9,
        "derived",
        "NVIDIA specifications; twice 15.11 TFLOP/s in float32",
        8,
    ),
    "rtx-4080": _device(
        "GeForce RTX 4080", 716.8, 97.5, 389.9, "recalled", "NVIDIA Ada architecture whitepaper, dense", 16
    ),
    "rtx-4090": _device(
        "GeForce RTX 4090", 1008, 165.2, 660.6, "vendor", "NVIDIA Ada architecture whitepaper, dense", 24
    ),
    "rtx-5080": _device(
        "GeForce RTX 5080", 960, 112.6, 450.2, "recalled", "NVIDIA RTX Blackwell whitepaper, dense", 16
    ),
    "rtx-5090": _device(
        "GeForce RTX 5090", 1792, 209.5, 838, "vendor", "NVIDIA RTX Blackwell whitepaper, dense", 32
    ),
    "rx-7900-xtx": _device(
        "Radeon RX 7900 XTX", 960, 122.8, 122.8, "recalled", "AMD Radeon RX 7900 XTX specifications", 24
    ),
}

_APPLE = {
    "m1": _apple("Apple M1", 68.25, 2.6, "recalled", "Apple, announcement of M1, 8 GPU cores", 16),
    "m1-pro": _apple(
        "Apple M1 Pro", 204.8, 5.2, "recalled", "Apple, announcement of M1 Pro, 16 GPU cores", 32
    ),
    "m1-max": _apple(
        "Apple M1 Max", 409.6, 10.4, "recalled", "Apple, announcement of M1 Max, 32 GPU cores", 64
    ),
    "m1-ultra": _apple(
        "Apple M1 Ultra", 800, 21, "recalled", "Apple, announcement of M1 Ultra, 64 GPU cores", 128
    ),
    "m2": _apple("Apple M2", 102.4, 3.6, "recalled", "Apple, announcement of M2, 10 GPU cores", 24),
    "m3-max": _apple(
        "Apple M3 Max", 400, 14.3, "derived", f"Apple, specifications of M3 Max; 40 {_CORES} x 1.398 GHz", 128
    ),
    "m4": _apple(
        "Apple M4", 120, 3.76, "derived", f"Apple, specifications of M4; 10 {_CORES} x 1.47 GHz", 32
    ),
    "m4-pro": _apple(
        "Apple M4 Pro", 273, 7.53, "derived", f"Apple, specifications of M4 Pro; 20 {_CORES} x 1.47 GHz", 64
    ),
    "m4-max": _apple(
        "Apple M4 Max", 546, 15.1, "derived", f"Apple, specifications of M4 Max; 40 {_CORES} x 1.47 GHz", 128
    ),
}

_CPUS = {
    "epyc-7763": _cpu(
        "EPYC 7763", 204.8, 64, 2.45, 32, "AMD specifications, 8 channels of DDR4-3200, AVX2", half=32
    ),
    "epyc-9654": _cpu(
        "EPYC 9654", 460.8, 96, 2.4, 32, "AMD specifications, 12 channels of DDR5-4800, AVX-512"
    ),
    "xeon-8480": _cpu(
        "Xeon Platinum 8480+",
        307.2,
        56,
        2.0,
        64,
        "Intel specifications, 8 channels of DDR5-4800, AMX",
        half=1024,
    ),
    "ryzen-7950x": _cpu(
        "Ryzen 9 7950X", 83.2, 16, 4.5, 32, "AMD specifications, 2 channels of DDR5-5200, AVX-512"
    ),
}

DEVICES: dict[str, HardwareProfile] = {**_CARRIED, **_CENTRE, **_DESK, **_APPLE, **_CPUS}
