"""Short stories about people who carry things from place to place, and questions whose supporting facts are known.

Three kinds of questions, by the number of sentences that are needed for the answer:

1. "where is anna": where she went last.
2. "where is the lamp": who has it or who put it down, and where that person is or was.
3. "where was the lamp before the attic": who had it, where that person went, and where that person had been before.

The idea of such questions is that of Weston et al. 2015 ("Towards AI-Complete Question Answering"); words, rules and
sentences are different.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transduce.errors import ConfigError

PEOPLE = ("anna", "boris", "clara", "dario")
PLACES = ("attic", "bakery", "cellar", "garden", "harbour", "library")
OBJECTS = ("kettle", "lamp", "map", "violin")
OTHER_WORDS = ("before", "down", "hands", "is", "picks", "puts", "the", "to", "up", "walks", "was", "where")
WORDS = ("", *PEOPLE, *PLACES, *OBJECTS, *OTHER_WORDS)
"""The vocabulary; a word's id is its position. Id 0, the empty word, fills short sentences and short stories."""

WORD_IDS = {word: number for number, word in enumerate(WORDS)}
MAX_WORDS = 7
"""Number of words of the longest sentence or question, such as "where was the lamp before the attic"."""

KINDS = (1, 2, 3)
"""Numbers of supporting facts, by which kinds of questions are named."""

Choose = Callable[[int], int]
"""A function that draws a whole number from 0 to n - 1."""


@dataclass(frozen=True)
class Story:
    """A story, a question about it, and the answer, a place."""

    sentences: tuple[str, ...]
    question: str
    answer: str
    supporting_facts: tuple[int, ...]
    """Positions, ascending from 0, of the sentences that the answer follows from."""


class KnownPlace(NamedTuple):
    """The place of a person or an object, and the positions of the sentences from which it follows."""

    place: str
    facts: tuple[int, ...]


@dataclass
class World:
    """Who is where and has what, after the sentences so far; those in `sentences` are all that a reader knows."""

    hidden_places: dict[str, str]
    """The places where objects lie that nobody has picked up yet; no sentence tells them."""
    sentences: list[str] = field(default_factory=list)
    person_places: dict[str, KnownPlace] = field(default_factory=dict)
    holders: dict[str, tuple[str, int]] = field(default_factory=dict)
    """For each object that somebody holds: who, and the position of the sentence that says so."""
    resting_places: dict[str, KnownPlace] = field(default_factory=dict)
    """The places of the objects that somebody has put down."""
    journeys: dict[str, tuple[KnownPlace, str]] = field(default_factory=dict)
    """For each object that was carried elsewhere: the place where it was before, and where it has been since."""
    latest_thing: str = ""
    """The object of the latest sentence, with which nothing is done in the next; none after a walk."""

    def walk(self, person: str, place: str) -> None:
        """Let a person go to a place, with all that he or she holds."""
        position = len(self.sentences)
        before = self.person_places.get(person)
        for held, (holder, acquired) in self.holders.items():
            if holder == person and before is not None:
                self.journeys[held] = KnownPlace(before.place, (*before.facts, acquired, position)), place
        self.person_places[person] = KnownPlace(place, (position,))
        self.latest_thing = ""
        self.sentences.append(f"{person} walks to the {place}")

    def pick_up(self, person: str, thing: str) -> None:
        """Let a person take an object that lies at the same place."""
        self.hidden_places.pop(thing, None)
        self.resting_places.pop(thing, None)
        self.holders[thing] = person, len(self.sentences)
        self.latest_thing = thing
        self.sentences.append(f"{person} picks up the {thing}")

    def put_down(self, person: str, thing: str) -> None:
        """Let a person leave an object at the present place."""
        del self.holders[thing]
        place, facts = self.person_places[person]
        self.resting_places[thing] = KnownPlace(place, (*facts, len(self.sentences)))
        self.latest_thing = thing
        self.sentences.append(f"{person} puts down the {thing}")

    def hand_over(self, person: str, thing: str, receiver: str) -> None:
        """Let a person give an object to another one at the same place."""
        self.holders[thing] = receiver, len(self.sentences)
        self.latest_thing = thing
        self.sentences.append(f"{person} hands the {thing} to {receiver}")

    def iterate_walks(self) -> Iterator[tuple[str, str]]:
        """Persons and the places where they may go: all but the one where they are."""
        for person in PEOPLE:
            here = self.person_places.get(person)
            yield from ((person, place) for place in PLACES if here is None or place != here.place)

    def iterate_pick_ups(self) -> Iterator[tuple[str, str]]:
        """Persons of known place, and the objects that lie there."""
        lying = self.hidden_places | {thing: place for thing, (place, _) in self.resting_places.items()}
        for person, (here, _) in self.person_places.items():
            yield from ((person, thing) for thing, place in lying.items() if place == here)

    def iterate_put_downs(self) -> Iterator[tuple[str, str]]:
        """Persons, and the objects that they hold."""
        yield from ((person, thing) for thing, (person, _) in self.holders.items())

    def iterate_hand_overs(self) -> Iterator[tuple[str, str, str]]:
        """Persons, the objects that they hold, and others at the same place."""
        for thing, (person, _) in self.holders.items():
            for receiver, (place, _) in self.person_places.items():
                if receiver != person and place == self.person_places[person].place:
                    yield person, thing, receiver

    def go_on(self, choose: Choose) -> None:
        """Let something happen: a walk half of the time, otherwise whatever of the rest is possible."""
        rest: tuple[tuple[Callable[..., None], Iterator[tuple[str, ...]]], ...] = (
            (self.pick_up, self.iterate_pick_ups()),
            (self.put_down, self.iterate_put_downs()),
            (self.hand_over, self.iterate_hand_overs()),
        )
        if choose(2):
            by_kind = [(happen, [one for one in events if one[1] != self.latest_thing]) for happen, events in rest]
            possible = [(happen, events) for happen, events in by_kind if events]
            if possible:
                happen, events = possible[choose(len(possible))]
                happen(*events[choose(len(events))])
                return
        walks = list(self.iterate_walks())
        self.walk(*walks[choose(len(walks))])

    def iterate_questions(self, num_facts: int) -> Iterator[tuple[str, KnownPlace]]:
        """All questions that need `num_facts` facts, each with the place that answers it."""
        if num_facts == 1:
            yield from ((f"where is {person}", known) for person, known in self.person_places.items())
        elif num_facts == 2:
            yield from ((f"where is the {thing}", known) for thing, known in self.resting_places.items())
            for thing, (person, acquired) in self.holders.items():
                place, facts = self.person_places[person]
                yield f"where is the {thing}", KnownPlace(place, (*facts, acquired))
        else:
            for thing, (known, since) in self.journeys.items():
                yield f"where was the {thing} before the {since}", known


def generate_story(seed: int, number: int, num_facts: int, num_sentences: tuple[int, int]) -> Story:
    """Story `number` of a seed, with a question of `num_facts` supporting facts; a pure function of its arguments.

    Args:
        seed: names a set of stories.
        number: position in the set, from 0.
        num_facts: 1, 2 or 3.
        num_sentences: least and greatest number of sentences, each number as probable as the others; at least 5, so
            that questions of every kind can be asked.

    Raises:
        ConfigError: `num_facts` or `num_sentences` has another value.
    """
    least, greatest = num_sentences
    if num_facts not in KINDS:
        raise ConfigError(f"num_facts = {num_facts} must be one of {', '.join(map(str, KINDS))}")
    if not 5 <= least <= greatest:
        raise ConfigError(f"num_sentences = {num_sentences} must be two ascending numbers, the first at least 5")
    generator = np.random.default_rng([seed, number, num_facts])

    def choose(count: int) -> int:
        return int(generator.integers(count))

    length = least + choose(greatest - least + 1)
    while True:  # until there is something to ask: not every story has an object that was carried from place to place
        world = World({thing: PLACES[choose(len(PLACES))] for thing in OBJECTS})
        while len(world.sentences) < length:
            world.go_on(choose)
        questions = list(world.iterate_questions(num_facts))
        if questions:
            question, (answer, facts) = questions[choose(len(questions))]
            return Story(tuple(world.sentences), question, answer, tuple(sorted(facts)))


class EncodedStories(NamedTuple):
    """Stories as ids of words; row i of each array belongs to story i."""

    sentences: Int[np.ndarray, "stories sentences words"]
    """The latest sentence first, zeros after the earliest."""
    questions: Int[np.ndarray, "stories words"]
    answers: Int[np.ndarray, " stories"]


def encode_stories(stories: list[Story]) -> EncodedStories:
    """Ids of the words of stories, questions and answers."""
    most = max(len(story.sentences) for story in stories)
    sentences = np.zeros((len(stories), most, MAX_WORDS), dtype=np.int64)
    questions = np.zeros((len(stories), MAX_WORDS), dtype=np.int64)
    for row, story in enumerate(stories):
        questions[row] = encode_sentence(story.question)
        for age, sentence in enumerate(reversed(story.sentences)):
            sentences[row, age] = encode_sentence(sentence)
    return EncodedStories(sentences, questions, np.array([WORD_IDS[story.answer] for story in stories]))


def encode_sentence(sentence: str) -> Int[np.ndarray, " words"]:
    """Ids of the words of a sentence, filled with 0."""
    ids = [WORD_IDS[word] for word in sentence.split()]
    return np.array(ids + [0] * (MAX_WORDS - len(ids)))
