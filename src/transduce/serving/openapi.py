"""The OpenAPI document, with the languages and limits of this very service in it."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from transduce.serving.deepl import language_codes
from transduce.serving.libretranslate import AUTO
from transduce.serving.native_answers import Problem
from transduce.serving.reception import Reception

_LIMITS = {
    "TranslateRequest.num_best": "max_best",
    "TranslateRequest.beam": "max_beam",
    "TranslateRequest.num_samples": "max_beam",
    "TranslateRequest.deadline_seconds": "deadline_seconds",
    "ScoreRequest.deadline_seconds": "deadline_seconds",
}
_LANGUAGES = {
    "TranslateRequest.source": "sources-or-auto",
    "TranslateRequest.target": "targets",
    "ScoreRequest.source": "sources",
    "ScoreRequest.target": "targets",
    "InspectionRequest.source": "sources",
    "InspectionRequest.target": "targets",
}
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key."},
    "deepl_header": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": '"DeepL-Auth-Key KEY", as clients of DeepL have it.',
    },
    "api_key": {
        "type": "apiKey",
        "in": "query",
        "name": "api_key",
        "description": "As clients of LibreTranslate have it; or in the body, by the same name.",
    },
    "auth_key": {
        "type": "apiKey",
        "in": "query",
        "name": "auth_key",
        "description": "As old clients of DeepL have it; or in the body, by the same name.",
    },
}
_Ways = list[dict[str, list[str]]]
_HEADER: _Ways = [{"bearer": []}, {"deepl_header": []}]
_WITH_KEY: dict[str, _Ways] = {
    "Transduce": _HEADER,
    "DeepL": [*_HEADER, {"auth_key": []}],
    "LibreTranslate": [*_HEADER, {"api_key": []}],
}
"""Ways to give a key in each dialect; that it may be in the body, OpenAPI can only say in words and by an empty one."""

_WITHOUT_KEY = frozenset({"/languages", "/frontend/settings"})


def openapi_document(app: FastAPI, reception: Reception) -> dict[str, Any]:
    """The document; it is made once for the languages of the loaded models."""
    made: tuple[tuple[str, ...], dict[str, Any]] | None = getattr(app.state, "openapi", None)
    languages = reception.languages
    pairs = tuple(f"{source}-{target}" for source in languages.sources for target in languages.targets_of(source))
    if made is None or made[0] != pairs:
        made = pairs, _document(app, reception)
        app.state.openapi = made
    return made[1]


def _document(app: FastAPI, reception: Reception) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, openapi_version="3.1.0"
    )
    languages = reception.languages
    codes = {
        "sources": list(languages.sources),
        "sources-or-auto": [AUTO, *languages.sources],
        "targets": list(languages.targets),
        "deepl-sources": [*language_codes(languages.sources, "sources"), ""],
        "deepl-targets": language_codes(languages.targets, "targets"),
    }
    limits = reception.service.limits
    most: dict[str, int | float] = {
        "max_alternatives": limits.most_alternatives,
        "max_best": limits.most_alternatives + 1,
        "max_beam": limits.max_beam,
        "deadline_seconds": limits.deadline_seconds,
    }
    schemas = document["components"]["schemas"]
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= {"Problem": problem, **problem.pop("$defs")}
    for place, name in _LIMITS.items():
        _plain(_property(schemas, place))["maximum"] = most[name]
    for place, name in _LANGUAGES.items():
        _plain(_property(schemas, place))["enum"] = codes[name]
    document = dict(_filled(document, codes, most))
    if reception.authorization.is_required:
        document["components"]["securitySchemes"] = _SCHEMES
        for path, methods in document["paths"].items():
            for operation in methods.values():
                tag = operation["tags"][0]
                if tag in _WITH_KEY and path not in _WITHOUT_KEY:
                    in_body: _Ways = [{}] if "requestBody" in operation and tag != "Transduce" else []
                    operation["security"] = [*_WITH_KEY[tag], *in_body]
        document["paths"]["/metrics"]["get"]["security"] = _HEADER
    return document


def _property(schemas: dict[str, Any], place: str) -> dict[str, Any]:
    schema, _, name = place.partition(".")
    found: dict[str, Any] = schemas[schema]["properties"][name]
    return found


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """What a value is that may be null as well."""
    found: dict[str, Any] = schema["anyOf"][0] if "anyOf" in schema else schema
    return found


def _filled(node: Any, codes: dict[str, list[str]], most: dict[str, int | float]) -> Any:  # noqa: ANN401 - any JSON
    """The same with codes and limits in place of their names."""
    if isinstance(node, list):
        return [_filled(one, codes, most) for one in node]
    if not isinstance(node, dict):
        return node
    filled = {name: _filled(value, codes, most) for name, value in node.items() if not name.startswith("x-")}
    if "x-languages" in node:
        filled["enum"] = [*codes[node["x-languages"]], *([None] if "null" in node["type"] else [])]
    if "x-limit" in node:
        limit = int(most[node["x-limit"]])
        if "pattern" in node:
            filled["enum"] = [str(number) for number in range(limit + 1)]
            del filled["pattern"]
        else:
            filled["maximum"] = limit
    return filled
