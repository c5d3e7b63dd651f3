"""A trained model as one self-contained folder, and the checkpoints of a run: safetensors and JSON, each file recorded
with its size and SHA-256, each folder written beside its place and then renamed into it.
"""

from transduce.bundle.atomic_folder import (
    recover_folders,
    remove_folder,
    standing_folder,
    written_folder,
)
from transduce.bundle.averaging import average_weights
from transduce.bundle.bundle import (
    Bundle,
    check_new_bundle,
    check_nothing_foreign,
    find_bundle,
    foreign_files,
    is_bundle,
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
    has_checkpoint,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    recover_checkpoints,
    remove_checkpoints,
    save_checkpoint,
)
from transduce.bundle.description import BundleDescription, Languages, RecordedScore
from transduce.bundle.folder_lock import locked
from transduce.bundle.model_card import model_card
from transduce.bundle.output import (
    OTHERWISE,
    check_output_file,
    check_writable,
    failed_writing,
    is_marked,
    write_output_file,
)
from transduce.bundle.overview import Overview, overview
from transduce.bundle.start import started, with_its_ways
from transduce.bundle.weights import blank_model, check_tensors, load_tensors, model_tensors
from transduce.bundle.written_file import UNFINISHED, is_stream, write_through, written_file

__all__ = [
    "OTHERWISE",
    "UNFINISHED",
    "Bundle",
    "BundleDescription",
    "Calibration",
    "Checkpoint",
    "Languages",
    "LogisticFit",
    "Overview",
    "RecordedConfidence",
    "RecordedHead",
    "RecordedScore",
    "average_weights",
    "blank_model",
    "check_calibratable",
    "check_new_bundle",
    "check_nothing_foreign",
    "check_output_file",
    "check_tensors",
    "check_writable",
    "failed_writing",
    "find_bundle",
    "foreign_files",
    "has_checkpoint",
    "is_bundle",
    "is_marked",
    "is_stream",
    "latest_checkpoint",
    "list_checkpoints",
    "load_checkpoint",
    "load_tensors",
    "locked",
    "model_card",
    "model_tensors",
    "overview",
    "read_calibration",
    "recover_checkpoints",
    "recover_folders",
    "remove_checkpoints",
    "remove_folder",
    "save_bundle",
    "save_checkpoint",
    "standing_folder",
    "started",
    "update_calibration",
    "with_its_ways",
    "write_output_file",
    "write_through",
    "written_file",
    "written_folder",
]
