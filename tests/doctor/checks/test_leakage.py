import random
from collections.abc import Callable

import pytest

from transduce.doctor.checks.duplicates import MIN_COMPARED_WORDS
from transduce.doctor.checks.leakage import find_leakage, measure_leakage
from transduce.doctor.corpus.texts import Text


def replace_word(line: str, at: int) -> str:
    words = line.split()
    words[at] = "gugu"
    return " ".join(words)


def test_every_kind_of_leakage_is_counted(read: Callable[..., Text], invented: Callable) -> None:
    pairs, others = invented(1000), invented(100, seed=2)
    test = [
        *pairs[:10],
        *((source.upper(), other) for (source, _), (_, other) in zip(pairs[10:15], others, strict=False)),
        *((other, target) for (_, target), (other, _) in zip(pairs[15:18], others, strict=False)),
        *((replace_word(source, 3), replace_word(target, 2)) for source, target in pairs[20:40]),
        *((f"{source} gugu", other) for (source, _), (_, other) in zip(pairs[40:50], others[50:], strict=False)),
        *((" ".join(source.split()[1:]), other) for (source, _), (_, other) in zip(pairs[60:65], others, strict=False)),
        *others[50:90],
    ]
    leakage = measure_leakage(read(test, "test"), read(pairs))
    counts = leakage.count()
    assert (counts["pairs"], counts["source"], counts["target"]) == (10, 15, 13)
    near = {row for row, found in enumerate(leakage.near_source) if found >= 0}
    long = {row for row in range(18, 53) if len(test[row][0].split()) >= MIN_COMPARED_WORDS}
    assert {row for row in near if row < 53} == long
    assert leakage.pairs[:10].tolist() == leakage.source[:10].tolist() == [*range(10)]
    assert leakage.near_source[18:38].tolist() == [*range(20, 40)]
    assert leakage.near_target[18:38].tolist() == [*range(20, 40)]


@pytest.mark.parametrize("seed", range(3))
def test_near_leakage_is_exact(read: Callable[..., Text], seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - nothing here is secret
    lines, others = ([" ".join(chance.choices("abc", k=chance.randint(4, 7))) for _ in range(80)] for _ in range(2))
    leakage = measure_leakage(
        read([(line, "x") for line in lines], "test"), read([(line, "y") for line in [*others, "blank"]])
    )

    def are_near(line: str, other: str) -> bool:
        one, two = line.split(), other.split()
        if min(len(one), len(two)) < MIN_COMPARED_WORDS or abs(len(one) - len(two)) > 1:
            return False
        if len(one) == len(two):
            return sum(first != second for first, second in zip(one, two, strict=True)) == 1
        short, long = sorted((one, two), key=len)
        return any(long[:at] + long[at + 1 :] == short for at in range(len(long)))

    expected = [line not in others and any(are_near(line, other) for other in others) for line in lines]
    assert [found >= 0 for found in leakage.near_source] == expected
    assert any(expected)
    assert [found >= 0 for found in leakage.source] == [line in others for line in lines]
    for line, found in zip(lines, leakage.near_source.tolist(), strict=True):
        assert found < 0 or are_near(line, others[found])


def test_leakage_is_a_finding_from_a_hundredth_on(read: Callable[..., Text], invented: Callable) -> None:
    training, other = invented(1000), invented(400, seed=2)
    text = read(training)

    def find(pairs: list[tuple[str, str]]) -> list[tuple[str, str, int]]:
        test = read(pairs, "test")
        found = find_leakage(test, text, measure_leakage(test, text))
        return [(one.name, one.severity, one.num_pairs) for one in found]

    assert find(other) == []
    assert find([*training[:3], *other[3:]]) == [("leakage", "slight", 3)]
    assert find([*training[:6], *other[6:]]) == [("leakage", "minor", 6)]
    assert find([*training[:200], *other[200:]]) == [("leakage", "serious", 200)]
    similar = [(replace_word(source, 1), target) for source, target in other[:200]]
    trained = read([*training, *((source, f"{target} gugu") for source, target in other[:200])])
    test = read([*similar, *other[200:]], "test")
    (finding,) = find_leakage(test, trained, measure_leakage(test, trained))
    assert (finding.name, finding.severity) == ("near_leakage", "serious")
    assert finding.rows.tolist() == [*range(200)]
    first, second = finding.samples[0]
    assert (first.text.name, first.index, second.text.name, second.index) == ("test", 0, "training", 1000)


def test_blank_lines_leak_nothing(read: Callable[..., Text]) -> None:
    leakage = measure_leakage(read([("", "x"), ("a", "")], "test"), read([("", "y"), ("b", "")]))
    assert set(leakage.count().values()) == {0}


def test_pairs_of_blank_lines_are_not_leaked(read: Callable[..., Text], invented: Callable) -> None:
    leakage = measure_leakage(read([*invented(50), ("", " ")]), read([*invented(50, seed=2), ("", " ")], "test"))
    assert leakage.count()["pairs"] == 0
