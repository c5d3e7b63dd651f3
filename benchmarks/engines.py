"""Engines that translate with one and the same set of weights, each in a process of its own.

    python benchmarks/engines.py NAME FOLDER --beam 4 ...

reads lines from standard input: "all" translates the whole test text, "one N" sentence number N alone; each is answered
by one line of JSON with the seconds taken, and "all" with the translations, too.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from transduce.bundle import Bundle
from transduce.model import Transformer
from transduce.model.attention import MultiHeadAttention

Ids = list[list[int]]
Search = Callable[[Ids], Ids]


def save_for_ctranslate2(model: Transformer, end_id: int, folder: Path) -> None:
    """The model as a folder that CTranslate2 reads; a token's name is its id. Weights are quantised when it is read."""
    from ctranslate2.specs import TransformerSpec

    config = model.config
    spec = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers), config.num_heads, pre_norm=config.norm_order == "pre"
    )
    positions = model.positions(1024).detach().numpy()
    for stack, embedding in ((spec.encoder, spec.encoder.embeddings[0]), (spec.decoder, spec.decoder.embeddings)):
        embedding.weight = _array(model.source_embedding.weight)
        stack.scale_embeddings = True
        stack.position_encodings.encodings = positions
    if config.norm_order == "pre":
        for stack, ours in ((spec.encoder, model.encoder.final), (spec.decoder, model.decoder.final)):
            stack.layer_norm.gamma, stack.layer_norm.beta = _array(ours.gain), _array(ours.bias)
    spec.decoder.start_from_zero_embedding = True
    for theirs, ours in zip(spec.encoder.layer, model.encoder.layers, strict=True):
        _fill_attention(theirs.self_attention, ours.self_attention, [slice(None)])
        _fill_norm(theirs.self_attention.layer_norm, ours.self_attention_residual)
        _fill_feed_forward(theirs.ffn, ours)
    for theirs, ours in zip(spec.decoder.layer, model.decoder.layers, strict=True):
        width = ours.cross_attention.query_width
        _fill_attention(theirs.self_attention, ours.self_attention, [slice(None)])
        _fill_norm(theirs.self_attention.layer_norm, ours.self_attention_residual)
        _fill_attention(theirs.attention, ours.cross_attention, [slice(None, width), slice(width, None)])
        _fill_norm(theirs.attention.layer_norm, ours.cross_attention_residual)
        _fill_feed_forward(theirs.ffn, ours)
    spec.decoder.projection.weight = _array(model.projection.weight)
    bias = np.zeros(config.vocabulary, dtype=np.float32)
    bias[model.pad_id] = -1e9
    spec.decoder.projection.bias = bias
    tokens = [str(index) for index in range(config.vocabulary)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.unk_token, spec.config.eos_token, spec.config.bos_token = "0", str(end_id), str(model.pad_id)
    spec.config.decoder_start_token = str(model.pad_id)
    spec.config.layer_norm_epsilon = 1e-5
    spec.validate()
    folder.mkdir()
    spec.save(str(folder))


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().numpy()


def _fill_attention(theirs: object, ours: MultiHeadAttention, parts: Sequence[slice]) -> None:
    for linear, rows in zip(theirs.linear, [*parts, None], strict=True):
        source = ours.output if rows is None else ours.projection
        linear.weight, linear.bias = (
            _array(source.weight[rows or slice(None)]),
            _array(source.bias[rows or slice(None)]),
        )


def _fill_norm(theirs: object, residual: nn.Module) -> None:
    theirs.gamma, theirs.beta = _array(residual.normalization.gain), _array(residual.normalization.bias)


def _fill_feed_forward(theirs: object, layer: nn.Module) -> None:
    for linear, source in ((theirs.linear_0, layer.feed_forward.inner), (theirs.linear_1, layer.feed_forward.outer)):
        linear.weight, linear.bias = _array(source.weight), _array(source.bias)
    _fill_norm(theirs.layer_norm, layer.feed_forward_residual)


def transduce_engine(bundle: Bundle, arguments: argparse.Namespace) -> Search:
    """Ours, as `transduce translate` runs it."""
    from transduce.translation import Translator

    engine = Translator.load(bundle.folder, device=arguments.device, precision=arguments.precision).engine
    search = bundle.description.search.model_copy(
        update={
            "beam": arguments.beam,
            "length_penalty": arguments.length_penalty,
            "min_length": arguments.fixed_length or 1,
            "max_extra_length": 1 if arguments.fixed_length else 50,
        }
    )
    return lambda sources: [found[0].ids[:-1] for found in engine.search(sources, search)]


def ctranslate2_engine(bundle: Bundle, arguments: argparse.Namespace) -> Search:
    """CTranslate2 with several workers of one thread for many sentences, and as many threads as pay off for one."""
    import ctranslate2

    end = str(bundle.load_tokenizer().end_id)
    many = {"inter_threads": arguments.threads, "intra_threads": 1}
    translator = ctranslate2.Translator(
        str(arguments.ctranslate2),
        device="cuda" if arguments.device == "cuda" else "cpu",
        compute_type=arguments.precision,
        **(many if arguments.alone_threads is None else {"inter_threads": 1, "intra_threads": arguments.alone_threads}),
    )

    def search(sources: Ids) -> Ids:
        results = translator.translate_batch(
            [[str(token) for token in source] for source in sources],
            beam_size=arguments.beam,
            length_penalty=arguments.length_penalty,
            min_decoding_length=max(1, arguments.fixed_length - 1),
            max_decoding_length=arguments.fixed_length or 256,
            max_batch_size=arguments.batch,
            batch_type="examples",
            end_token=end,
        )
        return [[int(token) for token in result.hypotheses[0]] for result in results]

    return search


def huggingface_engine(bundle: Bundle, arguments: argparse.Namespace) -> Search:
    """Hugging Face's generate, batches of similar length; the model is exported for it, ids as they are."""
    from transduce.interop import export_bundle
    from transduce.interop.huggingface import load_folder

    with tempfile.TemporaryDirectory() as folder:
        export_bundle(bundle, "huggingface", Path(folder) / "model")
        model, _ = load_folder(Path(folder) / "model", "float32")
    model.generation_config.forced_eos_token_id = model.generation_config.max_length = None
    model = model.to(arguments.device)
    tokenizer = bundle.load_tokenizer()
    end_id, pad_id = tokenizer.end_id, tokenizer.pad_id

    @torch.inference_mode()
    def search(sources: Ids) -> Ids:
        found: Ids = [[]] * len(sources)
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        for first in range(0, len(order), 32):
            chosen = order[first : first + 32]
            longest = max(len(sources[index]) for index in chosen)
            ids = [sources[index] + [pad_id] * (longest - len(sources[index])) for index in chosen]
            source_ids = torch.tensor(ids, device=arguments.device)
            output = model.generate(
                input_ids=source_ids,
                attention_mask=(source_ids != pad_id).long(),
                num_beams=arguments.beam,
                length_penalty=arguments.length_penalty,
                min_new_tokens=arguments.fixed_length or 1,
                max_new_tokens=arguments.fixed_length or longest + 50,
                bad_words_ids=[[pad_id]],
                do_sample=False,
                use_cache=True,
            )
            for index, row in zip(chosen, output.tolist(), strict=True):
                found[index] = row[1 : row.index(end_id)] if end_id in row else row[1:]
        return found

    return search


ENGINES = {"transduce": transduce_engine, "ctranslate2": ctranslate2_engine, "huggingface": huggingface_engine}


def main() -> None:
    """Load, then answer requests until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("bundle", type=Path)
    parser.add_argument("source", type=Path, help="the test text, one sentence a line")
    parser.add_argument("--ctranslate2", type=Path, help="folder with the same weights for CTranslate2")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--length-penalty", type=float, default=0.6)
    parser.add_argument(
        "--fixed-length", type=int, default=0, help="tokens of every translation, and one less of every source"
    )
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--alone-threads", type=int)
    parser.add_argument("--batch", type=int, default=64, help="sentences that CTranslate2 decodes at a time")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.alone_threads or arguments.threads)
    bundle = Bundle.open(arguments.bundle)
    tokenizer = bundle.load_tokenizer()
    lines = arguments.source.read_text(encoding="utf-8").splitlines()
    sources = [[*ids, tokenizer.end_id] for ids in tokenizer.encode_all(lines)]
    if arguments.fixed_length:  # the longest that ours may get is one token more than the source
        sources = [(ids[:-1] * arguments.fixed_length)[: arguments.fixed_length - 2] + ids[-1:] for ids in sources]
    search = ENGINES[arguments.engine](bundle, arguments)
    search(sources[:100])
    print(json.dumps({"ready": True}), flush=True)
    for request in sys.stdin:
        what, *number = request.split()
        chosen = sources if what == "all" else [sources[int(number[0])]]
        started = time.perf_counter()
        found = search(chosen)
        seconds = time.perf_counter() - started
        texts = [tokenizer.decode(ids) for ids in found] if what == "all" else []
        print(json.dumps({"seconds": seconds, "translations": texts}), flush=True)


if __name__ == "__main__":
    main()
