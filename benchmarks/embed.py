"""How fast images are embedded: PyTorch, OpenVINO and ONNX Runtime side by side, at equal outputs.

Prints one JSON line per net, size and engine: images per second (the best of three passes), and
the smallest cosine between its features and those of PyTorch in float32.

    python benchmarks/embed.py --nets efficientnet_lite0 efficientnet_lite2 --sizes 128 192
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from colafier._io import to_json
from colafier.embed.efficientnet_lite import BATCH, VARIANTS, EfficientNetLite, pretrained
from colafier.embed.openvino_net import Floats, Pixels, compiled

Engine = Callable[[Pixels], Floats]
PASSES = 3


def engines(net: EfficientNetLite, size: int, threads: int) -> Iterator[tuple[str, Engine]]:
    """The engines by name, each a function from images as bytes to features."""
    yield "torch", _torch(net, torch.float32)
    yield "torch bf16", _torch(net, torch.bfloat16)
    yield "onnxruntime", _onnx(net, size, threads)
    yield "openvino", compiled(net, size, threads)


def _torch(net: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> Engine:
    @torch.inference_mode()
    def run(images: Pixels) -> Floats:
        x = torch.from_numpy(images).contiguous(memory_format=torch.channels_last).float() / 255
        with torch.autocast("cpu", dtype, dtype != torch.float32):
            found: Floats = net(x).float().numpy()
        return found

    return run


def _onnx(net: EfficientNetLite, size: int, threads: int) -> Engine:
    import onnxruntime

    plain = net.to(memory_format=torch.contiguous_format)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "net.onnx"
        example = (torch.zeros(BATCH, 3, size, size),)
        torch.onnx.export(plain, example, path, dynamo=True, verbose=False, external_data=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    net.to(memory_format=torch.channels_last)
    name = session.get_inputs()[0].name

    def run(images: Pixels) -> Floats:
        found: Floats = session.run(None, {name: images.astype(np.float32) / 255})[0]
        return found

    return run


def measured(engine: Engine, images: Pixels) -> tuple[float, Floats]:
    """Images per second, and the features."""
    batches = [images[start : start + BATCH] for start in range(0, len(images), BATCH)]
    engine(batches[0])
    seconds = []
    for _ in range(PASSES):
        begin = time.perf_counter()
        features = np.concatenate([engine(batch) for batch in batches])
        seconds.append(time.perf_counter() - begin)
    return len(images) / min(seconds), features


def smallest_cosine(a: Floats, b: Floats) -> float:
    """Of the rows of two arrays (n, d)."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(1) / norms).min())


def main() -> None:
    """All nets, sizes and engines, one line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", default=["efficientnet_lite0"], choices=VARIANTS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[128])
    parser.add_argument("--images", type=int, default=16 * BATCH)
    args = parser.parse_args()
    threads = torch.get_num_threads()
    for name in args.nets:
        for size in args.sizes:
            shape = (args.images, 3, size, size)
            images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
            net = pretrained(name)
            speed, reference = 0.0, np.zeros(0, np.float32)
            for engine, run in engines(net, size, threads):
                rate, features = measured(run, images)
                if engine == "torch":
                    speed, reference = rate, features
                line = {
                    "benchmark": "embed",
                    "net": name,
                    "size": size,
                    "threads": threads,
                    "engine": engine,
                    "images_per_second": round(rate, 1),
                    "times_torch": round(rate / speed, 2),
                    "cosine": round(smallest_cosine(reference, features), 6),
                }
                sys.stdout.write(to_json(line) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
