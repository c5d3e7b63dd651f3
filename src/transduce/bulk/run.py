"""Translation of files by many workers: blocks are read, translated by whoever is free, written, and joined."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transduce.bulk.block_translator import BlockTranslatorSettings, TranslatedBlock
from transduce.bulk.blocks import BLOCK_LINES, Block
from transduce.bulk.dispatching import WorkerPool, translate_blocks
from transduce.bulk.formats import FileFormat, TextFormat, choose_file_format
from transduce.bulk.inputs import InputFile, find_input_files
from transduce.bulk.output_folder import OutputFolder, open_output_folder
from transduce.bulk.output_url import OutputUrl
from transduce.bulk.plan import make_plan
from transduce.bulk.stores import is_url
from transduce.errors import ConfigError
from transduce.text import LONE_SURROGATE
from transduce.translation.confidence.guard import GuardReport, add_reports


@dataclass(frozen=True, kw_only=True)
class BulkTask:
    """A bulk translation: its input files, the settings, and the output folder.

    Args:
        settings: model and options.
        inputs: paths or URLs of the input files, or patterns; see `find_input_files`.
        output: folder of the translations, or its URL. Each has the name, the format and the compression of its input.
        column: column or key of what is translated, for JSON lines, TSV and Parquet.
        translation_column: column or key of the translation.
        block_lines: lines, rows or records of a block.
    """

    settings: BlockTranslatorSettings
    inputs: tuple[str, ...]
    output: Path | str
    column: str | None = None
    translation_column: str = "translation"
    block_lines: int = BLOCK_LINES


@dataclass(frozen=True)
class BulkProgress:
    """The progress of a bulk translation.

    Args:
        num_lines: lines translated since the command was started.
        share: share of all input that is translated, from 0 to 1, by bytes.
        seconds: since the command was started.
        seconds_remaining: at the speed since then; None if it is unknown.
        guard_report: what the guard has found since then; None without it.
        messages: what is unusual about lines of the block that was written last.
    """

    num_lines: int
    share: float
    seconds: float
    seconds_remaining: float | None
    guard_report: GuardReport | None = None
    messages: tuple[str, ...] = ()


PoolMaker = Callable[[BlockTranslatorSettings, str], WorkerPool]


def translate_files(
    task: BulkTask, make_pool: PoolMaker, report: Callable[[str], None] = lambda _: None
) -> Generator[BulkProgress, None, None]:
    """Translate files, and yield the progress after each block, and at the end; translated blocks are skipped.

    Args:
        task: what is translated.
        make_pool: makes the workers from the settings and the digest of the model; called if there is anything to do.
        report: receives messages about workers.

    Raises:
        UserError, TransduceError: see `find_input_files`, `choose_file_format`, `open_output_folder` and
            `translate_blocks`.
    """
    if task.block_lines < 1:
        raise ConfigError(f"--block-lines {task.block_lines}: must be 1 or more")
    _check_columns(task)
    task.settings.options.check()
    files = find_input_files(task.inputs, task.output)
    formats = [
        choose_file_format(file.name, task.column, task.translation_column, json_input=task.settings.json_input)
        for file in files
    ]
    _check_output_format(task, files, formats)
    digest = task.settings.find_model_digest()
    plan = make_plan(
        task.settings,
        digest,
        files,
        column=task.column,
        translation_column=task.translation_column,
        block_lines=task.block_lines,
    )
    with open_output(task.output, files, plan) as folder:
        run = _Run(files, formats, folder, task.block_lines)
        blocks = run.read_missing_blocks()
        first = next(blocks, None)
        if first is not None:
            with closing(make_pool(task.settings, digest)) as pool:
                for block, translated in translate_blocks(pool, _chain(first, blocks), report):
                    run.write(block, translated)
                    yield run.make_progress(f"{files[block.file].path}: {message}" for message in translated.messages)
        yield run.make_progress()


@contextmanager
def open_output(
    output: Path | str, files: Sequence[InputFile], plan: Mapping[str, Any]
) -> "Iterator[OutputFolder | OutputUrl]":
    """The output folder of a translation, on a disk or at a URL; see `open_output_folder` and `OutputUrl.begin`."""
    if is_url(output):
        url = OutputUrl(str(output), files)
        url.begin(plan)
        yield url
        return
    with open_output_folder(Path(output), files, plan) as folder:
        yield folder


def _check_columns(task: BulkTask) -> None:
    for option, name in (("--column", task.column), ("--translation-column", task.translation_column)):
        if name is not None and LONE_SURROGATE.search(name):
            raise ConfigError(f"{option} {name}: is not UTF-8, as names of columns and keys must be: give another name")


def _chain(first: Block, rest: Iterator[Block]) -> Iterator[Block]:
    yield first
    yield from rest


def _check_output_format(task: BulkTask, files: list[InputFile], formats: list[FileFormat]) -> None:
    """Check that a file with columns gets one translation for each of its texts."""
    for file, one in zip(files, formats, strict=True):
        if isinstance(one, TextFormat):
            continue
        if task.settings.json or task.settings.options.num_best > 1:
            raise ConfigError(
                f"{file.name}: has one column for the translation: leave out --json and --num-best, or give text"
            )


@dataclass
class _Run:
    """The state of a translation: which blocks of each file are done."""

    files: list[InputFile]
    formats: list[FileFormat]
    folder: OutputFolder | OutputUrl
    block_lines: int
    num_lines: int = 0
    guard_report: GuardReport | None = None
    started: float = field(default_factory=time.monotonic)
    num_missing: dict[int, int] = field(default_factory=dict)
    """For each file that is being translated, how many of the blocks read so far are not done."""
    num_blocks: dict[int, int] = field(default_factory=dict)
    """For each file that has been read to its end, how many blocks it has."""
    shares: dict[int, float] = field(default_factory=dict)
    """For each file the share that is done."""
    share_at_start: float | None = None

    def read_missing_blocks(self) -> Iterator[Block]:
        """The blocks whose translations are not there, file after file; files that are complete are put in place."""
        is_finished = [self.folder.is_finished(number) for number in range(len(self.files))]
        self.shares = dict.fromkeys((number for number, done in enumerate(is_finished) if done), 1.0)
        for number, (file, one, done) in enumerate(zip(self.files, self.formats, is_finished, strict=True)):
            if done:
                continue
            count = 0
            self.num_missing[number] = 0
            for block in one.read_blocks(file, self.block_lines):
                count += 1
                if self.folder.has_block(number, block.number):
                    self.shares[number] = block.share
                    continue
                if self.share_at_start is None:
                    self.share_at_start, self.started = self.find_share(), time.monotonic()
                self.num_missing[number] += 1
                yield replace(block, file=number, path=file.path)
            file.check_unchanged()
            self.num_blocks[number] = count
            self._finish_if_complete(number)

    def write(self, block: Block, translated: TranslatedBlock) -> None:
        """Write the translation of a block, and the file if it is complete."""
        content = self.formats[block.file].write_block(block, translated.lines, self.files[block.file])
        self.folder.write_block(block.file, block.number, content)
        self.num_lines += len(block.lines)
        self.shares[block.file] = max(block.share, self.shares.get(block.file, 0.0))
        self.guard_report = add_reports(self.guard_report, translated.guard_report)
        self.num_missing[block.file] -= 1
        self._finish_if_complete(block.file)

    def _finish_if_complete(self, number: int) -> None:
        if number in self.num_blocks and not self.num_missing[number]:
            self.folder.finish(number, self.num_blocks[number], self.formats[number].join_blocks)
            self.shares[number] = 1.0

    def find_share(self) -> float:
        """The share of all input that is done, by bytes; an empty file counts as one byte."""
        sizes = [max(1, file.size) for file in self.files]
        return sum(sizes[number] * share for number, share in self.shares.items()) / sum(sizes)

    def make_progress(self, messages: Iterable[str] = ()) -> BulkProgress:
        """The progress so far, with messages about the last block."""
        share, seconds = self.find_share(), time.monotonic() - self.started
        gained = share - (self.share_at_start or 0.0)
        remaining = seconds * (1 - share) / gained if gained > 0 else None
        return BulkProgress(self.num_lines, share, seconds, remaining, self.guard_report, tuple(messages))
