"""Kinds of labelled tasks: one object each with reader, loss, metrics and decoding."""
