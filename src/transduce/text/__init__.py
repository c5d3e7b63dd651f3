"""Text before the model: corpora, cleaning, the tokenizer, and the segmentation of long texts."""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.text.augmentation import augment_pairs
    from transduce.text.corpus import (
        CONTROL_CHARACTER,
        LONE_SURROGATE,
        Cleaner,
        Pair,
        ParallelCorpus,
        write_standard_input,
    )
    from transduce.text.formats import open_parallel_corpus
    from transduce.text.glossary import Glossary, Term, count_phrase, find_phrase
    from transduce.text.kept_elements import find_kept_spans, pair_kept_spans
    from transduce.text.languages import LANGUAGE_NAMES, WITHOUT_SPACES, choose_tokenization
    from transduce.text.lines import (
        compress,
        decompress,
        read_available_blocks,
        read_document,
        read_lines,
        read_stream,
        split_name,
    )
    from transduce.text.protected_spans import (
        USUAL_KINDS,
        ProtectedSpan,
        SpanCheck,
        SpanKind,
        find_protected_spans,
        find_run_before,
        find_run_behind,
        has_letters,
        pair_tags,
        restore_spacing,
    )
    from transduce.text.segmentation import (
        Document,
        find_fitting_spans,
        join_segments,
        rebuild_document,
        split_document,
        split_segments,
        split_sentences,
        split_tagged_sentences,
        subdivide_document,
    )
    from transduce.text.tokenizer import (
        PIECES_WITHOUT_TEXT,
        SOURCE_MODEL,
        SYNTHETIC_TAGS,
        TARGET_MODEL,
        VOCABULARY,
        Tokenizer,
        find_tokenizer_files,
        fit_vocabulary_size,
    )
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.text.augmentation": "augment_pairs",
            "transduce.text.corpus": (
                "CONTROL_CHARACTER Cleaner LONE_SURROGATE Pair ParallelCorpus write_standard_input"
            ),
            "transduce.text.formats": "open_parallel_corpus",
            "transduce.text.glossary": "Glossary Term count_phrase find_phrase",
            "transduce.text.kept_elements": "find_kept_spans pair_kept_spans",
            "transduce.text.languages": "LANGUAGE_NAMES WITHOUT_SPACES choose_tokenization",
            "transduce.text.lines": (
                "compress decompress read_available_blocks read_document read_lines read_stream split_name"
            ),
            "transduce.text.protected_spans": (
                "SpanKind ProtectedSpan SpanCheck USUAL_KINDS find_protected_spans find_run_before find_run_behind "
                "has_letters pair_tags restore_spacing"
            ),
            "transduce.text.segmentation": (
                "Document find_fitting_spans join_segments rebuild_document split_document split_segments "
                "split_sentences split_tagged_sentences subdivide_document"
            ),
            "transduce.text.tokenizer": (
                "PIECES_WITHOUT_TEXT SOURCE_MODEL SYNTHETIC_TAGS TARGET_MODEL Tokenizer VOCABULARY "
                "find_tokenizer_files fit_vocabulary_size"
            ),
        },
    )

__all__ = [
    "CONTROL_CHARACTER",
    "LANGUAGE_NAMES",
    "LONE_SURROGATE",
    "PIECES_WITHOUT_TEXT",
    "SOURCE_MODEL",
    "SYNTHETIC_TAGS",
    "TARGET_MODEL",
    "USUAL_KINDS",
    "VOCABULARY",
    "WITHOUT_SPACES",
    "Cleaner",
    "Document",
    "Glossary",
    "Pair",
    "ParallelCorpus",
    "ProtectedSpan",
    "SpanCheck",
    "SpanKind",
    "Term",
    "Tokenizer",
    "augment_pairs",
    "choose_tokenization",
    "compress",
    "count_phrase",
    "decompress",
    "find_fitting_spans",
    "find_kept_spans",
    "find_phrase",
    "find_protected_spans",
    "find_run_before",
    "find_run_behind",
    "find_tokenizer_files",
    "fit_vocabulary_size",
    "has_letters",
    "join_segments",
    "open_parallel_corpus",
    "pair_kept_spans",
    "pair_tags",
    "read_available_blocks",
    "read_document",
    "read_lines",
    "read_stream",
    "rebuild_document",
    "restore_spacing",
    "split_document",
    "split_name",
    "split_segments",
    "split_sentences",
    "split_tagged_sentences",
    "subdivide_document",
    "write_standard_input",
]
