"""One optimiser step, repeated, and what happens every so many steps: validation by real translations, checkpoints,
reports.
"""

from transduce.training.automatic import automatic_settings_for
from transduce.training.averaging import average_run
from transduce.training.curves import learning_curve
from transduce.training.interruption import StopWish, stop_wish
from transduce.training.loss import TokenLosses, label_smoothed_cross_entropy
from transduce.training.metrics import MetricsLog
from transduce.training.ranks import Ranks, joined_ranks
from transduce.training.report import write_report
from transduce.training.reporter import Progress, Reporter, SilentReporter
from transduce.training.result import TrainingResult
from transduce.training.run import train
from transduce.training.run_folder import RunFolder
from transduce.training.schedule import learning_rate
from transduce.training.step import UpdateFigures, Updater
from transduce.training.trainer import Trainer
from transduce.training.validation import Sample, Validation, Validator
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
    "StopWish",
    "TokenLosses",
    "Trainer",
    "TrainingResult",
    "UpdateFigures",
    "Updater",
    "Validation",
    "Validator",
    "automatic_settings_for",
    "average_run",
    "joined_ranks",
    "label_smoothed_cross_entropy",
    "learning_curve",
    "learning_rate",
    "stop_wish",
    "train",
    "verify_resume",
    "write_report",
]
