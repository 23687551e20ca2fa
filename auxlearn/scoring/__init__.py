"""Pseudo-likelihoods of tokens under a masked language model."""
