"""Metrics, evaluation, and prediction with a finished run."""
