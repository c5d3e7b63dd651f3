"""Text on its way in and out: parallel corpora, which pairs training leaves out, the tokenizer, long texts in parts."""

from transduce.text.cleaning import Cleaner
from transduce.text.corpus import ParallelCorpus, parallel_corpus, write_standard_input
from transduce.text.glossary import Glossary, Term, count_whole, find_whole
from transduce.text.language_names import LANGUAGE_NAMES
from transduce.text.lines import arriving_blocks, read_document, read_lines, read_stream
from transduce.text.pieces import SOURCE_MODEL, TARGET_MODEL, VOCABULARY, tokenizer_files
from transduce.text.protected_spans import (
    USUAL_KINDS,
    Kind,
    ProtectedSpan,
    SpanCheck,
    elements,
    find_protected_spans,
    paired_spans,
    respaced,
    run_before,
    run_behind,
)
from transduce.text.segmentation import (
    Document,
    fitting_places,
    rebuilt,
    segments,
    sentences,
    split_document,
    subdivided,
    tagged_sentences,
)
from transduce.text.tokenizer import Tokenizer, fitted_vocabulary

__all__ = [
    "LANGUAGE_NAMES",
    "SOURCE_MODEL",
    "TARGET_MODEL",
    "USUAL_KINDS",
    "VOCABULARY",
    "Cleaner",
    "Document",
    "Glossary",
    "Kind",
    "ParallelCorpus",
    "ProtectedSpan",
    "SpanCheck",
    "Term",
    "Tokenizer",
    "arriving_blocks",
    "count_whole",
    "elements",
    "find_protected_spans",
    "find_whole",
    "fitted_vocabulary",
    "fitting_places",
    "paired_spans",
    "parallel_corpus",
    "read_document",
    "read_lines",
    "read_stream",
    "rebuilt",
    "respaced",
    "run_before",
    "run_behind",
    "segments",
    "sentences",
    "split_document",
    "subdivided",
    "tagged_sentences",
    "tokenizer_files",
    "write_standard_input",
]
