"""What can be known before the first update: from the settings, and from the figures of the text."""

from transduce.training.diagnosis.history import History, peak_rate, relative_step

SAME_LANGUAGE = 0.5
"""`similarity` from which two texts count as one language: news and captions, both in English, had 0.6 to 0.8, and
texts in two of English, German, Hausa and Igbo at most 0.45."""

LARGEST_STEP = 0.1
"""`relative_step` from which the learning rate is too high: three times that of the boldest preset. Ten times the rate
of any preset is above it."""

MOST_DROPOUT = 0.5
"""Dropout above which more is lost of every sub-layer's output than is left."""

USUAL_STEP = 0.02
"""The `relative_step` of the rate that is proposed."""


def unrelated_pairs(run: History) -> str | None:
    """Sources and targets that are no translations of each other: shuffled, sorted, or shifted by a line."""
    blocks, unrelated = run.text.get("num_blocks", 0), run.text.get("unrelated_blocks", 0)
    if not unrelated:
        return None
    where = f", first after pair {run.text['first_unrelated']:,} of those kept" if unrelated < blocks else ""
    return (
        f"in {unrelated} of {blocks} stretches of the training text{where}, words of source and target come together "
        f"no more often than by chance, or less often than those of neighbouring lines: such pairs are no translations "
        f"of each other. The most likely cause is a file that was shuffled or sorted, or has a line more or less than "
        f"the other: compare data.source and data.target line by line"
    )


def swapped_validation(run: History) -> str | None:
    """Validation text whose sources are in the language of the training targets, and the other way round."""
    if not _is_swapped(run):
        return None
    return (
        "the sides of the validation text are the other way round than those of the training text: swap "
        "data.validation_source and data.validation_target, or the columns of data.validation_pairs"
    )


def foreign_validation(run: History) -> str | None:
    """A side of the validation text that is in another language than that side of the training text."""
    if not run.text or _is_swapped(run):
        return None
    foreign = [side for side in ("source", "target") if run.text[f"{side}_similarity"] < SAME_LANGUAGE]
    if not foreign:
        return None
    found = " and ".join(
        f"the {side}s of the validation text ({run.text[f'{side}_similarity']:.2f})" for side in foreign
    )
    return (
        f"{found} hardly resemble those of the training text: text of the same kind has a likeness of about 1, and "
        f"other text in the same language one above {SAME_LANGUAGE}. The most likely cause is another language; scores "
        f"would then not tell which model is best: give other text as "
        f"{' and '.join(f'data.validation_{side}' for side in foreign)}, or leave it out and training text is held out"
    )


def is_foreign(run: History) -> bool:
    """Whether figures of the validation text say nothing about what the model has learned."""
    return swapped_validation(run) is not None or foreign_validation(run) is not None


def _is_swapped(run: History) -> bool:
    if not run.text:
        return False
    straight = max(run.text["source_similarity"], run.text["target_similarity"])
    return bool(straight < SAME_LANGUAGE <= run.text["swapped_similarity"])


def high_rate(run: History) -> str | None:
    """A learning rate with which every update replaces a good part of the weights."""
    step, training = relative_step(run.config), run.config.training
    if step < LARGEST_STEP:
        return None
    d_model = run.config.model.d_model
    if training.learning_rate is None:
        setting, remedy = f"training.warmup = {training.warmup}", "set it to 4000, as in the paper"
    else:
        setting = f"training.learning_rate = {training.learning_rate:g}"
        remedy = f"set it to about {USUAL_STEP * d_model**-0.5:.1g}"
    return (
        f"{setting} is several times too high: the rate rises to {peak_rate(run.config):.2g}, and an update then "
        f"changes a weight of a network with d_model = {d_model} by up to {step:.0%} of its size, where 1 % to 4 % "
        f"train well. The loss will stop falling early, or rise: {remedy}"
    )


def strong_dropout(run: History) -> str | None:
    """Dropout that leaves less than half of what a layer computes."""
    dropout = run.config.model.dropout
    if dropout <= MOST_DROPOUT:
        return None
    return (
        f"model.dropout = {dropout:g} is too strong: {dropout:.0%} of what each layer computes is lost, and the "
        f"network learns little more than how frequent each token is. 0.1 to 0.3 train well: set it to one of these"
    )
