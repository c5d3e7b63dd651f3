"""Files and folders that are written whole or not at all, temporary folders, locks, and digests of files."""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.storage.digests import DigestCache, compute_file_digest
    from transduce.storage.scratch import create_folder_atomically, remove_if_left_empty, scratch_folder, scratch_path
    from transduce.storage.writing import (
        FORCE_ADVICE,
        UNFINISHED_PATTERN,
        OwnFileKind,
        check_output_file,
        check_replaceable,
        check_writable,
        flush_to_disk,
        is_stream,
        lock_folder,
        make_folder_beside,
        make_write_error,
        recover_folders,
        remove_folder,
        replace_file,
        replace_folder,
        resolve_folder,
        write_files,
        write_output_file,
    )
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.storage.digests": "DigestCache compute_file_digest",
            "transduce.storage.scratch": "create_folder_atomically remove_if_left_empty scratch_folder scratch_path",
            "transduce.storage.writing": (
                "FORCE_ADVICE UNFINISHED_PATTERN OwnFileKind check_output_file check_replaceable check_writable "
                "flush_to_disk is_stream lock_folder make_folder_beside make_write_error recover_folders remove_folder "
                "replace_file replace_folder resolve_folder write_files write_output_file"
            ),
        },
    )

__all__ = [
    "FORCE_ADVICE",
    "UNFINISHED_PATTERN",
    "DigestCache",
    "OwnFileKind",
    "check_output_file",
    "check_replaceable",
    "check_writable",
    "compute_file_digest",
    "create_folder_atomically",
    "flush_to_disk",
    "is_stream",
    "lock_folder",
    "make_folder_beside",
    "make_write_error",
    "recover_folders",
    "remove_folder",
    "remove_if_left_empty",
    "replace_file",
    "replace_folder",
    "resolve_folder",
    "scratch_folder",
    "scratch_path",
    "write_files",
    "write_output_file",
]
