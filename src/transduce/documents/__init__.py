"""Documents with formatting: their text as markup, to be translated, and the document with the translation."""

from transduce.documents.formats import (
    FORMATS,
    FormattedDocument,
    LanguageDeclaration,
    find_document_ending,
    read_formatted_document,
)

__all__ = ["FORMATS", "FormattedDocument", "LanguageDeclaration", "find_document_ending", "read_formatted_document"]
