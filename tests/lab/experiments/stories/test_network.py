import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transduce.lab.experiments.stories.network import MemoryNetwork, position_encoding

VOCABULARY, WORDS, SENTENCES, WIDTH = 11, 4, 6, 5


@pytest.fixture
def network() -> MemoryNetwork:
    torch.manual_seed(0)
    made = MemoryNetwork(VOCABULARY, WORDS, SENTENCES, WIDTH, num_hops=3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(10)  # so large that attention is far from even
    return made


@pytest.fixture
def inputs() -> tuple[Tensor, Tensor]:
    """Two stories, the second with two empty sentences, and short sentences in both."""
    torch.manual_seed(1)
    sentences = torch.randint(1, VOCABULARY, (2, SENTENCES, WORDS))
    sentences[:, 1::2, 3] = 0
    sentences[1, 4:] = 0
    return sentences, torch.randint(1, VOCABULARY, (2, WORDS))


def plain_network(network: MemoryNetwork, sentences: Tensor, question: Tensor) -> list[float]:
    """The logits of one question, number by number, from the formulas of the paper."""

    def embed(hop: int, words: list[int]) -> list[float]:
        table = network.words[hop].tolist()
        return [
            sum(
                ((1 - j / WORDS) - k / WIDTH * (1 - 2 * j / WORDS)) * table[word][k - 1]
                for j, word in enumerate(words, start=1)
            )
            for k in range(1, WIDTH + 1)
        ]

    def embed_sentence(hop: int, age: int) -> list[float]:
        of_age = network.ages[hop][age].tolist()
        return [one + other for one, other in zip(embed(hop, sentences[age].tolist()), of_age, strict=True)]

    state = embed(0, question.tolist())
    real = [age for age in range(SENTENCES) if sentences[age].any()]
    for hop in range(3):
        scores = [sum(u * m for u, m in zip(state, embed_sentence(hop, age), strict=True)) for age in real]
        exponentials = [math.exp(score - max(scores)) for score in scores]
        for age, exponential in zip(real, exponentials, strict=True):
            weight = exponential / sum(exponentials)
            state = [u + weight * c for u, c in zip(state, embed_sentence(hop + 1, age), strict=True)]
    return [sum(u * w for u, w in zip(state, row, strict=True)) for row in network.words[3][1:].tolist()]


def test_the_network_is_its_formulas(network: MemoryNetwork, inputs: tuple[Tensor, Tensor]) -> None:
    sentences, questions = inputs
    network.double()
    network.encoding = position_encoding(WORDS, WIDTH).double()
    expected = [plain_network(network, *one) for one in zip(sentences, questions, strict=True)]
    torch.testing.assert_close(network(*inputs)[:, 1:].tolist(), expected, atol=1e-5, rtol=1e-5)


def test_attention_sums_to_one_and_ignores_padding(network: MemoryNetwork, inputs: tuple[Tensor, Tensor]) -> None:
    sentences, questions = inputs
    hops = list(network.iterate_hops(sentences, questions))
    assert len(hops) == 3
    for weights, _ in hops:
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2))
        assert (weights[1, 4:] == 0).all()
        assert (weights[0] > 0).all()
    shorter = network(sentences[1:, :4], questions[1:])
    torch.testing.assert_close(network(*inputs)[1:], shorter)


def test_linear_start_weighs_by_the_scores_themselves(network: MemoryNetwork, inputs: tuple[Tensor, Tensor]) -> None:
    sentences, questions = inputs
    with_softmax = next(network.iterate_hops(sentences, questions))[0]
    network.has_softmax = False
    scores = next(network.iterate_hops(sentences, questions))[0]
    assert (scores[1, 4:] == 0).all()
    torch.testing.assert_close(scores[0].softmax(dim=-1), with_softmax[0])


def test_adjacent_hops_share_their_embeddings(network: MemoryNetwork, inputs: tuple[Tensor, Tensor]) -> None:
    assert network.num_parameters == 4 * (VOCABULARY + SENTENCES) * WIDTH
    # What embeds the values of hop 1 embeds the keys of hop 2: both change with it, and the keys of hop 1 do not.
    before = [weights for weights, _ in network.iterate_hops(*inputs)]
    with torch.no_grad():
        network.ages[1][2] += 1
    after = [weights for weights, _ in network.iterate_hops(*inputs)]
    assert torch.equal(before[0], after[0])
    assert not torch.allclose(before[1], after[1])
    # The first embeds the question: without any story left, it decides alone.
    gradients = torch.autograd.grad(network(*inputs)[:, 1:].sum(), list(network.words))
    assert all((gradient[1:] != 0).any() for gradient in gradients)
    logits = network(*inputs)
    *_, (_, state) = network.iterate_hops(*inputs)
    torch.testing.assert_close(logits[:, 1:], state @ network.words[-1][1:].T)  # and the last computes the answer


def test_initial_values_are_those_of_the_paper() -> None:
    """Section 4.2: normal with mean 0 and deviation 0.1."""
    torch.manual_seed(0)
    made = MemoryNetwork(100, WORDS, 50, 40, num_hops=3)
    for values in [*(matrix[1:] for matrix in made.words), *made.ages]:
        assert values.std().item() == pytest.approx(0.1, rel=0.06)
        assert values.mean().item() == pytest.approx(0, abs=0.01)


def test_the_empty_word_stays_zero(network: MemoryNetwork, inputs: tuple[Tensor, Tensor]) -> None:
    logits = network(*inputs)
    assert (logits[:, 0] == -torch.inf).all()  # nor is it ever the answer
    F.cross_entropy(logits, torch.arange(1, 1 + len(logits))).backward()
    for matrix in network.words:
        assert matrix.grad is not None
        assert (matrix[0] == 0).all()
        assert (matrix.grad[0] == 0).all()


def test_the_order_of_words_and_of_sentences_counts(network: MemoryNetwork, inputs: tuple[Tensor, Tensor]) -> None:
    sentences, questions = inputs
    logits = network(sentences, questions)
    assert not torch.allclose(network(sentences.flip(1), questions)[0], logits[0])
    assert not torch.allclose(network(sentences.flip(2), questions)[0], logits[0])


def test_a_question_is_answered_by_itself(network: MemoryNetwork, inputs: tuple[Tensor, Tensor]) -> None:
    sentences, questions = inputs
    torch.testing.assert_close(network(sentences[:1], questions[:1]), network(sentences, questions)[:1])
