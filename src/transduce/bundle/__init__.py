"""A trained model as one self-contained folder, and the checkpoints of a run: safetensors and JSON, each file recorded
with its size and SHA-256, each folder written under a temporary name and then renamed.
"""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.bundle.bundle import (
        Bundle,
        apply_start_from,
        check_new_bundle,
        find_bundle,
        inherit_search_settings,
        is_bundle,
        list_foreign_files,
        name_model,
        save_bundle,
    )
    from transduce.bundle.calibration import (
        Calibration,
        LogisticFit,
        RecordedConfidence,
        RecordedHead,
        check_calibratable,
        read_calibration,
        update_calibration,
    )
    from transduce.bundle.checkpoint import (
        Checkpoint,
        Shard,
        begin_checkpoint,
        convert_shard_write_errors,
        find_latest_checkpoint,
        finish_checkpoint,
        has_checkpoint,
        list_checkpoints,
        load_checkpoint,
        recover_checkpoints,
        remove_checkpoints,
        save_checkpoint,
        write_shard,
    )
    from transduce.bundle.manifest import BundleDescription, FileRecord, Languages, RecordedScore
    from transduce.bundle.model_overview import ModelOverview, make_model_overview
    from transduce.bundle.scorecard import (
        RecordedBehaviour,
        RecordedScorecard,
        check_scorecard,
        read_scorecard,
        save_scorecard,
    )
    from transduce.bundle.weights import average_weights, collect_model_tensors, load_tensors, make_empty_model
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.bundle.bundle": (
                "Bundle apply_start_from check_new_bundle find_bundle inherit_search_settings is_bundle "
                "list_foreign_files name_model save_bundle"
            ),
            "transduce.bundle.calibration": (
                "Calibration LogisticFit RecordedConfidence RecordedHead check_calibratable read_calibration "
                "update_calibration"
            ),
            "transduce.bundle.checkpoint": (
                "Checkpoint Shard begin_checkpoint finish_checkpoint has_checkpoint convert_shard_write_errors "
                "find_latest_checkpoint list_checkpoints load_checkpoint recover_checkpoints remove_checkpoints "
                "save_checkpoint write_shard"
            ),
            "transduce.bundle.manifest": "BundleDescription FileRecord Languages RecordedScore",
            "transduce.bundle.model_overview": "ModelOverview make_model_overview",
            "transduce.bundle.scorecard": (
                "RecordedBehaviour RecordedScorecard check_scorecard read_scorecard save_scorecard"
            ),
            "transduce.bundle.weights": "average_weights load_tensors make_empty_model collect_model_tensors",
        },
    )

__all__ = [
    "Bundle",
    "BundleDescription",
    "Calibration",
    "Checkpoint",
    "FileRecord",
    "Languages",
    "LogisticFit",
    "ModelOverview",
    "RecordedBehaviour",
    "RecordedConfidence",
    "RecordedHead",
    "RecordedScore",
    "RecordedScorecard",
    "Shard",
    "apply_start_from",
    "average_weights",
    "begin_checkpoint",
    "check_calibratable",
    "check_new_bundle",
    "check_scorecard",
    "collect_model_tensors",
    "convert_shard_write_errors",
    "find_bundle",
    "find_latest_checkpoint",
    "finish_checkpoint",
    "has_checkpoint",
    "inherit_search_settings",
    "is_bundle",
    "list_checkpoints",
    "list_foreign_files",
    "load_checkpoint",
    "load_tensors",
    "make_empty_model",
    "make_model_overview",
    "name_model",
    "read_calibration",
    "read_scorecard",
    "recover_checkpoints",
    "remove_checkpoints",
    "save_bundle",
    "save_checkpoint",
    "save_scorecard",
    "update_calibration",
    "write_shard",
]
