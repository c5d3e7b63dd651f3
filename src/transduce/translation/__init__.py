"""A model and its tokenizer, on disk or in training: text in, text out."""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.translation.confidence.alignment import (
        Alignment,
        AlignmentHead,
        GoldAlignment,
        align_pairs,
        align_stream,
        choose_head,
        measure_heads,
        read_gold_alignments,
    )
    from transduce.translation.confidence.calibration import Confidence, measure_confidence
    from transduce.translation.confidence.guard import PROBLEMS
    from transduce.translation.confidence.scoring import (
        EncodedPair,
        ForcedDecoder,
        PairScore,
        Perplexity,
        encode_pairs,
        score_encoded_pairs,
        score_ids,
        score_pairs,
        score_stream,
    )
    from transduce.translation.constraints import TextConstraints
    from transduce.translation.documents import DocumentTranslator, translate_texts
    from transduce.translation.engines.engine import Engine, batch_by_length
    from transduce.translation.engines.networks import Network
    from transduce.translation.engines.pytorch_engine import NetworkEngine, PyTorchEngine, find_pytorch_engine
    from transduce.translation.lines import (
        LineTranslator,
        TranslatedLine,
        align_lines,
        describe_lines,
        make_safer_settings,
    )
    from transduce.translation.options import (
        DescribedFields,
        InputLine,
        ScoredText,
        Token,
        TranslatedSentence,
        TranslationOptions,
    )
    from transduce.translation.translator import EncodedText, Translation, TranslationAlternative, Translator, translate
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.translation.confidence.alignment": (
                "Alignment AlignmentHead GoldAlignment align_pairs align_stream choose_head measure_heads "
                "read_gold_alignments"
            ),
            "transduce.translation.confidence.calibration": "Confidence measure_confidence",
            "transduce.translation.confidence.guard": "PROBLEMS",
            "transduce.translation.confidence.scoring": (
                "EncodedPair ForcedDecoder PairScore Perplexity encode_pairs score_encoded_pairs score_ids "
                "score_pairs score_stream"
            ),
            "transduce.translation.constraints": "TextConstraints",
            "transduce.translation.documents": "DocumentTranslator translate_texts",
            "transduce.translation.engines.engine": "Engine batch_by_length",
            "transduce.translation.engines.networks": "Network",
            "transduce.translation.engines.pytorch_engine": "PyTorchEngine NetworkEngine find_pytorch_engine",
            "transduce.translation.lines": (
                "LineTranslator TranslatedLine align_lines describe_lines make_safer_settings"
            ),
            "transduce.translation.options": (
                "DescribedFields ScoredText Token TranslatedSentence InputLine TranslationOptions"
            ),
            "transduce.translation.translator": "TranslationAlternative EncodedText Translation Translator translate",
        },
    )

__all__ = [
    "PROBLEMS",
    "Alignment",
    "AlignmentHead",
    "Confidence",
    "DescribedFields",
    "DocumentTranslator",
    "EncodedPair",
    "EncodedText",
    "Engine",
    "ForcedDecoder",
    "GoldAlignment",
    "InputLine",
    "LineTranslator",
    "Network",
    "NetworkEngine",
    "PairScore",
    "Perplexity",
    "PyTorchEngine",
    "ScoredText",
    "TextConstraints",
    "Token",
    "TranslatedLine",
    "TranslatedSentence",
    "Translation",
    "TranslationAlternative",
    "TranslationOptions",
    "Translator",
    "align_lines",
    "align_pairs",
    "align_stream",
    "batch_by_length",
    "choose_head",
    "describe_lines",
    "encode_pairs",
    "find_pytorch_engine",
    "make_safer_settings",
    "measure_confidence",
    "measure_heads",
    "read_gold_alignments",
    "score_encoded_pairs",
    "score_ids",
    "score_pairs",
    "score_stream",
    "translate",
    "translate_texts",
]
