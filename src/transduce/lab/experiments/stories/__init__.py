"""Questions about short stories: an end-to-end memory network beside a Transformer (paper 2)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from transduce.lab.conclusion import Claim, Conclusion
from transduce.lab.experiment import Experiment, Trial
from transduce.lab.experiments.stories.stories import KINDS
from transduce.lab.experiments.stories.training import (
    Measurements,
    MemoryNetworkSettings,
    TransformerSettings,
    draw_stories,
    load_memory_network,
    train_memory_network,
    train_transformer,
    weigh_sentences,
)
from transduce.lab.laboratory import Laboratory
from transduce.lab.measurements import Results
from transduce.lab.statistics import confidence_interval, judge_above, judge_larger
from transduce.pages import Table

MANY_HOPS, ONE_HOP, TRANSFORMER = "memory network, three hops", "memory network, one hop", "Transformer"
NETWORKS = (MANY_HOPS, ONE_HOP, TRANSFORMER)

ALMOST_ALL = 0.95
"""Share of right answers from which Weston et al. 2015 count a kind of question as solved."""

WELL = 0.9
"""Share of right answers above which a network performs well; guessing one of the six places gives 0.17."""

USUAL_SECONDS = 200.0
"""Seconds of a seed for which the numbers of epochs are chosen: ten minutes with three."""

SOLVED = Claim("Sukhbaatar et al. 2015", "A memory network answers questions that need one supporting fact.")
HOPS = Claim(
    "Sukhbaatar et al. 2015", "Several hops over the memory answer questions with two supporting facts better."
)
ATTENTION = Claim(
    "Sukhbaatar et al. 2015",
    "The hops attend to the supporting facts of a question, though nothing in training says which these are.",
)
PERFORM_WELL = Claim(
    "2",
    "End-to-end memory networks, based on recurrent attention, perform well on simple-language question answering.",
)


def plan(laboratory: Laboratory) -> Sequence[Trial]:
    """Plan the trials: both memory networks and the Transformer; with another budget, with more or fewer epochs."""
    memory, transformer = MemoryNetworkSettings(), TransformerSettings()
    training_share = laboratory.decide_training_share(USUAL_SECONDS, least=1 / transformer.epochs)

    def count_epochs(usual: int) -> int:
        return max(1, round(usual * training_share))

    memory = replace(memory, epochs=count_epochs(memory.epochs), halve_every=count_epochs(memory.halve_every))
    settings = {MANY_HOPS: memory, ONE_HOP: replace(memory, num_hops=1)}
    trials = [
        Trial({"network": name}, partial(_measure_memory, laboratory, name, one)) for name, one in settings.items()
    ]
    epochs = count_epochs(transformer.epochs)
    measure = partial(_measure_transformer, laboratory, replace(transformer, epochs=epochs))
    return [*trials, Trial({"network": TRANSFORMER}, measure, cost=1.5)]


def _measure_memory(
    laboratory: Laboratory, name: str, settings: MemoryNetworkSettings, seed: int
) -> Mapping[str, float]:
    folder = laboratory.folder / "runs" / f"{name}, seed {seed}"
    found = _name_figures(train_memory_network(settings, seed, folder, laboratory.report))
    network = load_memory_network(settings, folder)
    for kind in KINDS:
        stories = draw_stories(settings.stories, seed, "test", kind)
        hits, chance = 0.0, 0.0
        for story in stories:
            hops = weigh_sentences(network, story)
            attended = [max(range(len(hop)), key=hop.__getitem__) for hop in hops]
            hits += sum(index in story.supporting_facts for index in attended) / len(hops)
            chance += len(story.supporting_facts) / len(story.sentences)
        found[f"hits, {kind}"] = hits / len(stories)
        found[f"chance, {kind}"] = chance / len(stories)
    shown = draw_stories(settings.stories, seed, "test", 2)[0]
    for number, hop in enumerate(weigh_sentences(network, shown), start=1):
        found |= {f"hop {number}, sentence {position}": weight for position, weight in enumerate(hop, start=1)}
    return found


def _measure_transformer(laboratory: Laboratory, settings: TransformerSettings, seed: int) -> Mapping[str, float]:
    folder = laboratory.folder / "runs" / f"{TRANSFORMER}, seed {seed}"
    return _name_figures(train_transformer(settings, seed, folder, laboratory.report))


def _name_figures(measured: Measurements) -> dict[str, float]:
    shares = {f"accuracy, {kind}": share for kind, share in measured.accuracy.items()}
    return {**shares, "parameters": float(measured.num_parameters), "seconds": measured.seconds}


def conclude(results: Results) -> Conclusion:
    """Verdicts on accuracy and on the sentences attended to, and one story with the weights of each hop."""

    def find(network: str, quantity: str) -> dict[int, float]:
        return results.by_seed(quantity, network=network)

    by_kind = [find(MANY_HOPS, f"accuracy, {kind}") for kind in KINDS]
    seeds = set.intersection(*(set(shares) for shares in by_kind))
    all_kinds = {seed: fmean(shares[seed] for shares in by_kind) for seed in seeds}
    claim_results = [
        judge_above(
            SOLVED,
            find(MANY_HOPS, "accuracy, 1"),
            ALMOST_ALL,
            "share of right answers, one supporting fact, three hops",
        ),
        judge_larger(
            HOPS,
            find(MANY_HOPS, "accuracy, 2"),
            find(ONE_HOP, "accuracy, 2"),
            "share of right answers with three hops minus that with one, two supporting facts",
        ),
        judge_larger(
            ATTENTION,
            find(MANY_HOPS, "hits, 2"),
            find(MANY_HOPS, "chance, 2"),
            "share of hops that attend most to a supporting fact, minus the share of sentences chosen at random, two "
            "supporting facts",
        ),
        judge_above(
            PERFORM_WELL,
            all_kinds,
            WELL,
            "share of right answers of the memory network with three hops, mean of the three kinds of questions",
        ),
    ]
    rows = []
    for network in NETWORKS:
        shares = [confidence_interval(find(network, f"accuracy, {kind}")).format(".1%") for kind in KINDS]
        sizes = [
            f"{results.mean('parameters', network=network):,.0f}",
            f"{results.mean('seconds', network=network):.0f}",
        ]
        rows.append([network, *shares, *sizes])
    heads = ["network", "one supporting fact", "two", "three", "parameters", "seconds"]
    tables = [Table("Share of right answers (95 % confidence interval over the seeds)", heads, rows)]
    return Conclusion(claim_results, tables=[*tables, *_show_hops(results)], remarks=[REMARK])


def _show_hops(results: Results) -> list[Table]:
    """The first test story with two supporting facts, and how much each hop attends to each sentence."""
    seeds = results.select(network=MANY_HOPS).seeds()
    if not seeds:
        return []
    settings = MemoryNetworkSettings()
    story = draw_stories(settings.stories, seeds[0], "test", 2)[0]
    values = results.find({"network": MANY_HOPS}, seeds[0])
    rows = []
    for position, sentence in enumerate(story.sentences, start=1):
        weights = [
            f"{values.values.get(f'hop {hop}, sentence {position}', 0.0):.2f}" if values else ""
            for hop in range(1, settings.num_hops + 1)
        ]
        rows.append([sentence, "yes" if position - 1 in story.supporting_facts else "", *weights])
    caption = (
        f"Weights of the sentences in each hop, for the question “{story.question}”, whose answer is “{story.answer}”"
    )
    hops = [f"hop {hop}" for hop in range(1, settings.num_hops + 1)]
    return [Table(caption, ["sentence", "supporting fact", *hops], rows, num_texts=2)]


REMARK = (
    "Stories, questions and words are generated and new; those of Weston et al. 2015 are larger. One network learns "
    "all kinds of questions together. The Transformer, which has to find out what a sentence is, is far from having "
    "learned all that it could in this time."
)

EXPERIMENT = Experiment(
    title="Questions about stories: a memory network beside a Transformer",
    claims=[SOLVED, HOPS, ATTENTION, PERFORM_WELL],
    method=(
        "Stories are generated in which people walk between places and carry things, with questions that need one, two "
        "or three of their sentences. A memory network reads each sentence as a sum of words and attends to the "
        "sentences in three hops, or in one; a Transformer of about as many parameters reads story and question as one "
        "sequence. Both train on the same stories and answer the same test questions."
    ),
    plan=plan,
    conclude=conclude,
)
