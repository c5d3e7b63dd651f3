"""The package `ctranslate2`, which not everybody has installed."""

from types import ModuleType

from transduce.errors import MissingExtraError


def import_ctranslate2(purpose: str) -> ModuleType:
    """The package; `purpose` says what needs it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import ctranslate2  # noqa: PLC0415 - optional
        import ctranslate2.specs  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("ctranslate2", "ctranslate2", purpose) from None
    package: ModuleType = ctranslate2
    return package


def compute_type(precision: str, device: str) -> str:
    """The arithmetic for weights in `precision`, as CTranslate2 calls it: float32 where `device` has no other for them.

    CTranslate2 would choose the same, and complain about it on standard error.

    Raises:
        MissingExtraError: CTranslate2 is not installed.
    """
    known = import_ctranslate2("running a model in CTranslate2").get_supported_compute_types(device)
    return precision if precision in known else "float32"
