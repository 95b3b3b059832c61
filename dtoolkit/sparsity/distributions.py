"""How many weights each layer keeps: densities by layer, from one density for the whole model.

A distribution is an object with a `name` and a method `densities`; write a subclass of
:class:`Distribution` for one of your own.
"""

from __future__ import annotations

import fnmatch
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dtoolkit.sparsity.citing import Cited
from dtoolkit.sparsity.naming import pick

__all__ = [
    "ERK",
    "Distribution",
    "ERKPlus",
    "ErdosRenyi",
    "Explicit",
    "Uniform",
    "UniformPlus",
    "as_distribution",
]

Shapes = Mapping[str, tuple[int, ...]]


class Distribution(Cited, ABC):
    """How the density of a model is spread over its layers."""

    name: ClassVar[str]

    @abstractmethod
    def densities(
        self, shapes: Shapes, density: float | None, *, limit: float = 1.0
    ) -> dict[str, float]:
        """Density of each layer.

        Parameters
        ----------
        shapes : mapping of str to tuple of int
            Shapes of the weights by name, in the order of the model.
        density : float or None
            Share of all these weights that is kept, in (0, 1].
        limit : float
            Highest density that a sparse layer can have (a pattern of N in M allows N/M). A layer
            that the distribution leaves dense on purpose may exceed it.

        Returns
        -------
        dict of str to float
            From 0 to 1; the weighted mean is `density`, to rounding.

        Raises
        ------
        ValueError
            It cannot be done.
        """


class Uniform(Distribution):
    """Every layer has the same density."""

    name = "uniform"

    def densities(
        self, shapes: Shapes, density: float | None, *, limit: float = 1.0
    ) -> dict[str, float]:
        """Density of each layer: the asked one."""
        asked = _asked(self, density)
        return _spread(self, shapes, asked, dict.fromkeys(shapes, 1.0), {}, limit)


class ErdosRenyi(Distribution):
    """ER: density in proportion to (n_in + n_out) / (n_in n_out), kernels not counted.

    Mocanu et al., "Scalable training of artificial neural networks with adaptive sparse
    connectivity inspired by network science", Nature Communications 2018.
    """

    name = "er"
    citation = (
        "D. C. Mocanu et al., Scalable training of artificial neural networks with adaptive sparse "
        "connectivity inspired by network science, Nature Communications 9, 2018"
    )

    def densities(
        self, shapes: Shapes, density: float | None, *, limit: float = 1.0
    ) -> dict[str, float]:
        """Density of each layer: capped at 1, with the factor solved again for the others."""
        raw = {name: sum(shape[:2]) / math.prod(shape[:2]) for name, shape in shapes.items()}
        return _spread(self, shapes, _asked(self, density), raw, {}, limit)


class ERK(Distribution):
    """ER with kernels: density in proportion to sum(dimensions) / product(dimensions).

    Evci et al., "Rigging the lottery: making all tickets winners", ICML 2020, section 3.
    """

    name = "erk"
    citation = "U. Evci et al., Rigging the lottery: making all tickets winners, ICML 2020"

    def densities(
        self, shapes: Shapes, density: float | None, *, limit: float = 1.0
    ) -> dict[str, float]:
        """Density of each layer: capped at 1, with the factor solved again for the others."""
        return _spread(self, shapes, _asked(self, density), _erk(shapes), {}, limit)


class ERKPlus(Distribution):
    """ERK with the last layer dense and the others rescaled, so that the whole stays as asked.

    Liu et al., "The unreasonable effectiveness of random pruning", ICLR 2022, section 3.2.
    """

    name = "erk+"
    citation = (
        "S. Liu et al., The unreasonable effectiveness of random pruning: return of the most naive "
        "baseline for sparse training, ICLR 2022"
    )

    def densities(
        self, shapes: Shapes, density: float | None, *, limit: float = 1.0
    ) -> dict[str, float]:
        """Density of each layer, the last one 1."""
        fixed = {next(reversed(dict(shapes))): 1.0}
        return _spread(self, shapes, _asked(self, density), _erk(shapes), fixed, limit)


class UniformPlus(Distribution):
    """Uniform, but with the first layer dense and the last at least at 20%; the whole as asked.

    Gale, Elsen and Hooker, "The state of sparsity in deep neural networks", 2019; under this name
    in Liu et al., ICLR 2022, section 3.2.
    """

    name = "uniform+"
    citation = (
        "T. Gale, E. Elsen and S. Hooker, The state of sparsity in deep neural networks, 2019"
    )

    def densities(
        self, shapes: Shapes, density: float | None, *, limit: float = 1.0
    ) -> dict[str, float]:
        """Density of each layer, the first one 1."""
        asked = _asked(self, density)
        first, last = next(iter(shapes)), next(reversed(dict(shapes)))
        even = dict.fromkeys(shapes, 1.0)
        result = _spread(self, shapes, asked, even, {first: 1.0}, limit)
        if result[last] >= 0.2:
            return result
        return _spread(self, shapes, asked, even, {first: 1.0, last: 0.2}, limit)


@dataclass(frozen=True)
class Explicit(Distribution):
    """Densities as given, by name of the weight, name of its module, or pattern (``"blocks.*"``).

    Attributes
    ----------
    given : mapping of str to float
        From 0 to 1; 0 empties a layer on purpose. Of several that match a name the exact one
        holds, else the first. A layer that none matches has the density of the model, if one is
        given.
    """

    given: Mapping[str, float]
    name: ClassVar[str] = "explicit"

    def densities(
        self, shapes: Shapes, density: float | None, *, limit: float = 1.0
    ) -> dict[str, float]:
        """Density of each layer, as given."""
        for key, value in self.given.items():
            if not 0 <= value <= 1:
                raise ValueError(f"distribution: density {value!r} of {key!r}: wanted 0 to 1")
            if not any(_names(key, name) for name in shapes):
                raise ValueError(
                    f"distribution: {key!r} is none of the sparse layers: {', '.join(shapes)}"
                )
        result = {}
        for name in shapes:
            found = [value for key, value in self.given.items() if _names(key, name)]
            exact = [self.given[key] for key in (name, _module(name)) if key in self.given]
            if not found and density is None:
                raise ValueError(
                    f"distribution names no density for {name!r}, and density= gives none for the "
                    "layers that are not named"
                )
            value = [*exact, *found, 0.0 if density is None else density][0]
            if limit < value < 1:
                raise ValueError(
                    f"distribution: density {value} of {name!r}: this structure allows at most "
                    f"{limit:g}, or 1 to leave the layer dense"
                )
            result[name] = float(value)
        return result


def as_distribution(value: Any) -> Distribution:
    """Make a distribution of a name, a mapping of densities by layer, or an object.

    Raises
    ------
    ValueError, TypeError
        None of these.
    """
    if isinstance(value, Mapping):
        return Explicit(dict(value))
    if isinstance(value, str) and value.lower() == "explicit":
        raise ValueError(
            "distribution='explicit' needs the densities: pass the mapping itself, such as "
            "distribution={'conv1': 0.5, 'blocks.*': 0.1}"
        )
    also = ", or a mapping of densities by layer"
    return pick("distribution", value, _DISTRIBUTIONS, Distribution, also=also)


_DISTRIBUTIONS: dict[str, type[Distribution]] = {
    "uniform": Uniform,
    "er": ErdosRenyi,
    "erk": ERK,
    "erk+": ERKPlus,
    "uniform+": UniformPlus,
    "erk plus": ERKPlus,
    "uniform plus": UniformPlus,
}


def _asked(distribution: Distribution, density: float | None) -> float:
    if density is None:
        raise ValueError(f"density is not given, and distribution={distribution.name!r} needs it")
    return density


def _erk(shapes: Shapes) -> dict[str, float]:
    return {name: sum(shape) / math.prod(shape) for name, shape in shapes.items()}


def _spread(
    distribution: Distribution,
    shapes: Shapes,
    density: float,
    raw: Mapping[str, float],
    fixed: Mapping[str, float],
    limit: float,
) -> dict[str, float]:
    """Densities in proportion to `raw`, none above `limit`, that make up `density` in all.

    What would exceed the limit is put at it, and the factor is solved again for the rest.
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    whole = density * sum(sizes.values())
    if density >= 1:
        return dict.fromkeys(shapes, 1.0)
    result = dict(fixed)
    while True:
        rest = [name for name in shapes if name not in result]
        budget = whole - sum(result[name] * sizes[name] for name in result)
        if budget < -1e-9 * whole or (rest and budget <= 0):
            _refuse_low(distribution, density, fixed, sizes)
        if not rest:
            if budget > 1e-9 * whole:
                _refuse_high(distribution, density, limit)
            break
        factor = budget / sum(raw[name] * sizes[name] for name in rest)
        over = [name for name in rest if factor * raw[name] > limit * (1 + 1e-12)]
        if not over:
            result.update({name: min(factor * raw[name], limit) for name in rest})
            break
        result.update(dict.fromkeys(over, limit))
    return {name: result[name] for name in shapes}


def _refuse_low(
    distribution: Distribution, density: float, fixed: Mapping[str, float], sizes: Mapping[str, int]
) -> None:
    share = sum(fixed[name] * sizes[name] for name in fixed) / sum(sizes.values())
    what = " and ".join(f"{name!r} at {value:g}" for name, value in fixed.items())
    raise ValueError(
        f"density={density}: distribution={distribution.name!r} keeps {what}, which alone is "
        f"{share:.4g} of all weights. Ask for more than that, leave a layer out (exclude=), or "
        "take another distribution"
    )


def _refuse_high(distribution: Distribution, density: float, limit: float) -> None:
    raise ValueError(
        f"density={density}: this structure allows at most {limit:g} in a sparse layer, which "
        f"distribution={distribution.name!r} cannot make up for. Ask for less, or for density 1"
    )


def _names(key: str, name: str) -> bool:
    """Whether a key means this weight: by its name, its module's, or as a pattern of either."""
    return fnmatch.fnmatchcase(name, key) or fnmatch.fnmatchcase(_module(name), key)


def _module(name: str) -> str:
    return name.rpartition(".")[0]
