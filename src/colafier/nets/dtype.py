"""Reduced precision lives in the backbone alone; heads, LID, losses and tables stay float32."""

import torch

DTYPES = ("auto", "float32", "bf16")


def check_dtype(dtype: str) -> None:
    """Refuse what is none of `DTYPES`."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype is one of {', '.join(DTYPES)}, not {dtype!r}")


def backbone_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The number type a backbone computes in; `auto` takes bf16 only where the hardware gains.

    Without native bf16 arithmetic it is emulated: a ResNet step was seen to take ten times longer.
    """
    check_dtype(dtype)
    if dtype == "auto":
        return torch.bfloat16 if _gains_from_bf16(device) else torch.float32
    return torch.bfloat16 if dtype == "bf16" else torch.float32


def _gains_from_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    if device.type == "cpu":
        # mkldnn says yes to every AVX-512, also where its bf16 instructions are missing
        emulated = torch.cpu._is_avx512_supported() and not torch.cpu._is_avx512_bf16_supported()
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and not emulated
    return False
