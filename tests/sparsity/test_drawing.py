from __future__ import annotations

import os
import subprocess
import sys

import torch

from dtoolkit.sparsity.drawing import draw

HOW = {"seed": 0, "name": "fc.weight", "step": 0, "purpose": "begin"}


def test_numbers_are_pinned():
    # Masks of a published run must not change with a later version.
    pinned = [[929396536, -1711893140, 635663866], [1825489162, 2142262253, 207701200]]
    assert draw((2, 3), **HOW).tolist() == pinned


def test_each_thing_has_its_own_numbers():
    base = draw((64,), **HOW)
    for change in ({"seed": 1}, {"name": "fc2.weight"}, {"step": 1}, {"purpose": "grow"}):
        assert int((draw((64,), **{**HOW, **change}) == base).sum()) == 0


def test_a_longer_draw_begins_with_a_shorter_one():
    long = draw((200_001,), **HOW)
    assert torch.equal(draw((131_077,), **HOW), long[:131_077])
    share = (long > 0).double().mean().item()
    assert abs(share - 0.5) < 0.005


def test_masks_do_not_depend_on_process_hash_seed_or_torchs_generator():
    code = (
        "import hashlib, torch, dtoolkit.sparsity as s\n"
        "m = torch.nn.Linear(40, 30)\n"
        "o = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        "mask = s.Sparsifier(m, o, method='set', density=0.3, seed=5).masks['weight']\n"
        "digest = hashlib.sha256(mask.numpy().tobytes()).hexdigest()\n"
        "print(digest)"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    torch.manual_seed(1234)
    here: dict[str, str] = {}
    exec(code, here)
    assert elsewhere.stdout.strip() == here["digest"]
