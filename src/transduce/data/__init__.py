"""From parallel text to batches: text is checked, cleaned and encoded once, kept as token ids on disk, and
dealt out in batches whose order is a pure function of seed and epoch.
"""

from transduce.data.batch import Batch, longest_sides, plan_batches
from transduce.data.cache import file_digest, scratch_folder
from transduce.data.epochs import batches, epoch_pairs, epoch_store, most_times, remove_epochs
from transduce.data.inputs import open_corpus
from transduce.data.preparation import PreparedCorpus, PreparedData, prepare, prepared_tokenizer
from transduce.data.store import TokenStore, TokenStoreWriter, create_store

__all__ = [
    "Batch",
    "PreparedCorpus",
    "PreparedData",
    "TokenStore",
    "TokenStoreWriter",
    "batches",
    "create_store",
    "epoch_pairs",
    "epoch_store",
    "file_digest",
    "longest_sides",
    "most_times",
    "open_corpus",
    "plan_batches",
    "prepare",
    "prepared_tokenizer",
    "remove_epochs",
    "scratch_folder",
]
