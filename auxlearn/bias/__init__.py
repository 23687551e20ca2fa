"""Bias models: class probabilities of the training examples by what should not decide."""
