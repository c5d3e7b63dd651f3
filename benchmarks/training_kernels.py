"""What each compiled operation of training gains beside its plain reference in PyTorch, and what an update does.

    OMP_NUM_THREADS=2 python benchmarks/training_kernels.py train.en train.de --model low-resource

Operations are timed forward and backward, on one thread, as the processes that compute micro-batches have. An update is
that of `transduce train`, its micro-batches computed by as many processes as there are threads. Both kinds work in
alternating blocks in one run; a gain is the median over the blocks of PyTorch's time over that of the kernels. The
first block is not counted. Prints a table and, last, one line of JSON.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import torch
from run_config import make_run_config
from torch import Tensor

from transduce.data import plan_batches, prepare, read_batches
from transduce.kernels.device import resolve_precision
from transduce.kernels.layers import attend_to_few_keys, dropout, layer_normalization, softmax_with_statistics
from transduce.kernels.linear import differentiate_bias
from transduce.kernels.memory import keep_few_kernels, keep_freed_memory
from transduce.kernels.native.library import OFF, VARIABLE, find_library
from transduce.model import Transformer, causal_attention_mask
from transduce.training import Updater

Work = Callable[[], object]
KINDS = {"PyTorch": OFF, "compiled": os.environ.get(VARIABLE, "")}


def main() -> None:
    """Parse, measure, report."""
    arguments = parsed()
    keep_freed_memory()
    keep_few_kernels()
    library = find_library()
    if library is None:
        raise SystemExit("the compiled kernels were not built")
    threads = torch.get_num_threads()
    gains, seconds = {}, {}
    work = {name: dict.fromkeys(KINDS, one) for name, one in operations(arguments).items()}
    torch.set_num_threads(1)
    for name, both in work.items():
        gains[name], seconds[name] = race(both, arguments.blocks, arguments.repeats)
    torch.set_num_threads(threads)
    gains["update"], seconds["update"] = race(updates(arguments, threads), arguments.blocks, arguments.updates)
    print(
        f"{arguments.model}, {arguments.precision}, batches of {arguments.batch_tokens:,} tokens, {threads} threads, "
        f"{arguments.blocks} blocks, {library.level}, torch {torch.__version__}\n"
    )
    print("| | PyTorch, ms | compiled, ms | gain |\n|---|---|---|---|")
    for name, gain in gains.items():
        figures = " | ".join(f"{1000 * seconds[name][kind]:.3f}" for kind in KINDS)
        print(f"| {name} | {figures} | {gain:.2f} |")
    print(json.dumps({"gains": gains, "seconds": seconds}))


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--model", default="low-resource", help="a preset")
    parser.add_argument("--precision", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--batch-tokens", type=int, default=1024, help="padding included")
    parser.add_argument("--length", type=int, default=16, help="of the sentences of a single operation")
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=50, help="of an operation in a block")
    parser.add_argument("--updates", type=int, default=20, help="in a block")
    return parser.parse_args()


def operations(arguments: argparse.Namespace) -> dict[str, Work]:
    """Each operation, forward and backward, on half a batch."""
    model = make_run_config(arguments).model
    dtype = resolve_precision(arguments.precision, torch.device("cpu"), model.d_model).compute_dtype
    length, sentences = arguments.length, arguments.batch_tokens // 2 // arguments.length
    torch.manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape).to(dtype).requires_grad_()

    rows, outer = draw(sentences, length, model.d_model), draw(sentences, length, model.d_model).detach()
    gain, bias = (torch.randn(model.d_model, requires_grad=True) for _ in range(2))
    widths = (model.d_k, model.d_k, model.d_v)
    heads = [draw(sentences, length, model.num_heads, width) for width in widths]
    of_heads = draw(sentences, length, model.num_heads, model.d_v).detach().transpose(1, 2)
    mask = causal_attention_mask(length, torch.device("cpu"))
    # Written over by their softmax, and that by its own: numbers do not change the time.
    logits = draw(sentences * length, arguments.vocabulary).detach()
    hidden, hidden_outer = (draw(sentences * length, model.d_ff).detach() for _ in range(2))
    hidden.relu_()
    targets = torch.randint(arguments.vocabulary, (len(logits),))

    def attend() -> object:
        attended = attend_to_few_keys(*(part.transpose(1, 2) for part in heads), mask, model.d_k**-0.5)
        return torch.autograd.grad(attended, heads, of_heads)

    return {
        "dropout": lambda: torch.autograd.grad(dropout(rows, 0.1), rows, outer),
        "bias and relu, backward": lambda: differentiate_bias(hidden_outer, hidden),
        "normalisation": lambda: torch.autograd.grad(
            layer_normalization(rows, gain, bias, 1e-5), (rows, gain, bias), outer
        ),
        "attention": attend,
        "softmax of the loss": lambda: softmax_with_statistics(logits, targets),
    }


def updates(arguments: argparse.Namespace, threads: int) -> dict[str, Work]:
    """The next update of two equal models, one with the kernels and one without."""
    config = make_run_config(arguments)
    with tempfile.TemporaryDirectory() as cache:
        prepared = prepare(config.data, config.text, Path(cache), report=lambda _: None)
        config = config.with_vocabulary(prepared.tokenizer.vocabulary)
        plan = plan_batches(prepared.train.lengths, arguments.batch_tokens, 1, 0)[: 2 * arguments.updates]
        batches = list(read_batches(prepared.train, plan, 0, prepared.tokenizer.pad_id))

    def work(kind: str) -> Work:
        torch.manual_seed(1)
        updater = Updater(Transformer(config.model), config.training, torch.device("cpu"))
        updater.parallel_micro_batches = threads
        os.environ[VARIABLE] = KINDS[kind]  # for the processes, too, which begin with the first update
        numbered = enumerate(cycle(batches), start=1)

        def update() -> float:
            number, batch = next(numbered)
            return updater.update(number, [batch]).loss

        update()
        return update

    return {kind: work(kind) for kind in KINDS}


def race(both: dict[str, Work], num_blocks: int, repeats: int) -> tuple[float, dict[str, float]]:
    """The median gain over the blocks, and the median seconds of one repetition of each kind."""
    seconds: dict[str, list[float]] = {kind: [] for kind in both}
    for block in range(1 + num_blocks):
        for kind in list(both)[:: 1 if block % 2 else -1]:
            os.environ[VARIABLE] = KINDS[kind]
            started = time.perf_counter()
            for _ in range(repeats):
                both[kind]()
            seconds[kind].append((time.perf_counter() - started) / repeats)
    theirs, ours = (of_kind[1:] for of_kind in seconds.values())
    gain = statistics.median(one / other for one, other in zip(theirs, ours, strict=True))
    return gain, {kind: statistics.median(of_kind[1:]) for kind, of_kind in seconds.items()}


if __name__ == "__main__":
    main()
