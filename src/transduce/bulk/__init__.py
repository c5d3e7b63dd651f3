"""Bulk translation of files: by processes of this machine or by Ray, resumed where it was stopped."""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.bulk.block_translator import BlockTranslator, BlockTranslatorSettings, TranslatedBlock
    from transduce.bulk.dispatching import WorkerPool
    from transduce.bulk.processes import ProcessPool
    from transduce.bulk.ray_pool import RayPool
    from transduce.bulk.run import BulkProgress, BulkTask, translate_files
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.bulk.block_translator": "BlockTranslator BlockTranslatorSettings TranslatedBlock",
            "transduce.bulk.dispatching": "WorkerPool",
            "transduce.bulk.processes": "ProcessPool",
            "transduce.bulk.ray_pool": "RayPool",
            "transduce.bulk.run": "BulkProgress BulkTask translate_files",
        },
    )

__all__ = [
    "BlockTranslator",
    "BlockTranslatorSettings",
    "BulkProgress",
    "BulkTask",
    "ProcessPool",
    "RayPool",
    "TranslatedBlock",
    "WorkerPool",
    "translate_files",
]
