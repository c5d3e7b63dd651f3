"""A model and its tokenizer, on disk or in training: text in, text out."""

from transduce.translation.alignment import Alignment, AlignmentHead, align_pairs, align_stream
from transduce.translation.alternatives import Alternative, Translation
from transduce.translation.batches import batches_by_length
from transduce.translation.confidence import Confidence, measure_confidence
from transduce.translation.details import LineDetails
from transduce.translation.engine import Engine, NativeEngine, NetworkEngine
from transduce.translation.forced_decoding import ForcedDecoder
from transduce.translation.gold_alignment import GoldAlignment, read_gold_alignments
from transduce.translation.guard import PROBLEMS
from transduce.translation.head_choice import choose_head, measure_heads
from transduce.translation.json_lines import AskedLine
from transduce.translation.line_alignment import align_lines
from transduce.translation.line_options import SETTINGS_OF_A_WISH, LineOptions
from transduce.translation.lines import Line, LineTranslator, safer_settings
from transduce.translation.network import Network
from transduce.translation.scoring import PairScore, Perplexity, score_ids, score_pairs, score_stream
from transduce.translation.text_constraints import TextConstraints
from transduce.translation.translator import Translator, translate

__all__ = [
    "PROBLEMS",
    "SETTINGS_OF_A_WISH",
    "Alignment",
    "AlignmentHead",
    "Alternative",
    "AskedLine",
    "Confidence",
    "Engine",
    "ForcedDecoder",
    "GoldAlignment",
    "Line",
    "LineDetails",
    "LineOptions",
    "LineTranslator",
    "NativeEngine",
    "Network",
    "NetworkEngine",
    "PairScore",
    "Perplexity",
    "TextConstraints",
    "Translation",
    "Translator",
    "align_lines",
    "align_pairs",
    "align_stream",
    "batches_by_length",
    "choose_head",
    "measure_confidence",
    "measure_heads",
    "read_gold_alignments",
    "safer_settings",
    "score_ids",
    "score_pairs",
    "score_stream",
    "translate",
]
