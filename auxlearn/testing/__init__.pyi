from auxlearn.testing.check_base import Check as Check, Report as Report
from auxlearn.testing.checks import (
    check_loss as check_loss,
    check_task as check_task,
    check_weighting as check_weighting,
)
from auxlearn.testing.tiny_run import TinyRun as TinyRun, write_dataset as write_dataset
