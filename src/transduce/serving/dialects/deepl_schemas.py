"""What the routes of DeepL's dialect say of themselves in the OpenAPI document; see `libretranslate_schemas`."""

from typing import Any


def _choice(description: str, *values: str, default: str | None = None) -> dict[str, Any]:
    """One of some words; "" and null are as if absent."""
    schema = {"type": ["string", "null"], "enum": [*values, "", None], "description": description}
    return schema if default is None else schema | {"default": default}


def _names(description: str) -> dict[str, Any]:
    kinds = [{"type": "array", "items": {"type": "string"}}, {"type": "string"}, {"type": "null"}]
    return {"anyOf": kinds, "description": description}


def _texts(values: list[Any]) -> list[str]:
    return [value for value in values if isinstance(value, str)]


_FLAG = {
    "type": ["boolean", "integer", "string", "null"],
    "enum": [True, False, 1, 0, "1", "0", "true", "false", "", None],
}
_NO_DIFFERENCE = {"description": "Makes no difference."}
_ASKED: dict[str, dict[str, Any]] = {
    "text": {
        "anyOf": [{"type": "array", "items": {"type": "string"}, "minItems": 1}, {"type": "string"}],
        "description": "Texts, or one.",
    },
    "target_lang": {"type": "string", "x-languages": "deepl-targets", "description": "Language code."},
    "source_lang": {
        "type": ["string", "null"],
        "x-languages": "deepl-sources",
        "description": "Language code; each text's is detected unless given.",
    },
    "split_sentences": _choice(
        "Whether texts are divided into sentences; nonewlines: line ends are spaces.",
        "0",
        "1",
        "nonewlines",
        default="1",
    ),
    "tag_handling": _choice("What kind of markup texts are.", "xml", "html"),
    "splitting_tags": _names("Elements that divide sentences."),
    "non_splitting_tags": _names("Elements that do not."),
    "ignore_tags": _names("Elements whose text is kept."),
    "outline_detection": {**_FLAG, "description": "0: no elements divide sentences but splitting_tags; else 1."},
    "formality": _choice("Makes no difference.", "default", "prefer_more", "prefer_less"),
    "context": _NO_DIFFERENCE,
    "enable_beta_languages": _NO_DIFFERENCE,
    "model_type": _NO_DIFFERENCE,
    "preserve_formatting": {"description": "Makes no difference: nothing is corrected."},
    "show_billed_characters": {"description": "Makes no difference: they are always shown."},
    "tag_handling_version": _NO_DIFFERENCE,
    "auth_key": {"type": ["string", "null"], "description": "API key, if this service needs one: better in a header."},
}
_IN_FORM = {
    name: {**schema, "anyOf": [one for one in schema["anyOf"] if one["type"] != "null"]}
    if "anyOf" in schema
    else {**schema, "type": "string", **({"enum": _texts(schema["enum"])} if "enum" in schema else {})}
    for name, schema in _ASKED.items()
}
"""The same without null, which forms cannot say."""

_EXAMPLE = {"text": ["A man is riding a bike."], "target_lang": "DE"}
_ERROR = {
    "application/json": {
        "schema": {
            "type": "object",
            "properties": {"message": {"type": "string"}},
            "required": ["message"],
            "examples": [{"message": "Parameter 'text' not specified"}],
        }
    }
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": _ERROR}
    for status, text in {
        400: "Something is missing or not supported.",
        403: "A key is needed, or this one is not known.",
        408: "The body did not arrive in time.",
        413: "The body is too large, or there are too many texts or characters.",
        415: "The body is neither JSON nor a form.",
        429: "This client asks too often: see Retry-After.",
        503: "Too much is waiting, or the service starts or ends: see Retry-After.",
        504: "It could not be done in time.",
    }.items()
}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def _answers(description: str, schema: dict[str, Any], example: object) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"schema": schema, "example": example}}
    return {200: {"description": description, "content": content}, **_ERRORS}


TRANSLATE = {
    "requestBody": {
        "required": True,
        "content": {
            media_type: {
                "schema": {"type": "object", "properties": properties, "required": ["text", "target_lang"]},
                "example": _EXAMPLE,
            }
            for media_type, properties in (
                ("application/json", _ASKED),
                ("application/x-www-form-urlencoded", _IN_FORM),
            )
        },
    }
}
TRANSLATED = _answers(
    "A translation of each text, in order.",
    _object(
        {
            "translations": {
                "type": "array",
                "items": _object(
                    {
                        "detected_source_language": {"type": "string"},
                        "text": {"type": "string"},
                        "billed_characters": {"type": "integer"},
                    }
                ),
            }
        }
    ),
    {"translations": [{"detected_source_language": "EN", "text": "Ein Mann fährt Fahrrad.", "billed_characters": 23}]},
)
LIST = {
    "parameters": [
        {
            "name": "type",
            "in": "query",
            "schema": {"type": "string", "enum": ["source", "target", ""], "default": "source"},
            "description": "May be in a form in the body, too, as the official client has it.",
        }
    ]
}
LANGUAGES = _answers(
    "The languages.",
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "language": {"type": "string"},
                "name": {"type": "string"},
                "supports_formality": {"type": "boolean", "description": "Of targets."},
            },
            "required": ["language", "name"],
        },
    },
    [{"language": "DE", "name": "German", "supports_formality": False}],
)
USAGE = _answers(
    "Characters that were translated, and how many may be.",
    _object({"character_count": {"type": "integer"}, "character_limit": {"type": "integer"}}),
    {"character_count": 1234, "character_limit": 1_000_000_000_000},
)
GLOSSARY_PAIRS = _answers(
    "No pairs.", _object({"supported_languages": {"type": "array", "maxItems": 0}}), {"supported_languages": []}
)
GLOSSARIES = _answers("No glossaries.", _object({"glossaries": {"type": "array", "maxItems": 0}}), {"glossaries": []})
