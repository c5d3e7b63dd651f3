"""Looking inside: attention, arithmetic, search and layers of one translation, as one document."""

from transduce.inspection.document import Head, InspectionDocument
from transduce.inspection.request import EVERYTHING, QUICK, InspectionRequest
from transduce.inspection.text_inspection import InspectedModel, inspect_text

__all__ = ["EVERYTHING", "QUICK", "Head", "InspectedModel", "InspectionDocument", "InspectionRequest", "inspect_text"]
