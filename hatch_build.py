"""Compiles the kernels when the package is installed or built: `src/transduce/kernels/native/build.py` says how."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path(__file__).parent / "src" / "transduce" / "kernels" / "native"


class CustomBuildHook(BuildHookInterface):
    """Puts the compiled library beside its sources; without a compiler, installs what works by PyTorch alone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - called by hatchling
        """Build the library, and name it as a part of the wheel, which then is for this kind of machine alone."""
        build = runpy.run_path(str(NATIVE / "build.py"))
        try:
            library: Path = build["build_library"]()
        except (build["BuildError"], OSError) as error:
            build["LIBRARY"].unlink(missing_ok=True)  # one of other sources would not be loaded anyway
            self.app.display_warning(f"{error}\nThe compiled kernels are left out: PyTorch decodes, more slowly")
            return
        self.app.display_success(f"compiled {library}")
        build_data["artifacts"].append(str(library.relative_to(self.root)))
        build_data["pure_python"] = False
        # One wheel for all versions of Python: the library is loaded by ctypes.
        build_data["tag"] = f"py3-none-{build['find_platform']().replace('-', '_').replace('.', '_')}"
