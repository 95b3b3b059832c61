"""What a device of a modelled cluster can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtoolkit.comm.amounts import bytes_text, count_text
from dtoolkit.comm.units import seconds, share, size

__all__ = ["DEVICES", "Device"]


@dataclass(frozen=True)
class Device:
    """A device, one a worker (modelled).

    Parameters
    ----------
    flops : float
        Peak, operations a second.
    memory : int or str
        Bytes, or text such as ``"80GB"``.
    efficiency : float
        Share of the peak that training reaches, above 0 and at most 1.
    overhead : float or str
        Seconds that a micro-batch takes beside its operations.
    name : str

    Raises
    ------
    ValueError
        Naming the argument.
    """

    flops: float
    memory: int | str
    efficiency: float = 0.4
    overhead: float | str = 0.0
    name: str = "device"

    def __post_init__(self) -> None:
        number = isinstance(self.flops, int | float) and not isinstance(self.flops, bool)
        if not number or not 0 < self.flops < float("inf"):
            raise ValueError(f"flops={self.flops!r}: wanted operations a second, above 0")
        if share(self.efficiency, "efficiency") == 0:
            raise ValueError("efficiency=0: wanted a share above 0")
        object.__setattr__(self, "memory", size(self.memory, "memory"))
        object.__setattr__(self, "overhead", seconds(self.overhead, "overhead"))

    @classmethod
    def of(cls, value: Any) -> Device:
        """Read ``device=``: a device, or the name of one.

        Raises
        ------
        TypeError, ValueError
            It is neither.
        """
        if isinstance(value, Device):
            return value
        if isinstance(value, str) and value in DEVICES:
            return DEVICES[value]
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(
            f"device={value!r}: wanted a dt.training.study.Device, or one of {', '.join(DEVICES)}"
        )

    @property
    def words(self) -> str:
        """The device in a few words."""
        rate = count_text(self.flops * self.efficiency, "operations a second")
        return f"{self.name}: {rate} ({self.efficiency:.0%} of the peak), " + bytes_text(
            float(self.memory)
        )


DEVICES = {
    "V100": Device(125e12, "32GB", name="V100"),
    "A100": Device(312e12, "80GB", name="A100"),
    "H100": Device(989e12, "80GB", name="H100"),
}
"""Peaks of dense half-precision products and memory, as the makers state them."""
