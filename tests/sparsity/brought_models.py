"""Models as a newcomer would bring them, in plain torch, with widths for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.sparsity.brought_text import Encoder, FixedAttention, TiedText, TorchEncoder


class Small(nn.Module):
    """Two convolutions with batch norm, and a linear layer."""

    def __init__(self, **norm):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 3)
        self.norm1, self.norm2 = nn.BatchNorm2d(4, **norm), nn.BatchNorm2d(6, **norm)
        self.fc = nn.Linear(6, 5)

    def forward(self, x):
        x = torch.relu(self.norm1(self.conv1(x)))
        x = torch.relu(self.norm2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


class VGG(nn.Sequential):
    """Convolutions with batch norm and pooling, flattened (2 x 2) into linear layers."""

    def __init__(self, width: int = 8) -> None:
        layers: list[nn.Module] = []
        before = 3
        for after in (width, "pool", 2 * width, 2 * width, "pool"):
            if after == "pool":
                layers.append(nn.MaxPool2d(2))
                continue
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(True)]
            before = after
        head = [nn.Flatten(), nn.Linear(before * 4, 24), nn.ReLU(), nn.Dropout(0.1)]
        super().__init__(*layers, *head, nn.Linear(24, 10))


class Basic(nn.Module):
    """Two 3 x 3 convolutions around a shortcut."""

    growth = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(inputs, width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return functional.relu(out)


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions around a shortcut; the 3 x 3 one may be grouped."""

    growth = 4

    def __init__(self, inputs: int, width: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(inputs, 4 * width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Grouped(Bottleneck):
    """As in ResNeXt."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride, groups=4)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """Stages of residual blocks, each at half the size of the one before."""

    def __init__(self, block: Any, counts: list[int], width: int = 8, inputs: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        stages, before = [], width
        for stage, count in enumerate(counts):
            blocks = []
            for number in range(count):
                stride = 2 if stage and not number else 1
                blocks.append(block(before, width << stage, stride))
                before = (width << stage) * block.growth
            stages.append(nn.Sequential(*blocks))
        self.layers = nn.ModuleList(stages)
        self.fc = nn.Linear(before, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bn1(self.conv1(x)))
        for layer in self.layers:
            x = layer(x)
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


class SqueezeExcite(nn.Module):
    """Weigh channels by what their means say."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, width = x.shape[:2]
        scale = torch.sigmoid(self.up(functional.relu(self.down(x.mean((2, 3))))))
        return x * scale.view(batch, width, 1, 1)


class InvertedResidual(nn.Module):
    """Wide in the middle, where the convolution is depthwise."""

    def __init__(self, inputs: int, outputs: int, stride: int, squeeze: bool) -> None:
        super().__init__()
        inner = 3 * inputs
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(inplace=True),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.Hardswish(),
            SqueezeExcite(inner, 6) if squeeze else nn.Identity(),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.joined = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.joined else self.layers(x)


class MobileNet(nn.Module):
    """Depthwise separable blocks."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), nn.BatchNorm2d(width), nn.SiLU())
        self.blocks = nn.Sequential(
            InvertedResidual(width, width, 1, False),
            InvertedResidual(width, 2 * width, 2, True),
            InvertedResidual(2 * width, 2 * width, 1, True),
        )
        self.last = nn.Conv2d(2 * width, 4 * width, 1)
        self.act = nn.PReLU(4 * width)
        self.head = nn.Linear(4 * width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.last(self.blocks(self.stem(x))))
        return self.head(x.mean([2, 3]))


class DenseNet(nn.Module):
    """Every layer sees what all before it made."""

    def __init__(self, growth: int = 6, layers: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        width = 8
        self.norms, self.convs = nn.ModuleList(), nn.ModuleList()
        for _ in range(layers):
            self.norms.append(nn.BatchNorm2d(width))
            self.convs.append(nn.Conv2d(width, growth, 3, padding=1, bias=False))
            width += growth
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [self.stem(x)]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            made.append(conv(torch.relu(norm(torch.cat(made, 1)))))
        x = torch.relu(self.norm(torch.cat(made, dim=1)))
        return self.head(functional.avg_pool2d(x, x.shape[-1]).squeeze(-1).squeeze(-1))


class UNet(nn.Module):
    """Down and up again, with what was on the way down put beside."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.down1, self.down2 = self.twice(3, width), self.twice(width, 2 * width)
        self.middle = self.twice(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.join2 = self.twice(4 * width, 2 * width)
        self.join1 = self.twice(3 * width, width)
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def twice(inputs: int, outputs: int) -> nn.Module:
        layers: list[nn.Module] = []
        for before in (inputs, outputs):
            layers += [nn.Conv2d(before, outputs, 3, 1, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down1(x)
        second = self.down2(functional.max_pool2d(first, 2))
        x = self.up2(self.middle(functional.max_pool2d(second, 2)))
        x = self.join2(torch.cat([second, x], 1))
        x = functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.last(self.join1(torch.cat([x, first], 1)))


class Shuffled(nn.Module):
    """Grouped convolutions with a channel shuffle between, as in ShuffleNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 12, 3, 1, 1)
        self.conv2 = nn.Conv2d(12, 12, 1, groups=3, bias=False)
        self.conv3 = nn.Conv2d(12, 16, 3, 1, 1, groups=2)
        self.norm = nn.BatchNorm2d(16, track_running_stats=False)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        batch, width, height, breadth = x.shape
        x = x.view(batch, 3, width // 3, height, breadth).transpose(1, 2)
        x = self.conv3(x.reshape(batch, width, height, breadth))
        return self.head(torch.relu(self.norm(x)).amax((2, 3)))


class AutoEncoder(nn.Module):
    """Flattened, through a narrow layer, and folded into an image again."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 12, 3, 2, 1)
        self.code, self.spread = nn.Linear(48, 8), nn.Linear(8, 48)
        self.deconv1 = nn.ConvTranspose2d(12, 6, 4, 2, 1)
        self.deconv2 = nn.ConvTranspose2d(6, 3, 4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.leaky_relu(self.conv2(functional.elu(self.conv1(x))), 0.1)
        x = torch.relu(self.spread(self.code(x.flatten(1)))).view(len(x), -1, 2, 2)
        return torch.sigmoid(self.deconv2(torch.relu(self.deconv1(x))))


class GroupNormed(nn.Sequential):
    """Widths that feed a group norm, and one that feeds none."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 3, 1, 1),
            nn.GroupNorm(4, 8),
            nn.ReLU(),
            nn.Conv2d(8, 12, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(12, 8, 3, 1, 1),
            nn.GroupNorm(2, 8),
            nn.Flatten(),
            nn.Linear(512, 10),
        )


def images(size: int = 8, batch: int = 3) -> torch.Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(1))


def tokens(kinds: int = 20) -> torch.Tensor:
    return torch.randint(kinds, (3, 7), generator=torch.Generator().manual_seed(1))


BROUGHT: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "vgg": (VGG, images),
    "resnet18": (lambda: ResNet(Basic, [2, 2, 2, 2]), images),
    "resnet50": (lambda: ResNet(Bottleneck, [3, 4, 6, 3], 4), images),
    "resnext": (lambda: ResNet(Grouped, [1, 1]), images),
    "mobilenet": (MobileNet, images),
    "densenet": (DenseNet, images),
    "unet": (UNet, images),
    "encoder": (Encoder, tokens),
    "fixed encoder": (lambda: Encoder(FixedAttention), tokens),
    "torch encoder": (TorchEncoder, tokens),
    "tied": (TiedText, tokens),
    "shuffled": (Shuffled, images),
    "autoencoder": (AutoEncoder, images),
    "group norm": (GroupNormed, images),
}


def bring(name: str, seed: int = 0) -> tuple[nn.Module, torch.Tensor]:
    """A model in which every channel counts, and an input for it."""
    make, example = BROUGHT[name]
    torch.manual_seed(seed)
    model = make()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.3)
                if module.running_mean is not None:
                    module.running_mean.normal_(0, 0.3)
                    module.running_var.uniform_(0.5, 2)
    return model, example()
