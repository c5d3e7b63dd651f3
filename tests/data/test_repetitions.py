import random
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data.repetitions import RepetitionFinder

words = st.sampled_from(["a", "b", "ab", "", "é"])


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(words, words), max_size=40))
def test_of_equal_pairs_all_but_the_first_repeat(pairs: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        finder = RepetitionFinder(Path(folder))
        assert list(finder.watch(pairs)) == pairs
        assert finder.repeats().tolist() == [pair in pairs[:index] for index, pair in enumerate(pairs)]


def test_repetitions_are_found_however_far_apart(tmp_path: Path) -> None:
    chance = random.Random(3)  # noqa: S311 nothing here is secret
    numbers = [chance.randrange(20_000) for _ in range(25_000)]
    finder = RepetitionFinder(tmp_path)
    for _ in finder.watch((str(number), "x") for number in numbers):
        pass
    seen: set[int] = set()
    expected = [number in seen or bool(seen.add(number)) for number in numbers]
    assert finder.repeats().tolist() == expected


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    peaks = []
    for num_pairs in (10_000, 30_000):
        (tmp_path / str(num_pairs)).mkdir()
        finder = RepetitionFinder(tmp_path / str(num_pairs))
        tracemalloc.start()
        for _ in finder.watch((str(number), "x") for number in range(num_pairs)):
            pass
        repeats = finder.repeats()
        peaks.append(tracemalloc.get_traced_memory()[1] - repeats.nbytes)
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
