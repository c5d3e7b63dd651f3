"""HTTP dialects: one module each, with its routes and the models of its requests and responses.

Clients of LibreTranslate and DeepL send parameters in the query, as a form or as JSON, in any combination. This module
has what both dialects share: reading such parameters, validating them with a pydantic model, and describing that model
in OpenAPI.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar, NamedTuple, Never, TypeVar
from urllib.parse import parse_qsl, quote

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response

from transduce.documents import FORMATS
from transduce.errors import ParameterError, WrongMediaTypeError
from transduce.serving.files import StoredFile
from transduce.serving.middleware import admit_request, get_service
from transduce.serving.service import Service
from transduce.text.json_objects import RepeatedKeyError, make_object

_MAX_OTHER_FIELDS = 100
"""Maximum number of fields of a form besides one for each text that a request may have."""

_LINE_END = re.compile(r"\r\n?")


def _check_text(value: object, info: Any) -> str:  # noqa: ANN401 - a ValidationInfo, which beartype cannot check
    return check_text(str(info.field_name), value)


def _check_texts(value: object, info: Any) -> list[str]:  # noqa: ANN401 - a ValidationInfo, which beartype cannot check
    return [_check_text(one, info) for one in (value if isinstance(value, list) else [value])]


Text = Annotated[str, BeforeValidator(_check_text)]
Texts = Annotated[list[str], BeforeValidator(_check_texts)]
"""A list of texts, or a single one."""


class Parameters(BaseModel):
    """Base of the request models of dialects whose parameters are in the query, in a form or in JSON.

    A parameter that is null or "" counts as absent, and unknown ones are ignored.
    """

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    missing_message: ClassVar[str] = "Invalid request: missing {} parameter"
    keeps_empty: ClassVar[frozenset[str]] = frozenset()
    """Names of parameters for which "" is a value."""

    @model_validator(mode="before")
    @classmethod
    def drop_absent(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Drop parameters that count as absent."""
        return {
            name: value
            for name, value in values.items()
            if value is not None and (value != "" or name in cls.keeps_empty)
        }


def check_text(name: str, value: object) -> str:
    """Check that a parameter is text without unpaired surrogates."""
    if not isinstance(value, str):
        raise ParameterError(f"Invalid request: {name} must be text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ParameterError(f"Invalid request: {name} contains an unpaired surrogate (half of a character)") from None
    return value


_ModelT = TypeVar("_ModelT", bound=Parameters)


def parse_parameters(model: type[_ModelT], parameters: Mapping[str, Any], **context: object) -> _ModelT:
    """Validate parameters from `read_parameters` with the model of a request; `context` is for its validators.

    Raises:
        ParameterError: a parameter is missing or has an invalid value.
    """
    try:
        return model.model_validate(parameters, context=context)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, ParameterError):
        raise cause
    name, value = str(problem["loc"][0]), problem["input"]
    if problem["type"] == "literal_error":
        text = check_text(name, value)
        choices = ", ".join(re.findall("'([^']*)'", problem["ctx"]["expected"]))
        raise ParameterError(f"Invalid request: {name} = {text[:50]!r}: must be one of {choices}")
    raise ParameterError(model.missing_message.format(name))


@asynccontextmanager
async def admit_with_parameters(request: Request, key_name: str) -> AsyncIterator[tuple[Service, dict[str, Any]]]:
    """Read the parameters of a request and admit it; `key_name` is the parameter that may hold its API key."""
    parameters = await read_parameters(request)
    with admit_request(request, _get_key(parameters, key_name)) as service:
        yield service, parameters


def _get_key(parameters: Mapping[str, Any], key_name: str) -> str | None:
    key = parameters.get(key_name)
    return None if key is None or key == "" else check_text(key_name, key)


class UploadedFile(NamedTuple):
    """A file in a form, with the name that the client gave it."""

    name: str
    content: bytes


@asynccontextmanager
async def admit_with_file(
    request: Request, key_name: str
) -> AsyncIterator[tuple[Service, dict[str, Any], UploadedFile | None]]:
    """Read the parameters of a request and the file of its form, if there is one, and admit it."""
    files: list[UploadedFile] = []
    parameters = await read_parameters(request, files)
    with admit_request(request, _get_key(parameters, key_name)) as service:
        yield service, parameters, files[0] if files else None


async def read_authorized_parameters(request: Request, key_name: str) -> dict[str, Any]:
    """Read the parameters of a request and check its key, without admitting it: it needs no model."""
    parameters = await read_parameters(request)
    request.app.state.authorization.check(request, _get_key(parameters, key_name))
    return parameters


def make_file_response(file: StoredFile) -> Response:
    """Make the response with a translated document, which a browser saves and never shows.

    Raises:
        TransduceError: what the translation raised.
    """
    disposition = f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"
    headers = {"Content-Disposition": disposition, "Content-Type": "application/octet-stream"}
    return Response(file.task.result().content, headers=headers)


async def read_parameters(request: Request, files: list[UploadedFile] | None = None) -> dict[str, Any]:
    """Read parameters from JSON, a form and the query, with JSON taking precedence; line ends are normalised as in
    JSON. The file of a form, one at most, is appended to `files`; without it, a form may have none.

    Raises:
        ParameterError: the body does not match its media type.
        WrongMediaTypeError: the body is neither JSON nor a form.
    """
    values = _group_fields(list(request.query_params.multi_items()))
    body = await request.body()
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not body.strip():
        return values
    if media_type == "application/x-www-form-urlencoded":
        return values | _group_fields(_parse_url_encoded(body, _get_max_fields(request)))
    if media_type == "multipart/form-data":
        async with _parse_form(request, max_files=0 if files is None else 1, max_part_size=len(body)) as form:
            fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
            for name, value in form.multi_items():
                if name == "file" and isinstance(value, UploadFile) and files is not None:
                    file_name = check_text("the name of the file", value.filename or "")
                    files.append(UploadedFile(file_name, await value.read()))
            return values | _group_fields(fields)
    if not media_type or media_type == "application/json" or media_type.endswith("+json"):
        return values | _parse_json(body)
    raise WrongMediaTypeError(f"the body must be JSON or a form, not {media_type[:50]}")


class _FormParser(MultiPartParser):
    spool_max_size = 0
    """Files stay in memory whatever their size, which the limit on bodies bounds: documents may be confidential."""


@asynccontextmanager
async def _parse_form(request: Request, *, max_files: int, max_part_size: int) -> AsyncIterator[FormData]:
    parser = _FormParser(
        request.headers,
        request.stream(),
        max_files=max_files,
        max_fields=_get_max_fields(request),
        max_part_size=max_part_size,
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise ParameterError(f"Invalid request: {error.message}") from None
    except UnicodeError:  # as of Python's encoding "undefined"
        raise ParameterError("Invalid request: the form is not in the charset that its Content-Type names") from None
    try:
        yield form
    finally:
        await form.close()


def describe_success(description: str, example: object) -> dict[int | str, dict[str, Any]]:
    """Describe a successful response for OpenAPI; FastAPI adds its schema."""
    return {200: {"description": description, "content": {"application/json": {"example": example}}}}


def describe_error(field: str, example: str) -> dict[str, Any]:
    """Describe the body of an error for OpenAPI: an object with one field, the message."""
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    return {"application/json": {"schema": {**schema, "examples": [{field: example}]}}}


def describe_upload(model: type[Parameters]) -> dict[str, Any]:
    """Describe a request body for OpenAPI: a form with a file."""
    schema = model.model_json_schema()
    properties = {name: _simplify_schema(one) for name, one in schema["properties"].items()}
    fields = {name: _describe_form_field(one, name in schema["required"]) for name, one in properties.items()}
    file = {"type": "string", "format": "binary", "description": f"The document: {', '.join(FORMATS)}."}
    described = {"type": "object", "properties": {"file": file, **fields}, "required": ["file", *schema["required"]]}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": described}}}}


def describe_body(model: type[Parameters], example: dict[str, Any], *form_types: str) -> dict[str, Any]:
    """Describe a request body for OpenAPI: as JSON, and as forms, all of whose values are strings."""
    schema = model.model_json_schema()
    required = schema["required"]
    properties = {name: _simplify_schema(one) for name, one in schema["properties"].items()}
    in_json = {name: one if name in required else _allow_absence(one) for name, one in properties.items()}
    in_form = {name: _describe_form_field(one, name in required) for name, one in properties.items()}
    contents = {"application/json": in_json} | dict.fromkeys(form_types, in_form)
    return {
        "requestBody": {
            "required": True,
            "description": "The same parameters may be given in the query instead.",
            "content": {
                media_type: {
                    "schema": {"type": "object", "properties": fields, "required": required},
                    "example": example,
                }
                for media_type, fields in contents.items()
            },
        }
    }


def _simplify_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove titles, null and defaults that are null from a schema of pydantic."""
    schema = {name: value for name, value in schema.items() if name != "title" and (name, value) != ("default", None)}
    kinds = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return {name: value for name, value in schema.items() if name != "anyOf"} | (
        kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}
    )


def _allow_absence(schema: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "type" not in schema:
        return schema
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    choices = {"enum": [*schema["enum"], "", None]} if "enum" in schema else {}
    return {**schema, "type": [*kinds, "null"], **choices}


def _describe_form_field(schema: dict[str, Any], is_required: bool) -> dict[str, Any]:
    if "anyOf" in schema:
        return schema
    kept: dict[str, Any] = {
        name: schema[name]
        for name in ("description", "examples", "minLength", "x-languages", "x-limit")
        if name in schema
    }
    choices = [one for one in schema.get("enum", ()) if isinstance(one, str)]
    return {**kept, "type": "string", **({"enum": choices if is_required else [*choices, ""]} if choices else {})}


def _group_fields(fields: list[tuple[str, str]]) -> dict[str, Any]:
    lists: dict[str, list[str]] = {}
    for name, value in fields:
        lists.setdefault(name, []).append(_LINE_END.sub("\n", value))
    return {name: values[0] if len(values) == 1 else values for name, values in lists.items()}


def _get_max_fields(request: Request) -> int:
    return get_service(request).limits.max_texts + _MAX_OTHER_FIELDS


def _parse_url_encoded(body: bytes, max_fields: int) -> list[tuple[str, str]]:
    num_fields = 1 + body.count(b"&")
    if num_fields > max_fields:
        raise ParameterError(
            f"Invalid request: the form has {num_fields:,} fields; this service accepts at most {max_fields:,} per "
            "request; split it"
        )
    try:
        return parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise ParameterError("Invalid request: the form is not UTF-8; encode it so") from None


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body, parse_constant=_refuse_constant, object_pairs_hook=make_object)
    except RepeatedKeyError as error:
        raise ParameterError(f"Invalid request: an object in the body {error}") from None
    except (ValueError, RecursionError):
        raise ParameterError("Invalid request: the body is not JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise ParameterError("Invalid request: the body must be a JSON object")
    return value


def _refuse_constant(constant: str) -> Never:
    raise ValueError(constant)
