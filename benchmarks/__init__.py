"""Benchmarks: ratios taken in one process on the same weights and texts. Run by ``make bench``."""
