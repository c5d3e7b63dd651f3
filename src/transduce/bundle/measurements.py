"""Measurements of a finished model, kept as files in its bundle: calibration.json and scorecard.json.

These files are optional: a bundle without them is complete. Each records size and SHA-256 of the bundle's files when it
was measured, so that it is refused for any other model. Replacing a model removes them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic

from transduce.bundle.bundle import DESCRIPTION, Bundle
from transduce.bundle.manifest import AnyDescription, BundleDescription, read_description, serialize_description
from transduce.errors import BundleError
from transduce.storage import OwnFileKind, check_writable, lock_folder, make_write_error


@dataclass(frozen=True)
class MeasurementFile(Generic[AnyDescription]):
    """A file of measurements in a bundle.

    Args:
        name: its name.
        kind: its content, whose `format` marks the file, even a damaged one.
        noun: what it is, for messages.
        command: the command that measures.
    """

    name: str
    kind: type[AnyDescription]
    noun: str
    command: str

    def read(self, bundle: Bundle) -> AnyDescription | None:
        """Read the file in `bundle`; None if there is none.

        Raises:
            BundleError: it is damaged, or was measured with another model.
        """
        path = bundle.folder / self.name
        if not path.exists():
            return None
        found = read_description(path, self.kind)
        if found.files != bundle.description.files:
            raise BundleError(
                f"{path}: was measured with other files than {', '.join(bundle.description.files)} beside it: remove "
                f"it, or measure anew ({self.command})"
            )
        return found

    def check(self, bundle: Bundle, *, force: bool) -> None:
        """Check that the file can be written to `bundle`; nothing is changed.

        Raises:
            OutputError: a file of its name is something else, or it cannot be written.
            WriteError: its disk is full.
        """
        place = bundle.folder.resolve()
        check_writable(place)  # for the lock beside it
        self._file.check(place / self.name, force=force)

    @contextmanager
    def lock(self, bundle: Bundle, *, force: bool) -> Iterator[None]:
        """Lock `bundle` for writing the file.

        Raises:
            BundleError: the folder has another model by now than when `bundle` was opened.
            BusyError: another process is writing to the bundle.
            OutputError, WriteError: see `check`; or the block failed to write, as on a full disk.
        """
        self.check(bundle, force=force)
        place = bundle.folder.resolve()
        try:
            # The lock of `replace_folder`: a training does not put a new model into the folder meanwhile.
            with lock_folder(bundle.folder, place.with_name(f".{place.name}.lock")):
                if read_description(place / DESCRIPTION, BundleDescription).files != bundle.description.files:
                    raise BundleError(f"{bundle.folder}: has another model by now than the one measured: measure anew")
                yield
        except OSError as error:
            raise make_write_error(bundle.folder, error) from error

    def write(self, bundle: Bundle, content: AnyDescription, *, force: bool) -> None:
        """Write the file, within `lock`; a crash leaves the old file or the new one."""
        path = bundle.folder.resolve() / self.name
        self._file.write(path, serialize_description(content).decode(), force=force)

    @property
    def _file(self) -> OwnFileKind:
        return OwnFileKind(self.noun, (f'"format": "{self.kind.model_fields["format"].default}"',))
