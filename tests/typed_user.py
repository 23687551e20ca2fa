"""Code of a user, which `make lint` checks as `mypy --strict` would; it is never run."""

import torch

import auxlearn
from auxlearn.plugins import AuxiliaryTask, Batch, SharedEncoder, register_task


@register_task("mine")
class Mine(AuxiliaryTask):
    def loss(
        self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator
    ) -> torch.Tensor:
        return encoder.features(batch).mean()


results = auxlearn.train(auxlearn.RunConfig(dataset="pydocs"))
print(results.evaluations["test"].all.macro_f1, results.best.step)
