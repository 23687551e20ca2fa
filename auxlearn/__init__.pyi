from auxlearn.comparison.compare import compare as compare
from auxlearn.comparison.ensemble import ensemble as ensemble
from auxlearn.core.config import RunConfig as RunConfig, load_config as load_config
from auxlearn.core.errors import UserError as UserError
from auxlearn.core.registry import (
    register_loss as register_loss,
    register_task as register_task,
    register_weighting as register_weighting,
)
from auxlearn.core.validation import Settings as Settings
from auxlearn.core.version import __version__ as __version__
from auxlearn.data.batches import Batch as Batch
from auxlearn.data.load import load_dataset as load_dataset
from auxlearn.encoders.shared import SharedEncoder as SharedEncoder
from auxlearn.evaluation.finished import evaluate as evaluate
from auxlearn.evaluation.predict import predict as predict
from auxlearn.evaluation.score import score as score
from auxlearn.losses.base import PrimaryLoss as PrimaryLoss
from auxlearn.mask_analysis.perturbations import perturbations as perturbations
from auxlearn.objectives.context import ObjectiveContext as ObjectiveContext
from auxlearn.reports.page import report as report
from auxlearn.results.folder import load_run as load_run
from auxlearn.results.record import RunResults as RunResults
from auxlearn.sweeps.run import sweep as sweep
from auxlearn.tasks.base import (
    AuxiliaryTask as AuxiliaryTask,
    MaskedLanguageModelling as MaskedLanguageModelling,
)
from auxlearn.tasks.collator import MaskingCollator as MaskingCollator
from auxlearn.training.pretrain import pretrain as pretrain
from auxlearn.training.train import train as train
from auxlearn.weighting.base import Weighting as Weighting
