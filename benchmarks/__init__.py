"""Benchmarks, one command each: `python -m benchmarks NAME` prints one JSON line last.

`{name, value, unit, peer_value, ratio}`: the figure, and where there is something to compare it with in the same run,
that and the quotient. Absolute figures are of the machine that they were measured on; ratios travel.
"""
