"""A model and its tokenizer, on disk or in training: text in, text out."""

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
    DescribedFields,
    EncodedPair,
    ForcedDecoder,
    PairScore,
    Perplexity,
    Token,
    encode_pairs,
    score_encoded_pairs,
    score_ids,
    score_pairs,
    score_stream,
)
from transduce.translation.constraints.text_constraints import TextConstraints
from transduce.translation.engines.engine import Engine, NativeEngine, NetworkEngine, batch_by_length
from transduce.translation.engines.inference_model import Network
from transduce.translation.lines import (
    Line,
    LineTranslator,
    ScoredText,
    TranslatedSentence,
    align_lines,
    describe_lines,
    make_safer_settings,
)
from transduce.translation.options import TranslationLine, TranslationOptions
from transduce.translation.translator import Alternative, EncodedText, Translation, Translator, translate

__all__ = [
    "PROBLEMS",
    "Alignment",
    "AlignmentHead",
    "Alternative",
    "Confidence",
    "DescribedFields",
    "EncodedPair",
    "EncodedText",
    "Engine",
    "ForcedDecoder",
    "GoldAlignment",
    "Line",
    "LineTranslator",
    "NativeEngine",
    "Network",
    "NetworkEngine",
    "PairScore",
    "Perplexity",
    "ScoredText",
    "TextConstraints",
    "Token",
    "TranslatedSentence",
    "Translation",
    "TranslationLine",
    "TranslationOptions",
    "Translator",
    "align_lines",
    "align_pairs",
    "align_stream",
    "batch_by_length",
    "choose_head",
    "describe_lines",
    "encode_pairs",
    "make_safer_settings",
    "measure_confidence",
    "measure_heads",
    "read_gold_alignments",
    "score_encoded_pairs",
    "score_ids",
    "score_pairs",
    "score_stream",
    "translate",
]
