"""Text on its way in and out: parallel corpora, which pairs training leaves out, the tokenizer, long texts in parts."""

from transduce.text.cleaning import Cleaner
from transduce.text.corpus import ParallelCorpus, parallel_corpus, write_standard_input
from transduce.text.lines import read_lines, read_stream
from transduce.text.segmentation import segments, sentences
from transduce.text.tokenizer import Tokenizer, fitted_vocabulary

__all__ = [
    "Cleaner",
    "ParallelCorpus",
    "Tokenizer",
    "fitted_vocabulary",
    "parallel_corpus",
    "read_lines",
    "read_stream",
    "segments",
    "sentences",
    "write_standard_input",
]
