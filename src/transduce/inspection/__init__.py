"""Inspection: attention, arithmetic, search and layers of one translation, as one document."""

from transduce.inspection.document import EVERYTHING, QUICK, Head, InspectionDocument, InspectionRequest
from transduce.inspection.text_inspection import InspectedModel, inspect_text

__all__ = ["EVERYTHING", "QUICK", "Head", "InspectedModel", "InspectionDocument", "InspectionRequest", "inspect_text"]
