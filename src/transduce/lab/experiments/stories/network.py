"""The end-to-end memory network (Sukhbaatar et al. 2015, "End-To-End Memory Networks").

Each sentence of a story is one memory. A question attends to the memories, adds what it finds to itself, and does so
again, K times: K hops. Axes: `batch` questions, each with its own story; `sentence`, the latest first; `word`;
`d_model`, the width of every vector. Word id 0 is the empty word, which fills short sentences; a sentence of empty
words fills short stories.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


def position_encoding(num_words: int, d_model: int) -> Float[Tensor, "{num_words} {d_model}"]:
    """Weights l_j by which the words of a sentence are summed, so that their order counts (section 4.1).

    For word j of J and component k of d, both from 1: (1 - j/J) - (k/d) (1 - 2j/J). J is `num_words` for all sentences.
    """
    word = torch.arange(1, num_words + 1)[:, None] / num_words
    component = torch.arange(1, d_model + 1)[None, :] / d_model
    return (1 - word) - component * (1 - 2 * word)


class MemoryNetwork(nn.Module):
    """Reads a story and a question, attends to the sentences several times, and answers with one word.

    Weights are tied between adjacent hops (section 2.2): the embedding of the values in one hop is that of the keys in
    the next, so that K hops have K + 1 embeddings. The first one embeds the question, too, and the words of the last
    are the matrix that computes the answer's logits. Initial values are normal with deviation 0.1 (section 4.2).

    Args:
        vocabulary: number of word ids.
        num_words: number of words of every sentence and question, empty ones included.
        num_sentences: maximum number of sentences of a story.
        d_model: width of the vectors.
        num_hops: K.
    """

    encoding: Tensor

    def __init__(self, vocabulary: int, num_words: int, num_sentences: int, d_model: int, num_hops: int) -> None:
        super().__init__()
        self.words = nn.ParameterList(torch.empty(vocabulary, d_model).normal_(std=0.1) for _ in range(num_hops + 1))
        self.ages = nn.ParameterList(torch.empty(num_sentences, d_model).normal_(std=0.1) for _ in range(num_hops + 1))
        for matrix in self.words:
            nn.init.zeros_(matrix[0])  # the empty word has the zero vector (4.2), and training does not change it
        self.register_buffer("encoding", position_encoding(num_words, d_model), persistent=False)
        self.has_softmax = True
        """Whether memories are weighted by the softmax of their scores, or by the scores themselves: "linear start"
        (section 4.2) trains without softmax at first, which keeps training out of poor local minima."""

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(
        self, sentences: Int[Tensor, "batch sentence word"], question: Int[Tensor, "batch word"]
    ) -> Float[Tensor, "batch vocabulary"]:
        """Logits of the answer: W u, with u the question's vector after the last hop (eqs. 3, 4).

        The empty word, which is no answer, has the logit -inf.
        """
        *_, (_, state) = self.iterate_hops(sentences, question)
        return F.pad(F.linear(state, self.words[-1][1:]), (1, 0), value=-torch.inf)

    def iterate_hops(
        self, sentences: Int[Tensor, "batch sentence word"], question: Int[Tensor, "batch word"]
    ) -> Iterator[tuple[Float[Tensor, "batch sentence"], Float[Tensor, "batch d_model"]]]:
        """For each hop, the weights of the memories, and the question's vector u after the hop.

        The weights are softmax(u·m), and the sum of the values c by these weights is added to u (eqs. 1, 2, 4): m are
        the sentences in one embedding, c in the next. Empty sentences have weight 0; a story needs a sentence that is
        not empty.
        """
        is_empty = (sentences == 0).all(dim=-1)
        state = self._embed_words(0, question)
        keys = self._embed_sentences(0, sentences)
        for index in range(1, len(self.words)):
            values = self._embed_sentences(index, sentences)
            scores = torch.einsum("bd,bsd->bs", state, keys)
            if self.has_softmax:
                weights = scores.masked_fill(is_empty, -torch.inf).softmax(dim=-1)
            else:
                weights = scores.masked_fill(is_empty, 0)
            state = state + torch.einsum("bs,bsd->bd", weights, values)
            yield weights, state
            keys = values

    def _embed_words(self, index: int, ids: Int[Tensor, "*batch word"]) -> Float[Tensor, "*batch d_model"]:
        """The weighted sum of the words' vectors; padding_idx keeps the gradient of the empty word at zero."""
        return (F.embedding(ids, self.words[index], padding_idx=0) * self.encoding).sum(dim=-2)

    def _embed_sentences(
        self, index: int, sentences: Int[Tensor, "batch sentence word"]
    ) -> Float[Tensor, "batch sentence d_model"]:
        """The sentences' vectors, and added to each one a learned vector for its age (section 4.1)."""
        embedded: Tensor = self._embed_words(index, sentences) + self.ages[index][: sentences.size(1)]
        return embedded
