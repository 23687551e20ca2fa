"""Training that begins with what a finished run has learned, by the setting ``init_from``.

The encoder and the classification head come from ``model/`` of that run, the
masked-language-model head and the heads of objectives from ``heads/``. Weights of objectives,
optimizer and schedule start from their initial state.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from auxlearn.config import RunConfig, path_identity
from auxlearn.encoders.content import encoder_content
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.shared import LANGUAGE_MODEL_HEAD, SharedEncoder
from auxlearn.errors import EncoderError, RunError
from auxlearn.files import content_digest
from auxlearn.local_files import expand
from auxlearn.manifest import verify_export
from auxlearn.reporting.reporter import Reporter
from auxlearn.results.folder import RunFolder, model_of
from auxlearn.results.record import RunResults


def source_of(config: RunConfig) -> RunFolder | None:
    """Return the folder of the run that training begins from, if any."""
    return None if config.init_from is None else RunFolder(expand(config.init_from, RunError))


def check_source(config: RunConfig, output: Path) -> None:
    """Check that the run to begin from is another one, finished and undamaged.

    Args:
        config: The resolved configuration.
        output: Folder of the run to be trained.

    Raises:
        RunError: It is the run itself, is no run folder, is not finished, kept no model, or its
            results are damaged; or it, or a run that it began from itself, was trained on examples
            that this one is evaluated on.
        EncoderError: Its model or its heads are damaged.
    """
    source = source_of(config)
    if source is None:
        return
    if source.path.resolve() == output.resolve():
        raise RunError(f"init_from: {source.path} is the run itself: choose another --output")
    model_of(source.path)
    RunResults.load(source.path)
    _check_folds(config)
    verify_export(source.model_path)
    verify_export(source.heads_path)


def _check_folds(config: RunConfig) -> None:
    """Check that no run of the chain has trained on examples that this one is evaluated on.

    Raises:
        RunError: One has, or cannot be read although this run is of a fold.
    """
    seen: set[Path] = set()
    run, data = source_of(config), _data_of(config)
    while run is not None and run.path.resolve() not in seen:
        seen.add(run.path.resolve())
        if len(seen) > 1 and config.fold is None and not run.path.is_dir():
            return  # without folds of its own, a run of the chain may have been deleted
        earlier = run.read_config()
        if _data_of(earlier) == data and earlier.fold != config.fold:
            tested = (
                f"of the fold {config.fold} that is tested"
                if config.fold
                else (f"that may be dev or test here, as it was of the fold {earlier.fold}")
            )
            same = f"with --fold {config.fold}" if config.fold else "without --fold"
            raise RunError(
                f"init_from: the run in {run.path} was trained on examples {tested}: begin from a "
                f"run {same}, or of other data"
            )
        run = source_of(earlier)


def _data_of(config: RunConfig) -> str:
    """Return what the data are known by, whichever way their path is written."""
    return path_identity(str(expand(config.dataset).resolve()))


def load_initial_encoder(config: RunConfig, label_names: Sequence[str]) -> SharedEncoder:
    """Load the encoder that training begins with.

    Args:
        config: The resolved configuration.
        label_names: The classes of the run.

    Raises:
        EncoderError: It cannot be loaded, or is damaged.
    """
    encoder = load_encoder(
        config.initial_encoder, label_names, config.seed, config.attention_dropout
    )
    source = source_of(config)
    if source is not None:
        head = _tensors(source, LANGUAGE_MODEL_HEAD)
        if head is not None:
            encoder.load_language_model_head(head)
    return encoder


def initial_content(config: RunConfig) -> dict[str, str]:
    """Return digests of the encoder that training begins with, and of the heads beside it.

    Raises:
        EncoderError: The encoder does not exist or cannot be read.
    """
    content = encoder_content(config.initial_encoder)
    source = source_of(config)
    if source is not None:
        for path in sorted(source.heads_path.rglob("*.safetensors")):
            name = path.relative_to(source.path).as_posix()
            content[name] = content_digest(path)
    return content


def describe_classifier(config: RunConfig, encoder: SharedEncoder) -> str:
    """Return in one sentence what became of the checkpoint's classifier; "" if it has none."""
    if encoder.kept_classifier is None:
        return ""
    name = config.init_from or config.encoder
    if encoder.kept_classifier:
        return f"the classification head of {name} is kept: it has the same labels"
    return (
        f"the output layer of the classification head is newly initialised: the labels of {name} "
        "are others"
    )


def load_heads(
    config: RunConfig, encoder: SharedEncoder, reporter: Reporter
) -> dict[str, Any] | None:
    """Load the heads of objectives that the run to begin from has under the same name.

    Args:
        config: The resolved configuration.
        encoder: The encoder, with the heads that the objectives of this run have added.
        reporter: Told of heads that do not fit.

    Returns:
        What ``init_from`` of the results holds; ``None`` if training begins from no run.

    Raises:
        EncoderError: The heads are damaged.
    """
    source = source_of(config)
    if source is None:
        return None
    parts = ["encoder"]
    if encoder.kept_classifier:
        parts.append("classification head")
    if (source.heads_path / f"{LANGUAGE_MODEL_HEAD}.safetensors").is_file():
        parts.append("masked-language-model head")
    for key, head in encoder.heads.items():
        found = _tensors(source, key)
        if found is None:
            continue
        own = head.state_dict()
        if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in found.items()}:
            reporter.message(
                f"head {key} of {source.path} has other shapes: it is newly initialised"
            )
            continue
        head.load_state_dict(found)
        parts.append(f"head {key}")
    reporter.message(f"training continues from {source.path}: {', '.join(parts)}")
    return {
        "run": str(config.init_from),
        "digest": RunResults.load(source.path).digest,
        "model": content_digest(source.model_path / "model.safetensors")[:16],
        "parts": parts,
    }


def _tensors(source: RunFolder, key: str) -> dict[str, Tensor] | None:
    """Return the tensors of a head of a run; ``None`` if it has no such head.

    Raises:
        EncoderError: They are damaged.
    """
    path = source.heads_path / f"{key}.safetensors"
    try:
        return load_file(path) if path.is_file() else None
    except (OSError, SafetensorError) as error:
        raise EncoderError(f"{path} is damaged ({error}): train {source.path} again") from None
