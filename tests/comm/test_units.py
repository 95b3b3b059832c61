from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtoolkit.comm.amounts import bandwidth_text, bytes_text, seconds_text
from dtoolkit.comm.units import bandwidth, seconds, size


@pytest.mark.parametrize(
    ("text", "bytes_a_second"),
    [
        ("50GB/s", 50e9),
        ("50 GB/s", 50e9),
        (" 50  GB / s ", 50e9),
        ("50GB/sec", 50e9),
        ("50GBps", 50e9),
        ("50 gigabytes", None),
        ("1.5e3 kB/s", 1.5e6),
        (".5 MB/s", 5e5),
        ("100KB/s", 1e5),
        ("100kB/s", 1e5),
        ("1GiB/s", 2.0**30),
        ("1 KiB/s", 1024.0),
        ("2TB/s", 2e12),
        ("7 B/s", 7.0),
        ("7 bytes/s", 7.0),
        ("400Gb/s", 50e9),  # bits, because the b is small
        ("400Gbit/s", 50e9),
        ("400gbit/s", 50e9),
        ("400 Gbits/s", 50e9),
        ("400Gbps", 50e9),
        ("400gbps", 50e9),  # bits, by long custom
        ("8 Mb/s", 1e6),
        ("8 Mib/s", 2.0**20),
        ("8 bit/s", 1.0),
        ("56 kbps", 7e3),
    ],
)
def test_bandwidths_are_read_and_bits_are_no_bytes(text, bytes_a_second):
    if bytes_a_second is None:
        with pytest.raises(ValueError, match="unknown unit"):
            bandwidth(text)
        return
    assert bandwidth(text) == bytes_a_second
    assert isinstance(bandwidth(text), float)


@pytest.mark.parametrize(
    "text", ["50G", "50 G/s", "50gb/s", "50gb", "50mb/s", "50kb/s", "5b/s", "5/s", "5M/s", "5m/s"]
)
def test_what_leaves_bits_or_bytes_open_is_refused_in_words(text):
    with pytest.raises(ValueError, match=r"inter='.*' leaves open whether bits or bytes are meant"):
        bandwidth(text, "inter")


def test_the_refusal_says_what_to_write():
    with pytest.raises(ValueError, match=r"write GB/s for bytes or Gbit/s for bits"):
        bandwidth("50gb/s")
    with pytest.raises(ValueError, match=r"write kB/s for bytes or kbit/s for bits"):
        bandwidth("50k/s")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("50", "has no unit"),
        ("", "does not begin with a number"),
        ("GB/s", "does not begin with a number"),
        ("nan GB/s", "does not begin with a number"),
        ("1,000 MB/s", "unknown unit"),
        ("50 furlongs/s", "unknown unit"),
        ("50GBPS", "unknown unit"),
        ("50GB", "no amount a second"),
        ("5iB/s", "i without a prefix"),
        ("0GB/s", "above 0"),
        ("-1GB/s", "above 0"),
        ("1e400GB/s", "finite"),
        (0, "above 0"),
        (-1.0, "above 0"),
        (math.nan, "finite"),
        (math.inf, "finite"),
        pytest.param(10**400, "finite", id="10**400"),
        (True, "of type bool"),
        (np.True_, "of type bool"),
        (None, "is None"),
        ([1e9], "of type list"),
        (1 + 0j, "of type complex"),
        (b"50GB/s", "of type bytes"),
    ],
)
def test_wrong_bandwidths_are_refused_by_name(value, words):
    with pytest.raises(ValueError, match=r"^inter") as info:
        bandwidth(value, "inter")
    assert words in str(info.value)


@pytest.mark.parametrize(
    "value", [5, 5.0, np.float32(5), np.int64(5), Decimal(5), Fraction(5), np.array(5.0)[()]]
)
def test_numbers_are_taken_as_they_are(value):
    assert bandwidth(value) == 5.0
    assert seconds(value) == 5.0
    assert size(value) == 5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5us", 5e-6),
        ("5 µs", 5e-6),  # the micro sign
        ("5 μs", 5e-6),  # the Greek letter
        ("0.3 ms", 3e-4),
        ("0.3us", 0.3e-6),
        ("20ns", 2e-8),
        ("7ps", 7e-12),
        ("1s", 1.0),
        ("2 min", 120.0),
        ("1h", 3600.0),
        ("1.5 hours", 5400.0),
        ("2d", 172800.0),
        ("0 s", 0.0),
        (0, 0.0),
    ],
)
def test_times_are_read_exactly(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize(
    "value", ["5", "5 M", "5 MS", "5 Ms", "us", "-1s", -1, math.nan, math.inf, True, None, "5 us/s"]
)
def test_wrong_times_are_refused_by_name(value):
    with pytest.raises(ValueError, match=r"^latency"):
        seconds(value, "latency")


def test_an_unknown_unit_of_time_is_told_which_there_are():
    words = "mtbf='1 week' has the unknown unit 'week': .*, in ps, ns, us, ms, s, min, h or d"
    with pytest.raises(ValueError, match=words):
        seconds("1 week", "mtbf")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100MB", 10**8),
        ("64MiB", 2**26),
        ("1kB", 1000),
        ("1.5GB", 1_500_000_000),
        ("0B", 0),
        ("512 bytes", 512),
        (1e6, 10**6),
        (2**70, 2**70),
    ],
)
def test_sizes_are_read(text, value):
    assert size(text) == value
    assert type(size(text)) is int


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("100Mb", "counts bits"),
        ("100Mbit", "counts bits"),
        ("100mb", "leaves open"),
        ("100M", "leaves open"),
        ("100", "no unit"),
        ("100MB/s", "unknown unit"),
        ("1.0001kB", "whole number"),
        (1.5, "whole number"),
        (-1, "at least 0"),
        (math.inf, "whole number"),
        (True, "of type bool"),
        (None, "is None"),
    ],
)
def test_wrong_sizes_are_refused_by_name(value, words):
    with pytest.raises(ValueError, match=r"^size=") as info:
        size(value)
    assert words in str(info.value)


@given(st.integers(1, 10**6), st.sampled_from(["", "k", "M", "G", "T", "Ki", "Mi", "Gi"]))
def test_a_byte_is_eight_bits(number, prefix):
    assert bandwidth(f"{number}{prefix}B/s") == bandwidth(f"{8 * number}{prefix}bit/s")
    assert bandwidth(f"{number}{prefix}B/s") == size(f"{number}{prefix}B")


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused_in_words(text):
    for read in (bandwidth, seconds, size):
        try:
            value = read(text, "argument")
        except ValueError as error:
            told = str(error)
        else:
            told = "argument=" if value >= 0 else ""
        assert told.startswith("argument=")


def test_amounts_are_written_with_three_digits():
    assert bandwidth_text(50e9) == "50 GB/s"
    assert bandwidth_text(0.25) == "0.25 B/s"
    assert bytes_text(1_234_567) == "1.23 MB"
    assert seconds_text(0.0123) == "12.3 ms"
