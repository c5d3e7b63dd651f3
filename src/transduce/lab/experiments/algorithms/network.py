"""The Neural GPU and the Extended Neural GPU: one convolutional unit is applied to a grid of numbers, once per symbol.

Kaiser & Sutskever 2016 ("Neural GPUs Learn Algorithms") and Kaiser & Bengio 2016 ("Can Active Memory Replace
Attention?"). A state has a vector of m numbers (`maps`) at each place of a grid. One side of the grid is the sequence
(`length`), the other is w columns (`width`): [batch, maps, length, width].

Departures from the papers:

- Each step applies one CGRU, not two in a row.
- Embedded symbols pass tanh, on the output tape too, so that they are as large as what a CGRU computes.
- Gates start without bias; in the authors' code they start at 1.
- Dropout is on the candidates, not on the whole state, and each of n steps drops an n-th part of the given share. It is
  off unless asked for.
- Parameters are not relaxed: the paper draws several sets of them together in the course of training.
- On the tape, an output symbol is written to the first column alone.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

KERNEL = 3
"""Side of every convolution: a place sees its neighbours in both directions."""

State = Float[Tensor, "batch maps length width"]


def cut_sigmoid(inputs: Tensor) -> Tensor:
    """max(0, min(1, 1.2 σ(x) - 0.1)): a sigmoid that reaches 0 and 1, so that a gate can be wholly open or closed.

    Kaiser & Sutskever 2016, section 3 ("gate cutoff").
    """
    return (1.2 * inputs.sigmoid() - 0.1).clamp(0, 1)


class ConvolutionalGRU(nn.Module):
    """A gated recurrent unit whose matrices are convolutions (Kaiser & Sutskever 2016, eq. 2).

    CGRU(s) = u ⊙ s + (1 - u) ⊙ tanh(U * (r ⊙ s) + B), u = σ'(U' * s + B'), r = σ'(U'' * s + B''), with * a convolution,
    which sees zeros beyond the borders, and σ' `cut_sigmoid`.

    Args:
        num_maps: m, numbers at each place of the state.
        has_tape: whether W * p, W' * p and W'' * p are added before the three non-linearities; p is an output tape of
            the state's shape (Kaiser & Bengio 2016, section 3). The sum of two convolutions is one of both inputs.
    """

    def __init__(self, num_maps: int, *, has_tape: bool = False) -> None:
        super().__init__()
        num_inputs = 2 * num_maps if has_tape else num_maps
        self.gates = nn.Conv2d(num_inputs, 2 * num_maps, KERNEL, padding=KERNEL // 2)
        self.candidate = nn.Conv2d(num_inputs, num_maps, KERNEL, padding=KERNEL // 2)
        with torch.no_grad():
            for kernel in (*torch.split(self.gates.weight, num_maps), self.candidate.weight):
                nn.init.xavier_uniform_(kernel)
            for name, parameter in self.named_parameters():
                if name.endswith("bias"):
                    nn.init.zeros_(parameter)

    def forward(self, state: State, tape: State | None = None, dropout: float = 0.0) -> State:
        """The next state; `tape` is given if and only if the unit has a tape.

        Of the candidate's numbers, tanh(...), a share of `dropout` is 0 in training, and the others are divided by
        1 - `dropout` (Semeniuta et al. 2016: the state itself is never erased).
        """
        added = [] if tape is None else [tape]
        update, reset = cut_sigmoid(self.gates(torch.cat([state, *added], dim=1))).chunk(2, dim=1)
        candidate = torch.tanh(self.candidate(torch.cat([reset * state, *added], dim=1)))
        return torch.lerp(F.dropout(candidate, dropout, self.training), state, update)


class NeuralGPU(nn.Module):
    """Reads a sequence of n symbols, applies a CGRU n times, and reads n symbols from where the input was.

    The first column of the first state holds the embedded symbols, the other columns are 0 (Kaiser & Sutskever 2016,
    section 2). With each application, a place depends on two places more on either side: one by the convolution of the
    candidate, one by that of the reset gate within it.

    Args:
        num_symbols: number of ids.
        num_maps: m, numbers at each place.
        width: w, columns.
        dropout: share of candidates, of which each of the n steps drops an n-th part.
    """

    def __init__(self, num_symbols: int, num_maps: int, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width, self.dropout = width, dropout
        self.embedding = nn.Embedding(num_symbols, num_maps)
        self.unit = ConvolutionalGRU(num_maps)
        self.output = nn.Linear(num_maps, num_symbols)

    def forward(self, source_ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length symbols"]:
        """Logits of a symbol for each place of the source."""
        state = embed_column(self.embedding, source_ids, self.width)
        for _ in range(source_ids.size(1)):
            state = self.unit(state, dropout=self.dropout / source_ids.size(1))
        logits: Tensor = self.output(state[..., 0].transpose(1, 2))
        return logits


def embed_column(embedding: nn.Embedding, ids: Int[Tensor, "batch length"], width: int) -> State:
    """A state with the embedded symbols in its first column, brought between -1 and 1 by tanh, and zeros elsewhere."""
    embedded = embedding(ids).tanh().transpose(1, 2)
    return F.pad(embedded.unsqueeze(-1), (0, width - 1))


class ExtendedNeuralGPU(nn.Module):
    """A Neural GPU as encoder, and a decoder that writes one symbol in each step on a tape that it sees.

    The encoder's last state is the decoder's first. In step k the decoder applies a CGRU to its state and to the tape,
    computes the logits of symbol k from place k of the first column, and writes the embedded symbol to place k of the
    tape's first column, which is 0 at first (Kaiser & Bengio 2016, section 3). So each symbol depends on all before it.

    The arguments are those of `NeuralGPU`; a target may be as long as its source at most.
    """

    def __init__(self, num_symbols: int, num_maps: int, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width, self.dropout = width, dropout
        self.source_embedding = nn.Embedding(num_symbols, num_maps)
        self.target_embedding = nn.Embedding(num_symbols, num_maps)
        self.encoder = ConvolutionalGRU(num_maps)
        self.decoder = ConvolutionalGRU(num_maps, has_tape=True)
        self.output = nn.Linear(num_maps, num_symbols)

    def encode(self, source_ids: Int[Tensor, "batch length"]) -> State:
        """The state after one step for each symbol of the source."""
        state = embed_column(self.source_embedding, source_ids, self.width)
        for _ in range(source_ids.size(1)):
            state = self.encoder(state, dropout=self.dropout / source_ids.size(1))
        return state

    def forward(
        self, source_ids: Int[Tensor, "batch length"], target_ids: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target symbols"]:
        """Logits of every symbol of the target, given the source and the symbols before it."""
        state = self.encode(source_ids)
        written = embed_column(self.target_embedding, target_ids, self.width)
        written = F.pad(written, (0, 0, 0, source_ids.size(1) - target_ids.size(1)))
        logits = []
        for step in range(target_ids.size(1)):
            # Of the tape, only what was written in earlier steps.
            is_written = torch.arange(source_ids.size(1), device=state.device) < step
            state = self.decoder(state, written * is_written[:, None], self.dropout / source_ids.size(1))
            logits.append(self._read(state, step))
        return torch.stack(logits, dim=1)

    def generate(self, source_ids: Int[Tensor, "batch length"], num_steps: int) -> Int[Tensor, "batch target"]:
        """The first `num_steps` symbols of the target, in each step the most probable one."""
        state = self.encode(source_ids)
        tape = torch.zeros_like(state)
        ids = []
        for step in range(num_steps):
            state = self.decoder(state, tape)
            ids.append(self._read(state, step).argmax(dim=-1))
            tape[:, :, step, 0] = self.target_embedding(ids[-1]).tanh()
        return torch.stack(ids, dim=1)

    def _read(self, state: State, step: int) -> Float[Tensor, "batch symbols"]:
        logits: Tensor = self.output(state[:, :, step, 0])
        return logits
