"""Runs and sweeps as one HTML file."""
