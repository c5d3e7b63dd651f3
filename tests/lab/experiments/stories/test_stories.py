import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import ConfigError
from transduce.lab.experiments.stories.stories import (
    KINDS,
    MAX_WORDS,
    OBJECTS,
    PEOPLE,
    PLACES,
    WORDS,
    Story,
    encode_stories,
    generate_story,
)

MANY = [(kind, number) for kind in KINDS for number in range(60)]


class Simulation:
    """Reads the sentences of a story, one by one, and knows what follows from them."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}  # of persons, and of objects that nobody holds
        self.holders: dict[str, str] = {}
        self.visited: dict[str, list[str]] = {thing: [] for thing in OBJECTS}

    def read(self, sentence: str) -> None:
        if found := re.fullmatch(r"(\w+) walks to the (\w+)", sentence):
            person, place = found.groups()
            assert self.places.get(person) != place
            self.places[person] = place
        elif found := re.fullmatch(r"(\w+) picks up the (\w+)", sentence):
            person, thing = found.groups()
            assert thing not in self.holders
            assert self.places.get(thing, self.places[person]) == self.places[person]
            self.holders[thing] = person
        elif found := re.fullmatch(r"(\w+) puts down the (\w+)", sentence):
            person, thing = found.groups()
            assert self.holders.pop(thing) == person
            self.places[thing] = self.places[person]
        else:
            found = re.fullmatch(r"(\w+) hands the (\w+) to (\w+)", sentence)
            assert found
            person, thing, receiver = found.groups()
            assert self.holders[thing] == person != receiver
            assert self.places[person] == self.places[receiver]
            self.holders[thing] = receiver
        for thing, holder in self.holders.items():
            place = self.places[holder]
            if self.visited[thing][-1:] != [place]:
                self.visited[thing].append(place)

    def answer(self, question: str) -> str:
        if found := re.fullmatch(r"where is (?:the )?(\w+)", question):
            name = found[1]
            return self.places[self.holders.get(name, name)]
        found = re.fullmatch(r"where was the (\w+) before the (\w+)", question)
        assert found
        thing, place = found.groups()
        before, now = self.visited[thing][-2:]
        assert now == place
        return before


def simulate(sentences: list[str]) -> Simulation:
    simulation = Simulation()
    for sentence in sentences:
        simulation.read(sentence)
    return simulation


def story_of(kind: int, number: int) -> Story:
    return generate_story(1, number, kind, (5, 12))


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(0, 2**32 - 1), st.integers(0, 10**6))
def test_answers_are_those_of_a_simulation(kind: int, seed: int, number: int) -> None:
    story = generate_story(seed, number, kind, (5, 12))
    assert 5 <= len(story.sentences) <= 12
    assert simulate(list(story.sentences)).answer(story.question) == story.answer
    assert len(story.supporting_facts) == kind
    assert list(story.supporting_facts) == sorted(set(story.supporting_facts))


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(0, 10**6))
def test_supporting_facts_alone_give_the_answer(kind: int, number: int) -> None:
    story = story_of(kind, number)
    facts = [story.sentences[position] for position in story.supporting_facts]
    words = " ".join(facts).split()
    assert story.answer in words
    # What the question is about is in the facts, too: a chain leads from it to the answer.
    subject = next(word for word in story.question.split() if word in (*PEOPLE, *OBJECTS))
    assert subject in words
    walks = [fact for fact in facts if "walks" in fact]
    assert len(walks) == {1: 1, 2: 1, 3: 2}[kind]
    assert story.answer in walks[0]
    if kind == 3:  # the one who carried it there walked twice, and had it in between or before
        assert len({walk.split()[0] for walk in walks}) == 1
        assert walks[1].split()[-1] == story.question.split()[-1]


def test_all_kinds_of_sentences_and_answers_occur() -> None:
    stories = [story_of(kind, number) for kind, number in MANY]
    verbs = Counter(sentence.split()[1] for story in stories for sentence in story.sentences)
    assert set(verbs) == {"walks", "picks", "puts", "hands"}
    assert min(verbs.values()) > 0.02 * sum(verbs.values())
    answers = Counter(story.answer for story in stories)
    assert set(answers) == set(PLACES)
    assert max(answers.values()) < 2 * min(answers.values())


def test_the_place_named_last_is_no_answer_to_rely_on() -> None:
    def last_place(story: Story) -> str:
        return next(word for word in reversed(" ".join(story.sentences).split()) if word in PLACES)

    share = np.mean([last_place(story) == story.answer for story in (story_of(*one) for one in MANY)])
    assert share < 0.4


def test_nobody_undoes_at_once_what_was_just_done() -> None:
    for kind, number in MANY:
        story = story_of(kind, number)
        for one, other in zip(story.sentences, story.sentences[1:], strict=False):
            assert not set(OBJECTS) & set(one.split()) & set(other.split())


def test_stories_depend_on_seed_and_number_alone() -> None:
    assert story_of(2, 5) == story_of(2, 5)
    assert len({generate_story(seed, number, 2, (5, 12)) for seed in (1, 2) for number in range(20)}) == 40


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_facts = 4 must be one of 1, 2, 3"):
        generate_story(1, 0, 4, (5, 12))
    for lengths in ((4, 12), (8, 7)):
        with pytest.raises(ConfigError, match="ascending"):
            generate_story(1, 0, 1, lengths)


def test_encoding_keeps_every_word_and_puts_the_latest_sentence_first() -> None:
    stories = [story_of(3, number) for number in range(5)]
    encoded = encode_stories(stories)
    assert encoded.sentences.shape == (5, max(len(story.sentences) for story in stories), MAX_WORDS)
    for row, story in enumerate(stories):
        told = [" ".join(WORDS[number] for number in ids if number) for ids in encoded.sentences[row]]
        assert tuple(sentence for sentence in reversed(told) if sentence) == story.sentences
        assert told[0] == story.sentences[-1]
        assert " ".join(WORDS[number] for number in encoded.questions[row] if number) == story.question
        assert WORDS[encoded.answers[row]] == story.answer
