"""Training: optimiser steps, and periodically validation by real translations, checkpoints and reports."""

from transduce.training.automatic_settings import choose_settings_for_run
from transduce.training.distributed import Ranks, connect_ranks
from transduce.training.distributed.agreement import agree_on_run
from transduce.training.model_selection.checkpoint_averaging import average_run
from transduce.training.model_selection.final_measurements import tabulate_differences, tabulate_models
from transduce.training.model_selection.stopping import StopRequest, catch_stop_signals
from transduce.training.model_selection.validation import Validator
from transduce.training.optimization.loss import TokenLosses, label_smoothed_cross_entropy
from transduce.training.optimization.schedule import compute_learning_rate
from transduce.training.optimization.updater import UpdateFigures, Updater, UpdateStoppedError
from transduce.training.reporting import MetricsLog, Progress, Reporter, Sample, SilentReporter, Validation
from transduce.training.reporting.curves import draw_learning_curve
from transduce.training.reporting.report import write_report
from transduce.training.run import train
from transduce.training.run_folder import RunFolder
from transduce.training.trainer import Trainer, TrainingResult
from transduce.training.verification import ResumeProof, verify_resume

__all__ = [
    "MetricsLog",
    "Progress",
    "Ranks",
    "Reporter",
    "ResumeProof",
    "RunFolder",
    "Sample",
    "SilentReporter",
    "StopRequest",
    "TokenLosses",
    "Trainer",
    "TrainingResult",
    "UpdateFigures",
    "UpdateStoppedError",
    "Updater",
    "Validation",
    "Validator",
    "agree_on_run",
    "average_run",
    "catch_stop_signals",
    "choose_settings_for_run",
    "compute_learning_rate",
    "connect_ranks",
    "draw_learning_curve",
    "label_smoothed_cross_entropy",
    "tabulate_differences",
    "tabulate_models",
    "train",
    "verify_resume",
    "write_report",
]
