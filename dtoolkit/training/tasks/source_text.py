"""A byte-level language model of the standard library's own source text."""

from __future__ import annotations

import math
import sysconfig
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dtoolkit.training.task import Examples, Task
from dtoolkit.training.tasks.language import GruLanguageModel, Transformer
from dtoolkit.training.tasks.options import Make, chosen_optimizer, count, number

__all__ = ["text"]

# Modules that Python 3.11 to 3.13 have alike; together 2.1 MB and 200 kB. Their order is fixed.
_TRAIN = (
    *("argparse", "ast", "base64", "bdb", "calendar", "codecs", "collections/__init__"),
    *("configparser", "contextlib", "copy", "csv", "dataclasses", "difflib", "dis", "enum"),
    *("fractions", "functools", "gettext", "gzip", "heapq", "inspect", "ipaddress"),
    *("json/decoder", "logging/__init__", "ntpath", "pickle", "platform", "posixpath", "random"),
    *("shutil", "smtplib", "socket", "statistics", "string", "subprocess", "tarfile", "tempfile"),
    *("threading", "traceback", "types", "typing", "unittest/mock", "urllib/parse", "warnings"),
    "weakref",
)
_TEST = (
    *("bisect", "cmd", "fnmatch", "glob", "hashlib", "json/encoder", "locale", "operator"),
    *("queue", "sched", "shlex", "textwrap"),
)


def text(
    *,
    model: Literal["transformer", "gru"] = "transformer",
    width: int = 64,
    layers: int = 2,
    heads: int = 4,
    context: int = 64,
    train_bytes: int = 600_000,
    test_bytes: int = 64_000,
    tied: bool = True,
    dropout: float = 0.0,
    batch: int = 32,
    lr: float | None = None,
    optimizer: str | Make = "adam",
) -> Task:
    """Predict the next byte of Python's standard library from those before it.

    Inputs are uint8 of shape (n, context), bytes of a file; targets uint8 of the same shape, the
    byte after each. A sample is a stretch of one file, and stretches do not overlap. Files, not
    stretches, are split into those to learn from and those for the test, by fixed lists of modules
    that Python 3.11 to 3.13 share, taken in the order of the list until there are enough bytes.
    Their content is that of the running interpreter: figures differ a little by version.

    Losses and metrics are means over the bytes of a sample. Test bits per byte after 300 steps in
    one process (measured with Python 3.11; mean and range of the seeds 0 to 2): 2.930, 2.926 to
    2.936; untied 2.935; a GRU of one layer 3.23; with plain SGD 3.65.

    Parameters
    ----------
    model : {"transformer", "gru"}
        Causal transformer with layer norm before each block, or a recurrent network.
    width, layers, heads : int
        Size of the model; ``heads`` is of the transformer alone and must divide ``width``.
    context : int
        Bytes of a sample.
    train_bytes, test_bytes : int
        How much to learn from and to test on, at most; there are about 2.1 MB and 200 kB.
    tied : bool
        Use one matrix of shape (256, width) both for reading bytes and for predicting them.
    dropout : float
        Share of features that are left out at random while learning.
    batch : int
        Samples a step, of all workers together.
    lr : float, optional
        Learning rate; by default 0.003 for Adam, 0.3 for SGD, 0.1 with momentum.
    optimizer : {"adam", "sgd", "momentum"} or callable
        Adam, plain SGD, SGD with momentum 0.9, or a callable of the parameters.

    Returns
    -------
    Task
        Loss: cross-entropy (nats a byte). Metrics: ``bits_per_byte``; ``accuracy``, the share of
        bytes that were the most likely one.

    Raises
    ------
    TypeError, ValueError
        For options out of range.
    FileNotFoundError
        On a worker whose interpreter comes without the sources of its standard library.

    Notes
    -----
    Licence of the text: PSF-2.0.
    """
    if model not in ("transformer", "gru"):
        raise ValueError(f"model={model!r}: wanted 'transformer' or 'gru'")
    for name, value in (("width", width), ("layers", layers), ("heads", heads)):
        count(name, value)
    count("context", context)
    if model == "transformer" and width % heads:
        raise ValueError(f"width={width} is no multiple of heads={heads}")
    drop = number("dropout", dropout, least=0.0, below=1.0)
    stretches = {
        name: count(name, value, context) // context
        for name, value in (("train_bytes", train_bytes), ("test_bytes", test_bytes))
    }
    make = (
        partial(Transformer, width, layers, heads, context, tied=tied, dropout=drop)
        if model == "transformer"
        else partial(GruLanguageModel, width, layers, tied=tied, dropout=drop)
    )
    return Task(
        name="text",
        model=make,
        train=partial(_stretches, _TRAIN, context, stretches["train_bytes"]),
        test=partial(_stretches, _TEST, context, stretches["test_bytes"]),
        loss=_nats,
        metrics={"bits_per_byte": _bits, "accuracy": _accuracy},
        optimizer=chosen_optimizer(optimizer, lr, {"sgd": 0.3, "momentum": 0.1, "adam": 0.003}),
        batch=count("batch", batch),
        citation="Source text of Python's standard library, Python Software Foundation",
    )


def _nats(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    scores = model(inputs).transpose(1, 2)
    return cross_entropy(scores, targets.long(), reduction="none").mean(dim=1)


def _bits(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return _nats(model, inputs, targets) / math.log(2)


def _accuracy(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return (model(inputs).argmax(dim=2) == targets).float().mean(dim=1)


@lru_cache(maxsize=4)
def _stretches(modules: tuple[str, ...], context: int, wanted: int) -> Examples:
    """Cut files into stretches of ``context`` bytes and the one after, until there are enough."""
    root = Path(sysconfig.get_path("stdlib"))
    found: list[np.ndarray] = []
    for module in modules:
        path = root / f"{module}.py"
        if not path.is_file():
            raise FileNotFoundError(
                f"no {path}: dt.training.tasks.text() needs the sources of the standard library, "
                "and this interpreter comes without them"
            )
        content = np.frombuffer(path.read_bytes(), np.uint8)
        if len(content) > context:
            windows = np.lib.stride_tricks.sliding_window_view(content, context + 1)
            found.append(windows[::context])
        if sum(map(len, found)) >= wanted:
            break
    if not found:
        raise ValueError(f"context={context}: no file of the standard library is that long")
    cut = torch.tensor(np.concatenate(found)[:wanted])
    return Examples(cut[:, :-1].contiguous(), cut[:, 1:].contiguous())
