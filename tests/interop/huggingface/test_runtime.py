import sys
import warnings

import pytest

from transduce.errors import MissingExtraError
from transduce.interop.huggingface.runtime import import_transformers, quiet


def test_its_noise_is_back_afterwards() -> None:
    transformers = pytest.importorskip("transformers")
    logging = transformers.utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with quiet(transformers):
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (logging.ERROR, False)
        warnings.warn("Recommended: pip install sacremoses.", stacklevel=1)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    with quiet(transformers), pytest.raises(UserWarning, match="anything else"):
        warnings.warn("anything else", stacklevel=1)


def test_its_absence_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        MissingExtraError, match=r"^thinking needs the package 'transformers'.*transduce\[huggingface\]"
    ):
        import_transformers("thinking")
