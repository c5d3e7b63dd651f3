"""What the routes of LibreTranslate's dialect say of themselves in the OpenAPI document.

They read query, form and JSON in every mixture, so that their descriptions are written by hand. Names of languages and
limits are put in by `openapi`.
"""

from typing import Any

_KEY = {"type": ["string", "null"], "description": "API key, if this service needs one."}
_Q = {"type": "string", "minLength": 1, "examples": ["A man is riding a bike."]}
_LIST = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_SOURCE = {"type": "string", "x-languages": "sources-or-auto", "description": "Language code, or auto to detect it."}
_TARGET = {"type": "string", "x-languages": "targets", "description": "Language code."}
_FORMAT = {"type": ["string", "null"], "enum": ["text", "html", "", None], "default": "text"}
_ALTERNATIVES = {
    "type": ["integer", "null"],
    "minimum": 0,
    "maximum": 1,
    "x-limit": "max_alternatives",
    "default": 0,
    "description": "How many other translations there are to be at most; none of html.",
}
_ERROR = {
    "application/json": {
        "schema": {
            "type": "object",
            "properties": {"error": {"type": "string"}},
            "required": ["error"],
            "examples": [{"error": "Invalid request: missing q parameter"}],
        }
    }
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": _ERROR}
    for status, text in {
        400: "Something is missing, not supported, or too long, or a key is needed.",
        403: "The key is not known.",
        408: "The body did not arrive in time.",
        413: "The body is too large.",
        415: "The body is neither JSON nor a form.",
        429: "This client asks too often: see Retry-After.",
        503: "Too much is waiting, or the service starts or ends: see Retry-After.",
        504: "It could not be done in time.",
    }.items()
}
_DETECTION = {
    "type": "object",
    "properties": {"confidence": {"type": "number", "minimum": 0, "maximum": 100}, "language": {"type": "string"}},
    "required": ["confidence", "language"],
}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _body(asked: dict[str, Any], required: list[str], example: dict[str, Any]) -> dict[str, Any]:
    of_form = {name: {**schema, "type": "string"} for name, schema in asked.items()} | {"q": _Q}
    if "format" in of_form:
        of_form["format"] = {**_FORMAT, "type": "string", "enum": ["text", "html", ""]}
    if "alternatives" in of_form:
        of_form["alternatives"] = {"type": "string", "pattern": "^[0-1]$", "x-limit": "max_alternatives"}
    forms = {"schema": _object(of_form, required), "example": example}
    return {
        "requestBody": {
            "required": True,
            "description": "The same names may be in the query instead.",
            "content": {
                "application/json": {"schema": _object(asked, required), "example": example},
                "application/x-www-form-urlencoded": forms,
                "multipart/form-data": forms,
            },
        }
    }


def _answers(description: str, schema: dict[str, Any], example: object) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"schema": schema, "example": example}}
    return {200: {"description": description, "content": content}, **_ERRORS}


TRANSLATE = _body(
    {
        "q": {"anyOf": [_Q, _LIST]},
        "source": _SOURCE,
        "target": _TARGET,
        "format": _FORMAT,
        "alternatives": _ALTERNATIVES,
        "api_key": _KEY,
    },
    ["q", "source", "target"],
    {"q": "A man is riding a bike.", "source": "en", "target": "de", "alternatives": 1},
)
TRANSLATED = _answers(
    "The translation; of a list, lists of everything.",
    _object(
        {
            "translatedText": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            "detectedLanguage": {"anyOf": [_DETECTION, {"type": "array", "items": _DETECTION}]},
            "alternatives": {
                "type": "array",
                "items": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            },
        },
        ["translatedText"],
    ),
    {"translatedText": "Ein Mann fährt Fahrrad.", "alternatives": ["Ein Mann fährt auf einem Fahrrad."]},
)
DETECT = _body({"q": _Q, "api_key": _KEY}, ["q"], {"q": "Ein Mann fährt Fahrrad."})
DETECTED = _answers(
    "The languages that are likely, best first.",
    {"type": "array", "items": _DETECTION, "minItems": 1},
    [{"confidence": 99.7, "language": "de"}],
)
LANGUAGES = _answers(
    "All languages; one that is only translated into has no targets.",
    {
        "type": "array",
        "items": _object(
            {
                "code": {"type": "string"},
                "name": {"type": "string"},
                "targets": {"type": "array", "items": {"type": "string"}},
            },
            ["code", "name", "targets"],
        ),
    },
    [{"code": "en", "name": "English", "targets": ["de"]}],
)
_NAMED = _object({"code": {"type": "string"}, "name": {"type": "string"}}, ["code", "name"])
_SETTINGS = {
    "apiKeys": {"type": "boolean"},
    "charLimit": {"type": "integer"},
    "filesTranslation": {"type": "boolean"},
    "frontendTimeout": {"type": "integer", "description": "Milliseconds between typing and asking."},
    "keyRequired": {"type": "boolean"},
    "language": _object({"source": _NAMED, "target": _NAMED}, ["source", "target"]),
    "suggestions": {"type": "boolean"},
    "supportedFilesFormat": {"type": "array", "items": {"type": "string"}},
}
SETTINGS = _answers(
    "What a front end shows.",
    _object(_SETTINGS, sorted(_SETTINGS)),
    {
        "apiKeys": False,
        "charLimit": 500_000,
        "filesTranslation": False,
        "frontendTimeout": 500,
        "keyRequired": False,
        "language": {"source": {"code": "en", "name": "English"}, "target": {"code": "de", "name": "German"}},
        "suggestions": False,
        "supportedFilesFormat": [],
    },
)
