"""The number type of backbones, float32 or bf16; everything outside of them stays float32."""

import torch

DTYPES = ("auto", "float32", "bf16")


def check_dtype(dtype: str) -> None:
    """Refuse a name that is not in `DTYPES`."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")


def backbone_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The number type that a backbone computes in; `auto` is bf16 only if that is faster.

    Without native bf16 arithmetic it is emulated, and a ResNet step takes ten times longer.
    """
    check_dtype(dtype)
    if dtype == "auto":
        return torch.bfloat16 if _gains_from_bf16(device) else torch.float32
    return torch.bfloat16 if dtype == "bf16" else torch.float32


def _gains_from_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    if device.type == "cpu":
        # mkldnn reports support for every AVX-512 CPU, even without its bf16 instructions
        emulated = torch.cpu._is_avx512_supported() and not torch.cpu._is_avx512_bf16_supported()
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and not emulated
    return False
