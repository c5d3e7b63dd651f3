"""The packages `onnx`, which writes graphs, and `onnxruntime`, which runs them; not everybody has installed them."""

from types import ModuleType

from transduce.errors import MissingExtraError


def import_onnx(purpose: str) -> ModuleType:
    """The package `onnx`; `purpose` says what needs it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import onnx  # noqa: PLC0415 - optional
        import onnx.checker  # noqa: PLC0415
        import onnx.helper  # noqa: PLC0415
        import onnx.numpy_helper  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("onnx", "onnx", purpose) from None
    package: ModuleType = onnx
    return package


def import_onnxruntime(purpose: str) -> ModuleType:
    """The package `onnxruntime`; `purpose` says what needs it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import onnxruntime  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingExtraError("onnxruntime", "onnx", purpose) from None
    package: ModuleType = onnxruntime
    return package
