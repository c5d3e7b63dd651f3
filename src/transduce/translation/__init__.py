"""A model and its tokenizer, on disk or in training: text in, text out."""

from transduce.translation.device import find_device
from transduce.translation.engine import Engine, NativeEngine, batches_by_length
from transduce.translation.translator import Alternative, Translation, Translator, translate

__all__ = [
    "Alternative",
    "Engine",
    "NativeEngine",
    "Translation",
    "Translator",
    "batches_by_length",
    "find_device",
    "translate",
]
