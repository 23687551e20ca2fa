from auxlearn.core.cache import content_key as content_key
from auxlearn.core.errors import ConfigError as ConfigError, DataError as DataError
from auxlearn.core.registry import (
    register_executor as register_executor,
    register_kind as register_kind,
    register_loss as register_loss,
    register_reporter as register_reporter,
    register_task as register_task,
    register_weighting as register_weighting,
)
from auxlearn.core.rng import generator as generator
from auxlearn.core.validation import Settings as Settings
from auxlearn.data.batches import Batch as Batch
from auxlearn.data.tokens import TokenizedTexts as TokenizedTexts
from auxlearn.encoders.device import upload as upload
from auxlearn.encoders.shared import SharedEncoder as SharedEncoder
from auxlearn.executors.jobs import Executor as Executor, Job as Job, Outcome as Outcome
from auxlearn.executors.worker import run_job as run_job
from auxlearn.kinds.base import Kind as Kind, ReadLabels as ReadLabels
from auxlearn.kinds.metrics import Metric as Metric
from auxlearn.losses.base import PrimaryLoss as PrimaryLoss
from auxlearn.objectives.base import (
    classification_head as classification_head,
    labels_of as labels_of,
)
from auxlearn.objectives.context import (
    ObjectiveContext as ObjectiveContext,
    SideValues as SideValues,
)
from auxlearn.objectives.masking import (
    choose as choose,
    corrupt as corrupt,
    rescale_to_mean as rescale_to_mean,
    uniform as uniform,
)
from auxlearn.results.loggers import RunReporter as RunReporter
from auxlearn.tasks.base import (
    AuxiliaryTask as AuxiliaryTask,
    MaskedLanguageModelling as MaskedLanguageModelling,
    MaskingOptions as MaskingOptions,
    ScoredMasking as ScoredMasking,
    ScoredMaskingOptions as ScoredMaskingOptions,
    TaskResult as TaskResult,
)
from auxlearn.weighting.base import (
    Branches as Branches,
    DevHead as DevHead,
    KeptWeights as KeptWeights,
    Members as Members,
    TrainingStep as TrainingStep,
    ValidationOptions as ValidationOptions,
    Weighting as Weighting,
    apply_gradient as apply_gradient,
)
from auxlearn.weighting.gradients import (
    Gradient as Gradient,
    Placement as Placement,
    dot as dot,
    gather_scalars as gather_scalars,
    shared_gradient as shared_gradient,
    weighted_sum as weighted_sum,
)
from auxlearn.weighting.learned import (
    LearnedOptions as LearnedOptions,
    LearnedWeighting as LearnedWeighting,
    LogitOptions as LogitOptions,
    LogitWeighting as LogitWeighting,
)
from auxlearn.weighting.mixing import (
    GramWeighting as GramWeighting,
    LossWeighting as LossWeighting,
    MixOptions as MixOptions,
)
from auxlearn.weighting.optimizer_steps import gram_matrices as gram_matrices
from auxlearn.weighting.state import OptimizerState as OptimizerState
