import sys
from collections.abc import Sequence

import pytest

from transduce.__main__ import main


class Interruption:
    """Ctrl-C while a module is looked for."""

    @staticmethod
    def find_spec(name: str, _path: Sequence[str] | None, _target: object = None) -> None:
        if name == "transduce.cli":
            raise KeyboardInterrupt


def test_ctrl_c_while_modules_are_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "transduce.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interruption, *sys.meta_path])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 130
    assert capsys.readouterr().err == "transduce: interrupted\n"
