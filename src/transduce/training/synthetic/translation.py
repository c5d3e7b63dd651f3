"""Translation of a text by a model to make training pairs, by the workers of bulk translation; resumed after a stop."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transduce.bulk import BlockTranslatorSettings, BulkTask, ProcessPool, translate_files
from transduce.bundle import Bundle
from transduce.data.store import explain_cache_errors
from transduce.errors import CorpusError, OutputError, RunError
from transduce.kernels.device import find_device
from transduce.kernels.hardware import count_threads
from transduce.kernels.memory import get_available_memory
from transduce.storage import replace_file
from transduce.text import read_lines
from transduce.translation import TranslationOptions

TEXT = "text.jsonl"
"""Name of the file that bulk translation reads, and of the one that it writes."""

REPORT_EVERY_SECONDS = 15.0


def describe_other_languages(bundle: Bundle, source: str | None, target: str | None) -> str:
    """What a model does instead of translating from `source` to `target`; see `Languages.describe_mismatch`.

    Of a model of several languages, its bundle names one at most: nothing is known of it.
    """
    if bundle.load_tokenizer().tags:
        return ""
    return bundle.description.languages.describe_mismatch(source, target)


@dataclass(frozen=True)
class SyntheticText:
    """A text in one language, and the model that makes the other side of its pairs.

    Args:
        name: what messages call the text.
        read: reads the text, one sentence after the other; called several times.
        open_models: opens the bundle that translates it, and the others of an ensemble with it; called only if they are
            needed.
        options: the options of the translation.
        is_target: whether the text is the target of the pairs, and its translations are the sources (back-translation,
            Sennrich et al. 2016); otherwise it is their source (forward translation, Zhang & Zong 2016).
        tag: put in front of each line that the model reads, if its tokenizer knows the tag; not part of the pairs.
    """

    name: str
    read: Callable[[], Iterator[str]]
    open_models: Callable[[], Sequence[Bundle]]
    options: TranslationOptions
    is_target: bool
    tag: str | None = None

    def _name_text(self) -> str:
        """The beginning of the name of the file of pairs: a digest of text, options and tag. The model's follows it."""
        text = hashlib.sha256()
        for line in self.read():
            text.update(line.encode().replace(b"\n", b"\xff") + b"\n")  # a byte that no text in UTF-8 has
        deciding = [text.hexdigest(), self.options.model_dump_json(), self.is_target, self.tag]
        return f"synthetic-{hashlib.sha256(json.dumps(deciding).encode()).hexdigest()[:16]}"

    def _find_known(self, cache: Path, text: str, known: Collection[str]) -> Path | None:
        """The file of pairs from this text among the `known` ones; None if it has been deleted, or none is known."""
        of_text = [name for name in known if name.startswith(f"{text}-")]
        if known and not of_text:
            raise RunError(
                f"{self.name}: since the run was trained on its translations, the text, a setting of its translation, "
                "or the version of Transduce has changed: restore it, choose another output, or start over with "
                "--restart"
            )
        return next((cache / name for name in of_text if (cache / name).exists()), None)

    def translate(
        self,
        cache: Path,
        device: str,
        num_workers: int | None,
        report: Callable[[str], None],
        known: Collection[str] = (),
    ) -> Path:
        """Translate the text, unless that was done before, and return the path of the file of pairs.

        The file has a JSON object per line with "source" and "target"; blank lines, and lines whose translation is
        blank, have none. A stopped translation goes on where it was, with the same result.

        Args:
            cache: folder of the file.
            device: cpu, cuda, mps or auto.
            num_workers: number of processes; None: see `choose_num_workers`. It does not change the result.
            report: receives messages about progress.
            known: names of the files that the run has already been trained on. One of pairs made from this text is used
                again, whatever model made it: that model may have been moved, or trained further, since then.

        Raises:
            CorpusError: the text cannot be read, is not UTF-8, or no line has a translation.
            RunError: the run has been trained on translations of another text, or of this one as it was before.
            BusyError: another process is translating the same text into this folder.
            ConfigError, WriteError: `cache` cannot be written.
        """
        text = self._name_text()
        if (path := self._find_known(cache, text, known)) is not None:
            report(f"the translations of {self.name} are in {path}")
            return path
        models = self.open_models()
        names = ", ".join(str(one.folder) for one in models)
        path = cache / f"{text}-{_compute_digest_of_models(models)[:16]}.jsonl"
        work = path.with_name(f"{path.stem}-unfinished")
        if path.exists():
            shutil.rmtree(work, ignore_errors=True)  # of a process that was killed at the end
            report(f"the translations of {self.name} by {names} are in {path}")
            return path
        given, made = ("target", "source") if self.is_target else ("source", "target")
        output = work / "translated"
        # To a model that does not know the tag, it would be text.
        is_tagged = self.tag is not None and models[0].load_tokenizer().split_tag(f"{self.tag} ")[0]
        prefix = f"{self.tag} " if is_tagged else ""
        first, *ensemble = (model.folder.absolute() for model in models)
        settings = BlockTranslatorSettings(
            model=first, options=self.options, device=str(find_device(device)), ensemble=tuple(ensemble)
        )
        task = BulkTask(
            settings=settings, inputs=(str(work / TEXT),), output=output, column=given, translation_column=made
        )
        with explain_cache_errors(cache):
            work.mkdir(parents=True, exist_ok=True)
            if not (work / TEXT).exists():
                texts = (prefix + text if text.strip() else text for text in self.read())
                _write_json_lines(work / TEXT, ({"line": n, given: text} for n, text in enumerate(texts, start=1)))
            workers = choose_num_workers(device) if num_workers is None else num_workers
            report(f"translating {self.name} by {names}")
            try:
                self._run(task, workers, report)
            except OutputError as error:  # begun by another version, on another device, or elsewhere
                report(f"translating {self.name} from its beginning: {error}")
                shutil.rmtree(output, ignore_errors=True)  # it may not be there: then the error comes again
                self._run(task, workers, report)
            pairs = ({**pair, given: pair[given].removeprefix(prefix)} for pair in _read_pairs(output / TEXT))
            num_pairs = _write_json_lines(path, pairs)
            num_lines = sum(1 for _ in read_lines(output / TEXT))
            shutil.rmtree(work)
        if not num_pairs:
            path.unlink()
            raise CorpusError(
                f"{self.name}: {names} translates no line of it: give a text of sentences, or a model that "
                "has been trained for longer"
            )
        if num_blank := num_lines - num_pairs:
            report(
                f"{self.name}: of {num_lines:,} lines, {num_blank:,} are blank or have a blank translation: left out"
            )
        return path

    def _run(self, task: BulkTask, num_workers: int, report: Callable[[str], None]) -> None:
        """Carry out the bulk translation, and report its progress from time to time."""
        reported = time.monotonic()
        with closing(translate_files(task, partial(ProcessPool, num_workers=num_workers), report)) as states:
            for progress in states:
                if progress.seconds_remaining is None or time.monotonic() - reported < REPORT_EVERY_SECONDS:
                    continue
                left = progress.seconds_remaining / 60
                report(f"translating {self.name}: {progress.share:.1%} done, {left:.0f} minutes left")
                reported = time.monotonic()


def _compute_digest_of_models(models: Sequence[Bundle]) -> str:
    """SHA-256 of what decides the translations: weights, tokenizers, and the first model's settings of the search."""
    files = [{name: record.sha256 for name, record in model.description.files.items()} for model in models]
    deciding = json.dumps([files, models[0].description.search.model_dump()], sort_keys=True)
    return hashlib.sha256(deciding.encode()).hexdigest()


def choose_num_workers(device: str) -> int:
    """One worker for each core that has a gigabyte of free memory; one where a GPU computes."""
    if find_device(device).type != "cpu":
        return 1
    memory = get_available_memory()
    return count_threads() if memory is None else max(1, min(count_threads(), memory // 2**30))


def _read_pairs(path: Path) -> Iterator[dict[str, Any]]:
    """The pairs in the output of a bulk translation without those that have a blank side."""
    for line in read_lines(path):
        pair = json.loads(line)
        if pair["source"].strip() and pair["target"].strip():
            yield {key: pair[key] for key in ("line", "source", "target")}


def _write_json_lines(path: Path, records: Iterator[dict[str, Any]]) -> int:
    """Write a JSON object per line to a file, which appears when it is complete, and return the number of objects."""
    count = 0
    with replace_file(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
        for count, record in enumerate(records, start=1):  # noqa: B007 - the last number counts
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return count
