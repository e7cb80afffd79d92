"""CoLafier in a plain PyTorch loop, with the pieces of `colafier.core` only.

scikit-learn's digits get wrong labels on purpose. Two subnets are trained on two views of each row,
and after each step the labels of its rows are replaced by the proposed ones.

    python examples/plain_loop.py --epochs 30
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from colafier.core.config import ADAPTIVE
from colafier.core.functional import draw_other
from colafier.core.step import colafier_step
from colafier.core.subnets import LidDis, LidGen
from colafier.nets import net_factory

CLASSES = 10


def noisy_digits(rate: float) -> tuple[Tensor, Tensor, Tensor]:
    """Rows (n, 64), their true labels (n,), and labels of which a share is wrong (n,)."""
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16  # (n, 64)
    truth = torch.tensor(data.target)  # (n,)
    wrong = torch.rand(len(truth)) < rate
    return x, truth, torch.where(wrong, draw_other(truth, CLASSES), truth)


def two_views(x: Tensor) -> list[Tensor]:
    """The rows with a little noise, and with more noise and some values left out."""
    weak = x + 0.05 * torch.randn_like(x)
    strong = (x + 0.1 * torch.randn_like(x)) * (torch.rand_like(x) > 0.1)
    return [weak, strong]


def train(epochs: int, rate: float, seed: int = 0) -> tuple[float, float]:
    """Label accuracy before and after."""
    torch.manual_seed(seed)
    x, truth, labels = noisy_digits(rate)
    before = (labels == truth).float().mean()
    make_net = net_factory("mlp", (x.shape[1],), CLASSES)
    gen = LidGen(make_net())
    dis = LidDis(make_net().backbone, CLASSES, ADAPTIVE.embedding_scale)
    optimizer = torch.optim.AdamW([*gen.parameters(), *dis.parameters()], lr=1e-3)
    for epoch in range(epochs):
        levels = ADAPTIVE.levels(epoch, epochs)  # None during warm-up
        for rows in torch.randperm(len(x)).split(128):
            step = colafier_step(gen, dis, two_views(x[rows]), labels[rows], ADAPTIVE, levels)
            optimizer.zero_grad()
            step.loss.backward()
            optimizer.step()
            if step.proposed is not None:
                labels[rows] = step.proposed
    after = (labels == truth).float().mean()
    return float(before), float(after)


def main() -> None:
    """Train, and print how many labels are right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--noise", type=float, default=0.4, help="share of wrong labels")
    args = parser.parse_args()
    before, after = train(args.epochs, args.noise)
    print(f"right labels: {before:.1%} before, {after:.1%} after")  # noqa: T201


if __name__ == "__main__":
    main()
