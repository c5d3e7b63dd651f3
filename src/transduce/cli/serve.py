"""`transduce serve`."""

import asyncio
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from transduce.cli.console import print_message
from transduce.cli.corpus_options import check_language_code
from transduce.cli.translation_options import EngineFlags
from transduce.errors import ConfigError, MissingExtraError
from transduce.interop import NATIVE
from transduce.serving.scheduling import Limits

_PACKAGES = {
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "httptools": "httptools",
    "lxml": "lxml",
    "prometheus_client": "prometheus-client",
    "python_multipart": "python-multipart",
    "py3langid": "py3langid",
    "opentelemetry": "opentelemetry-api",
}
"""Modules of the extra, and the packages that provide them."""


@Parameter(name="*")
@dataclass(frozen=True)
class AccessFlags:
    """Address of the service, and who may use it.

    Args:
        host: address to listen on; 127.0.0.1 accepts only programs on this machine, 0.0.0.0 all networks.
        port: port to listen on; 0 picks a free one.
        api_key_file: a file with one key per line; without it, no key is needed.
        requests_per_minute: maximum requests per minute from one address; 0: no limit.
        trusted_proxies: address or network of a proxy, as in 10.0.0.0/8, whose X-Forwarded-For and X-Forwarded-Proto
            are believed; may be given several times; "*" for all. Without it, those in the variable
            FORWARDED_ALLOW_IPS, or else this machine.
        cors: an origin, as in https://example.org, whose pages may use the service from a browser; may be given several
            times; "*" for all.
        traces: address of an OpenTelemetry collector, as in http://localhost:4318, to which the time of each request
            and of its parts is sent (OTLP over HTTP), without texts, keys or addresses.
    """

    host: str = "127.0.0.1"
    port: int = 5000
    api_key_file: Path | None = None
    requests_per_minute: int = 0
    trusted_proxies: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    cors: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    traces: str | None = None

    def check(self) -> None:
        """Check the values."""
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"--port {self.port}: must be from 0 to 65535")
        if self.requests_per_minute < 0:
            raise ConfigError(
                f"--requests-per-minute {self.requests_per_minute}: must be at least 1, or 0 for no limit"
            )
        for proxy in self.trusted_proxies:
            if proxy != "*" and not _is_network(proxy):
                raise ConfigError(
                    f"--trusted-proxies {proxy}: must be an address or a network, as in 10.0.0.0/8, or * for all"
                )
        for origin in self.cors:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s*]+", origin):
                raise ConfigError(f"--cors {origin}: must be an origin, as in https://example.org, or * for all")
        if self.traces is not None and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", self.traces):
            raise ConfigError(f"--traces {self.traces}: must be an address, as in http://localhost:4318")


def _is_network(text: str) -> bool:
    """Return whether a text is an address, or a network without bits of a host."""
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


@Parameter(name="*")
@dataclass(frozen=True)
class StorageFlags:
    """Where the service keeps what clients send.

    Args:
        glossary_folder: where glossaries of DeepL's clients are kept; without it, in memory until the service ends.
        suggestion_folder: where translations are kept that people suggest by LibreTranslate's API, as pairs that
            training can read; without it, they are refused.
    """

    glossary_folder: Path | None = None
    suggestion_folder: Path | None = None


_ACCESS, _LIMITS, _STORAGE, _ENGINE_FLAGS = AccessFlags(), Limits(), StorageFlags(), EngineFlags()


def serve(
    model: Path,
    /,
    *more: Path,
    access: AccessFlags = _ACCESS,
    limits: Annotated[Limits, Parameter(name="*")] = _LIMITS,
    engine_flags: EngineFlags = _ENGINE_FLAGS,
    source_language: str = "",
    target_language: str = "",
    storage: StorageFlags = _STORAGE,
    log_format: Literal["text", "json"] = "text",
) -> None:
    """Translate over HTTP, for clients of LibreTranslate and DeepL, and for browsers.

    Args:
        model: a bundle, the folder of a run, or for another engine what was exported to it.
        more: further models, each for another language pair.
        access: the address to listen on, and who may use the service.
        limits: limits on requests.
        engine_flags: engine, precision and device.
        source_language: source language code, as in en, for a model without recorded languages.
        target_language: target language code, as in de, for a model without recorded languages.
        storage: where the service keeps what clients send.
        log_format: format of the log on standard error: one line per request, without texts, keys or addresses.
    """
    access.check()
    check_language_code("--source-language", source_language)
    check_language_code("--target-language", target_language)
    for module, package in _PACKAGES.items():
        if find_spec(module) is None:
            raise MissingExtraError(package, "serve", "transduce serve")
    # These import the packages.
    from transduce.serving.app import make_app  # noqa: PLC0415
    from transduce.serving.middleware import Authorization, RequestRate  # noqa: PLC0415
    from transduce.serving.models import ModelSettings  # noqa: PLC0415
    from transduce.serving.monitoring import log, start_logging  # noqa: PLC0415
    from transduce.serving.server import is_local, listen, run  # noqa: PLC0415
    from transduce.serving.service import Service  # noqa: PLC0415
    from transduce.serving.tracing import start_tracing  # noqa: PLC0415

    authorization = Authorization() if access.api_key_file is None else Authorization.read(access.api_key_file)
    start_logging(log_format)
    engine_flags.report_missing_kernels((model, *more), log)
    send_last_spans = None if access.traces is None else start_tracing(access.traces)
    with listen(access.host, access.port) as listening, _temporary_folder(engine_flags.engine) as temporary:
        settings = ModelSettings(
            engine_flags.engine, engine_flags.device, engine_flags.choose_precision(), source_language, target_language
        )
        warn = partial(log, level=logging.WARNING)
        service = Service((model, *more), settings, limits=limits, report=log, warn=warn)
        rate = RequestRate(access.requests_per_minute)
        has_traces = access.traces is not None
        app = make_app(
            service,
            authorization,
            rate,
            cors=access.cors,
            has_traces=has_traces,
            glossary_folder=storage.glossary_folder,
            suggestion_folder=storage.suggestion_folder,
        )
        if not (is_local(listening) or authorization.is_required):
            warn(f"anyone who can reach {access.host} can use this service; require keys with --api-key-file")

        def exit_process(exit_code: int) -> None:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            if exit_code:
                print_message("transduce: interrupted")
            elif send_last_spans is not None:
                send_last_spans()
            os._exit(exit_code)

        asyncio.run(run(app, service, listening, log, exit_process, access.trusted_proxies))


@contextmanager
def _temporary_folder(engine: str) -> Iterator[str | None]:
    """A folder, removed after the block, for models exported to another engine; None for the native engine."""
    if engine == NATIVE:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            yield folder
        finally:
            tempfile.tempdir = before
