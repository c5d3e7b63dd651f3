"""The translation of a text by a model, for training: pairs in a file, continued after a stop."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from transduce.bundle import Bundle, replace_file
from transduce.data.store import writable_cache
from transduce.errors import CorpusError
from transduce.text import read_lines
from transduce.translation import LineTranslator, TranslationOptions, Translator

BLOCK_LINES = 2048
"""Number of lines that are translated at a time; after a stop, at most these are translated again."""

REPORT_EVERY_SECONDS = 15.0


@dataclass(frozen=True)
class SyntheticText:
    """A text in one language, and the model that makes the other side of its pairs.

    Args:
        name: what messages call the text.
        read: reads the text, one sentence after the other; called several times.
        model: the bundle that translates it.
        options: how.
        is_target: whether the text is the target of the pairs, and its translations are the sources (back-translation,
            Sennrich et al. 2016); otherwise it is their source (forward translation, Zhang & Zong 2016).
    """

    name: str
    read: Callable[[], Iterator[str]]
    model: Bundle
    options: TranslationOptions
    is_target: bool

    def find_file(self, cache: Path) -> Path:
        """The path of the file of pairs in `cache`, named by content of the text, model and options."""
        text = hashlib.sha256()
        for line in self.read():
            text.update(line.encode() + b"\n")
        deciding = [text.hexdigest(), self.model.digest, self.options.model_dump_json(), self.is_target]
        return cache / f"synthetic-{hashlib.sha256(json.dumps(deciding).encode()).hexdigest()[:16]}.jsonl"

    def translate(self, cache: Path, device: str, report: Callable[[str], None]) -> Path:
        """Translate the text, unless that was done before, and return the path of the file of pairs.

        The file has a JSON object per line with "source" and "target"; blank lines, and lines whose translation is
        blank, have none. A stopped translation goes on where it was, with the same result.

        Args:
            cache: folder of the file.
            device: cpu, cuda, mps or auto.
            report: receives messages about progress.

        Raises:
            CorpusError: the text cannot be read, is not UTF-8, or no line has a translation.
            ConfigError, WriteError: `cache` cannot be written.
        """
        path = self.find_file(cache)
        if path.exists():
            report(f"the translations of {self.name} by {self.model.folder} are in {path}")
            return path
        partial = path.with_suffix(".partial")
        with writable_cache(cache):
            cache.mkdir(parents=True, exist_ok=True)
            num_lines = sum(1 for _ in self.read())
            done = _cut_to_whole_lines(partial)
            translator = LineTranslator(Translator.load(self.model.folder, device=device), self.options)
            with partial.open("a", encoding="utf-8", newline="\n") as file:
                for lines in self._report_progress(num_lines, done, report):
                    translations = [line.translation.text for line in translator.translate([text for _, text in lines])]
                    for (number, text), translation in zip(lines, translations, strict=True):
                        file.write(self._format_pair(number, text, translation))
                    file.flush()
            num_pairs = _copy_pairs(partial, path)
            partial.unlink()
        if not num_pairs:
            path.unlink()
            raise CorpusError(
                f"{self.name}: {self.model.folder} translates no line of it: give a text of sentences, or a model that "
                "has been trained for longer"
            )
        return path

    def _format_pair(self, number: int, text: str, translation: str) -> str:
        source, target = (translation, text) if self.is_target else (text, translation)
        return json.dumps({"line": number, "source": source, "target": target}, ensure_ascii=False) + "\n"

    def _report_progress(
        self, num_lines: int, done: int, report: Callable[[str], None]
    ) -> Iterator[list[tuple[int, str]]]:
        """The lines that are not translated yet, with their numbers from 1, in blocks."""
        started = reported = time.monotonic()
        first = done
        rest = islice(enumerate(self.read(), start=1), done, None)
        while block := list(islice(rest, BLOCK_LINES)):
            yield block
            done += len(block)
            now = time.monotonic()
            if now - reported >= REPORT_EVERY_SECONDS or done == num_lines:
                left = (now - started) / (done - first) * (num_lines - done)
                report(f"translating {self.name}: {done:,} of {num_lines:,} lines, {left / 60:.0f} minutes left")
                reported = now


def _cut_to_whole_lines(path: Path) -> int:
    """The number of whole lines of a file that a killed process was writing; the rest is cut off."""
    if not path.exists():
        return 0
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    with path.open("rb+") as file:
        file.truncate(len(whole))
    return whole.count(b"\n")


def _copy_pairs(partial: Path, path: Path) -> int:
    """Copy the pairs without a blank side, and return their number."""
    num_pairs = 0
    with replace_file(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
        for line in read_lines(partial):
            pair = json.loads(line)
            if pair["source"].strip() and pair["target"].strip():
                file.write(line + "\n")
                num_pairs += 1
    return num_pairs
