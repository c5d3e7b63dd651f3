"""One question answered by a memory network, with the weights of the sentences in each hop."""

from dataclasses import dataclass

import torch

from transduce.lab.experiments.stories.network import MemoryNetwork
from transduce.lab.experiments.stories.stories import WORDS, Story, encode_stories


@dataclass(frozen=True)
class AnsweredQuestion:
    """The answer of a network, and what it attended to."""

    story: Story
    answer: str
    """The most probable word."""
    probability: float
    """Its probability, from 0 to 1."""
    hops: tuple[tuple[float, ...], ...]
    """For each hop, the weight of each sentence, in the order of `story.sentences`; the weights of a hop sum to 1."""


@torch.no_grad()
def answer_question(network: MemoryNetwork, story: Story) -> AnsweredQuestion:
    """Answer the question of a story."""
    sentences, questions, _ = map(torch.from_numpy, encode_stories([story]))
    probabilities = network(sentences, questions)[0].softmax(dim=-1)
    best = int(probabilities.argmax())
    # The network has the latest sentence first.
    hops = tuple(tuple(weights[0].flip(0).tolist()) for weights, _ in network.iterate_hops(sentences, questions))
    return AnsweredQuestion(story, WORDS[best], float(probabilities[best]), hops)
