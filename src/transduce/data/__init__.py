"""From parallel text to batches: text is checked, cleaned and encoded once, stored as token ids on disk, and read in
batches whose order is a pure function of seed and epoch.
"""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.data.batch import (
        Batch,
        count_max_repetitions,
        measure_longest_sides,
        open_epoch_store,
        plan_batches,
        read_batches,
        remove_epochs,
        sample_pairs,
        select_epoch_pairs,
    )
    from transduce.data.input_files import choose_generated_columns, open_corpus
    from transduce.data.preparation import (
        PreparedCorpus,
        PreparedData,
        find_prepared_folder,
        find_prepared_tokenizer,
        find_prepared_validation,
        list_prepared_files,
        open_prepared_copy,
        prepare,
    )
    from transduce.data.store import TokenStore, create_store, explain_cache_errors
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.data.batch": (
                "Batch count_max_repetitions measure_longest_sides open_epoch_store plan_batches read_batches "
                "remove_epochs sample_pairs select_epoch_pairs"
            ),
            "transduce.data.input_files": "choose_generated_columns open_corpus",
            "transduce.data.preparation": (
                "PreparedCorpus PreparedData find_prepared_folder find_prepared_tokenizer find_prepared_validation "
                "list_prepared_files open_prepared_copy prepare"
            ),
            "transduce.data.store": "TokenStore create_store explain_cache_errors",
        },
    )

__all__ = [
    "Batch",
    "PreparedCorpus",
    "PreparedData",
    "TokenStore",
    "choose_generated_columns",
    "count_max_repetitions",
    "create_store",
    "explain_cache_errors",
    "find_prepared_folder",
    "find_prepared_tokenizer",
    "find_prepared_validation",
    "list_prepared_files",
    "measure_longest_sides",
    "open_corpus",
    "open_epoch_store",
    "open_prepared_copy",
    "plan_batches",
    "prepare",
    "read_batches",
    "remove_epochs",
    "sample_pairs",
    "select_epoch_pairs",
]
