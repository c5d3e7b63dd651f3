"""An overview of a preset, a recipe, a run or a bundle: parameters, shapes, sizes, settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.bundle.bundle import Bundle, apply_start_from, find_bundle
from transduce.bundle.manifest import BundleDescription, format_fact
from transduce.bundle.weights import collect_model_tensors, make_empty_model
from transduce.config import PRESETS, RunConfig, TransformerConfig, load_resolved_config, load_run_config, to_toml
from transduce.errors import ConfigError, UserError


@dataclass(frozen=True)
class ModelOverview:
    """The description of a model, trained or not.

    Args:
        subject: the argument of the command.
        kind: "preset", "recipe", "run" or "bundle".
        parameters: number of trainable parameters; a shared matrix counts once.
        shapes: of every tensor, by name.
        model: the settings of the network.
        settings: of the whole run, for a preset, a recipe or a run.
        bundle: for a trained model, the contents of bundle.json.
    """

    subject: str
    kind: str
    parameters: int
    shapes: dict[str, list[int]]
    model: TransformerConfig
    settings: RunConfig | None = None
    bundle: BundleDescription | None = None

    def as_json(self) -> dict[str, Any]:
        """The overview as a JSON object."""
        found = {
            "subject": self.subject,
            "kind": self.kind,
            "parameters": self.parameters,
            "float32_bytes": 4 * self.parameters,
            "model": self.model.model_dump(),
            "shapes": self.shapes,
        }
        if self.settings is not None:
            found["settings"] = self.settings.model_dump()
        if self.bundle is not None:
            found["bundle"] = self.bundle.model_dump(exclude={"model"})
        return found

    def as_text(self) -> str:
        """The overview as text: one fact per line, then the tensors, then the settings of the run."""
        facts: dict[str, object] = {
            self.kind: self.subject,
            "parameters": f"{self.parameters:,} ({4 * self.parameters / 1e6:,.1f} MB in float32)",
            **self.model.select_own_settings(),
        }
        if self.bundle is None and self.settings is not None and self.settings.text.vocabulary == "fitted":
            facts["vocabulary"] = f"fitted to the text; here as with {self.model.vocabulary:,} (--vocabulary)"
        if self.bundle is not None:
            facts["matrices stored in"] = self.bundle.precision
            facts |= {score.metric: f"{score.value:.2f} on {score.data}" for score in self.bundle.scores}
            facts |= {name: format_fact(value) for name, value in self.bundle.training.items()}
        width = max(map(len, facts))
        lines = [f"{name:{width}}  {value}" for name, value in facts.items()]
        tensors = [f"{' x '.join(map(str, shape)):>14}  {name}" for name, shape in self.shapes.items()]
        settings = [] if self.settings is None else ["", to_toml(self.settings).rstrip("\n")]
        return "\n".join([*lines, "", *tensors, *settings])


def make_model_overview(subject: str, vocabulary: int | None = None) -> ModelOverview:
    """Describe a preset by name, or a recipe, run or bundle by path.

    `vocabulary` is a number of token ids, instead of the preset's or recipe's own.

    Raises:
        UserError: `subject` is none of these.
        ConfigError: a setting of the recipe is wrong, or a trained model is given with `vocabulary`.
        BundleError: the bundle, or the one that the recipe starts from, is damaged.
    """
    path = Path(subject)
    sized = [] if vocabulary is None else [f"text.vocabulary={vocabulary}"]
    if subject in PRESETS:
        config, _ = load_run_config(None, settings=[f"preset={subject}", *sized])
        return _build_overview(subject, "preset", config.model, config)
    if path.is_file():
        config, _ = apply_start_from(load_run_config(path, settings=sized)[0])
        return _build_overview(subject, "recipe", config.model, config)
    if not path.is_dir():
        raise UserError(
            f"{subject}: is neither a preset ({', '.join(PRESETS)}) nor the path of a recipe, run or bundle"
        )
    if vocabulary is not None:
        raise ConfigError(
            f"--vocabulary {vocabulary}: the vocabulary of a trained model ({subject}) cannot be "
            "changed; leave the option out"
        )
    bundle = Bundle.open(find_bundle(path))
    if bundle.folder == path:
        return _build_overview(subject, "bundle", bundle.model_config, None, bundle.description)
    recipe = path / "config.toml"
    settings = load_resolved_config(recipe) if recipe.is_file() else None
    return _build_overview(subject, "run", bundle.model_config, settings, bundle.description)


def _build_overview(
    subject: str,
    kind: str,
    config: TransformerConfig,
    settings: RunConfig | None,
    bundle: BundleDescription | None = None,
) -> ModelOverview:
    model = make_empty_model(config)
    shapes = {name: list(tensor.shape) for name, tensor in collect_model_tensors(model).items()}
    return ModelOverview(subject, kind, model.num_parameters, shapes, config, settings, bundle)
