"""A model cut into stages: runs of modules that are applied one after the other.

What can be cut is an ``nn.Sequential``, whose children come in order, or a model that says its
modules itself: a method ``sequence()`` returns a list of modules which, applied one after the
other, are the model. They may be made on the spot, as long as their parameters are the model's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import nn

__all__ = ["balanced", "cut", "sequence_of"]


def sequence_of(model: nn.Module) -> list[nn.Module]:
    """The modules that are a model, one after the other.

    Raises
    ------
    ValueError
        The model does not say them.
    TypeError
        What it says is no list of modules.
    """
    say = getattr(model, "sequence", None)
    if callable(say):
        said = say()
        if not isinstance(said, list) or not all(isinstance(one, nn.Module) for one in said):
            raise TypeError(
                f"{type(model).__name__}.sequence() gave {type(said).__name__}: wanted a list of "
                "modules"
            )
        return list(said)
    if isinstance(model, nn.Sequential) and type(model).forward is nn.Sequential.forward:
        return list(model)
    raise ValueError(
        f"stages: a {type(model).__name__} does not say what comes after what: wanted an "
        "nn.Sequential, or a model with a method sequence() that returns its modules in order"
    )


def balanced(sizes: Sequence[int], stages: int) -> tuple[int, ...]:
    """Where to cut, so that the largest stage is as small as it can be.

    Parameters
    ----------
    sizes : sequence of int
        Of the modules in order: numbers in what they learn. One that learns nothing stays with
        what is before it.
    stages : int

    Returns
    -------
    tuple of int
        The modules with which the stages from the second on begin. Of several answers the one with
        the smallest first stage.

    Raises
    ------
    ValueError
        Fewer modules learn something than there are stages.
    """
    learning = [place for place, size in enumerate(sizes) if size]
    if len(learning) < stages:
        raise ValueError(
            f"stages={stages}: the model has {len(learning)} modules in a row that learn "
            "something, and each stage needs one"
        )
    # best[n][k]: the largest stage of the first n of them in k stages, and where the last begins.
    ends = [0]
    for place in learning:
        ends.append(ends[-1] + sizes[place])
    best: list[dict[int, tuple[int, int]]] = [{0: (0, 0)}]
    for n in range(1, len(learning) + 1):
        row = {}
        for k in range(1, min(n, stages) + 1):
            choices = [
                (max(best[m][k - 1][0], ends[n] - ends[m]), m)
                for m in range(k - 1, n)
                if k - 1 in best[m]
            ]
            row[k] = min(choices)
        best.append(row)
    cuts, n = [], len(learning)
    for k in range(stages, 1, -1):
        n = best[n][k][1]
        cuts.append(learning[n])
    return tuple(reversed(cuts))


def cut(model: nn.Module, stages: int, cuts: Sequence[int] | None = None) -> list[nn.Module]:
    """The stages of a model.

    Parameters
    ----------
    model : nn.Module
    stages : int
        One stage is the model itself, whatever it is.
    cuts : sequence of int, optional
        As :func:`balanced` gives them, which chooses by default.

    Returns
    -------
    list of nn.Module
        Their parameters are the model's own.

    Raises
    ------
    ValueError
        The model cannot be cut, or not so: something that is learned is in no stage or in two, or
        a stage learns nothing.
    """
    if stages == 1 and not cuts:
        return [model]
    modules = sequence_of(model)
    if cuts is None:
        cuts = balanced([sum(p.numel() for p in _learned(one)) for one in modules], stages)
    if len(cuts) != stages - 1 or list(cuts) != sorted({*cuts} & {*range(1, len(modules))}):
        raise ValueError(
            f"cut_at={tuple(cuts)!r}: wanted {stages - 1} rising numbers from 1 to "
            f"{len(modules) - 1}, the modules with which stages begin"
        )
    edges = [0, *cuts, len(modules)]
    made: list[nn.Module] = [nn.Sequential(*modules[a:b]) for a, b in pairwise(edges)]
    _check(model, made)
    return made


def _learned(module: nn.Module) -> list[nn.Parameter]:
    return [value for value in module.parameters() if value.requires_grad]


def _check(model: nn.Module, stages: Sequence[nn.Module]) -> None:
    where: dict[int, int] = {}
    names: dict[int, Any] = {id(value): name for name, value in model.named_parameters()}
    for number, stage in enumerate(stages):
        if not _learned(stage):
            raise ValueError(f"stages: stage {number} learns nothing: choose another cut_at=")
        for value in stage.parameters():
            if id(value) not in names:
                raise ValueError(
                    f"stages: {type(model).__name__}.sequence() has a parameter of shape "
                    f"{tuple(value.shape)} that is none of the model's"
                )
            if where.setdefault(id(value), number) != number:
                raise ValueError(
                    f"stages: {names[id(value)]} is used in stage {where[id(value)]} and in stage "
                    f"{number}, and each holds weights of its own: make a model that does not tie "
                    "them (tied=False in the ready text task), or choose another cut_at="
                )
    for value in _learned(model):
        if id(value) not in where:
            raise ValueError(f"stages: {names[id(value)]} is learned, and in no stage")
