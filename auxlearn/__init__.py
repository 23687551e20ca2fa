"""Fine-tune text encoders with auxiliary objectives whose weights are fixed or meta-learned."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":  # files are locked and pipes opened as POSIX has it
    raise ImportError("auxlearn runs on Linux and macOS: on Windows, install it in WSL")

__version__ = "0.1.0"

# Module by public name. Modules are imported on first use, so `import auxlearn` is fast.
_PUBLIC = {
    "AuxiliaryTask": "auxlearn.tasks.base",
    "Batch": "auxlearn.data.batches",
    "MaskedLanguageModelling": "auxlearn.tasks.base",
    "ObjectiveContext": "auxlearn.objectives.context",
    "PrimaryLoss": "auxlearn.losses.base",
    "RunConfig": "auxlearn.core.config",
    "RunResults": "auxlearn.results.record",
    "Settings": "auxlearn.core.config",
    "SharedEncoder": "auxlearn.encoders.shared",
    "UserError": "auxlearn.core.errors",
    "Weighting": "auxlearn.weighting.base",
    "compare": "auxlearn.comparison.compare",
    "ensemble": "auxlearn.api",
    "evaluate": "auxlearn.api",
    "load_config": "auxlearn.core.config",
    "load_dataset": "auxlearn.data.load",
    "load_run": "auxlearn.api",
    "perturbations": "auxlearn.mask_analysis.perturbations",
    "predict": "auxlearn.api",
    "pretrain": "auxlearn.api",
    "register_loss": "auxlearn.core.registry",
    "register_task": "auxlearn.core.registry",
    "register_weighting": "auxlearn.core.registry",
    "report": "auxlearn.reports.page",
    "score": "auxlearn.api",
    "sweep": "auxlearn.sweeps.run",
    "train": "auxlearn.api",
}

__all__ = [*sorted(_PUBLIC), "__version__"]  # noqa: PLE0604

if TYPE_CHECKING:
    from auxlearn.api import (
        ensemble as ensemble,
        evaluate as evaluate,
        load_run as load_run,
        predict as predict,
        pretrain as pretrain,
        score as score,
        train as train,
    )
    from auxlearn.comparison.compare import compare as compare
    from auxlearn.core.config import (
        RunConfig as RunConfig,
        Settings as Settings,
        load_config as load_config,
    )
    from auxlearn.core.errors import UserError as UserError
    from auxlearn.core.registry import (
        register_loss as register_loss,
        register_task as register_task,
        register_weighting as register_weighting,
    )
    from auxlearn.data.batches import Batch as Batch
    from auxlearn.data.load import load_dataset as load_dataset
    from auxlearn.encoders.shared import SharedEncoder as SharedEncoder
    from auxlearn.losses.base import PrimaryLoss as PrimaryLoss
    from auxlearn.mask_analysis.perturbations import perturbations as perturbations
    from auxlearn.objectives.context import ObjectiveContext as ObjectiveContext
    from auxlearn.reports.page import report as report
    from auxlearn.results.record import RunResults as RunResults
    from auxlearn.sweeps.run import sweep as sweep
    from auxlearn.tasks.base import (
        AuxiliaryTask as AuxiliaryTask,
        MaskedLanguageModelling as MaskedLanguageModelling,
    )
    from auxlearn.weighting.base import Weighting as Weighting


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'auxlearn' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
