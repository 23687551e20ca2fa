"""What an objective is prepared with: texts, encoder, heads, further data, cache, randomness."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from auxlearn.core import rng
from auxlearn.core.arguments import named_as_in_a_file
from auxlearn.core.cache import TensorCache
from auxlearn.core.errors import ConfigError, DataError
from auxlearn.core.files import user_path
from auxlearn.core.progress import ProgressBar, no_progress_bar
from auxlearn.core.settings import USUAL, Columns, Windowing
from auxlearn.data.audit import describe_lengths, doubtful_texts, whole_lengths
from auxlearn.data.batches import Batch
from auxlearn.data.corpora import read_corpus
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.leaks import Evaluated
from auxlearn.data.load import load_dataset
from auxlearn.data.pos_tags import Tagger, token_tags
from auxlearn.data.tokens import HEAD, Tokenization, TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder

_HEAD_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class InputTracker:
    """Notes what objectives read besides the data of the run; this base class notes nothing.

    A run passes its own tracker, which makes what was read part of the run's identity: a change is
    detected when the run is resumed or requested again.
    """

    def file(self, objective: str, path: Path) -> None:
        """Note a file or a folder, before it is read."""

    def dataset(self, objective: str, source: str, columns: Columns, dataset: TextDataset) -> None:
        """Note a data set that was loaded from ``source``."""


@dataclass(frozen=True)
class SideValues:
    """Values for each training example, read by batch; made by :meth:`ObjectiveContext.side`.

    Attributes:
        values: One entry per training example, ``(examples, ...)``.
    """

    values: Tensor

    def of(self, batch: Batch) -> Tensor:
        """Return the values of a batch's examples, ``(batch, ...)``, on the CPU.

        Args:
            batch: A batch of the primary task, or one of a task whose texts are the training texts.
        """
        # Perturbed copies of the training texts follow the originals in the same order.
        return self.values[batch.indices % len(self.values)]


@dataclass(eq=False)
class ObjectiveContext:
    """Everything that an objective can use in ``prepare``, once before training.

    Attributes:
        name: Name of the objective in the run: ``primary``, or that of the auxiliary task with a
            number if the task is used more than once.
        encoder: The pretrained encoder, on its device and in evaluation mode. An objective leaves
            it as it was; it adds layers of its own by :meth:`add_head`.
        split: The training examples as they were read: ``split.texts[i]``, ``split.text_pairs``,
            ``split.labels`` and ``split.label_names``.
        texts: The same examples, tokenised; ``Batch.indices`` refers to them unless a task sets
            other texts. With ``perturbed_text: add`` perturbed copies follow the originals.
        max_length: Maximum number of tokens per example.
        cache: Cache on disk for tensors that are expensive to compute, of all runs:
            ``cache.get(content_key(...), compute)``; see :class:`~auxlearn.core.cache.TensorCache`.
        seed: The run's seed.
        progress: ``progress(title, total)`` shows a progress bar; see
            :data:`~auxlearn.core.progress.ProgressBar`.
        tracker: Notes what is read.
        text_column: Column of the text in corpora; by default ``text``.
        windowing: How longer texts are read; see :mod:`auxlearn.data.tokens`.
        evaluated: The examples that the run is evaluated on, which none may be trained on.
        say: Receives what a user should know, a sentence at a time.
    """

    name: str
    encoder: SharedEncoder
    split: Split
    texts: TokenizedTexts
    max_length: int
    cache: TensorCache
    seed: int
    progress: ProgressBar = no_progress_bar
    tracker: InputTracker = field(default_factory=InputTracker)
    text_column: str | None = None
    windowing: Windowing = HEAD
    evaluated: Evaluated | None = None
    say: Callable[[str], None] = lambda line: None

    @property
    def device(self) -> torch.device:
        """The device of the encoder; batches are on the CPU."""
        return self.encoder.device

    def add_head(self, name: str, factory: Callable[[], nn.Module]) -> str:
        """Add layers of the objective's own to the encoder, to be trained with it.

        The head is initialised from the run's seed and the names of objective and head, moved to
        the encoder's device, optimised at the head's learning rate, part of checkpoints and of
        unrolled steps, and saved under ``heads/`` of the run folder. It is not part of the exported
        classifier. Two uses of one task have two heads.

        Args:
            name: Name of the head: lower-case letters, digits and underscores.
            factory: Returns the newly initialised module. It must use torch's default generators.

        Returns:
            The key of the head for :meth:`~auxlearn.encoders.shared.SharedEncoder.apply_head`, to
            be called on the encoder that ``loss`` is given. Do not keep the module itself: an
            unrolled step computes with a copy of it.

        Raises:
            ConfigError: The name is malformed or taken.

        Examples:
            ::

                def prepare(self, context):
                    super().prepare(context)
                    size = context.encoder.hidden_size
                    self.head = context.add_head("order", lambda: nn.Linear(size, 2))

                def loss(self, encoder, batch, generator):
                    logits = encoder.apply_head(self.head, encoder.features(batch))
                    ...
        """
        if not _HEAD_NAME.fullmatch(name):
            raise ConfigError(
                f"head name '{name}' of '{self.name}' is not valid: use lower-case letters, "
                "digits and '_'"
            )
        key = f"{self.name}/{name}"
        if key in self.encoder.heads:
            raise ConfigError(f"'{self.name}' adds two heads named '{name}': choose another name")
        with rng.seeded(self.seed, self.name, "head", name):
            head = factory()
        if not isinstance(head, nn.Module):
            raise ConfigError(
                f"the factory of head '{name}' of '{self.name}' returned "
                f"{type(head).__name__}: return a torch.nn.Module"
            )
        self.encoder.heads[key] = head.to(self.encoder.device).train(self.encoder.training)
        return key

    def tokenize(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        labels: Sequence[int] | None = None,
    ) -> TokenizedTexts:
        """Tokenise further texts like the training texts; the result is cached on disk.

        Args:
            texts: The texts.
            pairs: Second texts of pairs, as many as ``texts``.
            labels: Class indices, as many as ``texts``; they become ``Batch.labels``.

        Raises:
            DataError: The lengths differ, there is no text, or one in place of a list.

        Examples:
            ``self.texts = context.tokenize(["A first text.", "A second one."], labels=[0, 1])``
        """
        if isinstance(texts, str) or isinstance(pairs, str):
            raise DataError("tokenize: give a list of texts, not one text alone")
        split = Split(
            name=self.name,
            texts=tuple(texts),
            labels=None if labels is None else tuple(labels),
            label_names=(),
            text_pairs=None if pairs is None else tuple(pairs),
        )
        return self.tokenize_split(split)

    def tokenize_split(self, split: Split) -> TokenizedTexts:
        """Tokenise what :meth:`read_corpus` returns, or a split of a data set; cached on disk."""
        texts = self._tokenization.tokenize_split(split, self.cache, self.progress)
        whole = whole_lengths(self._tokenization, split, texts, self.cache)
        if whole.max() > self.max_length:
            self.say(describe_lengths(whole, self._tokenization, split.name))
        return texts

    @property
    def _tokenization(self) -> Tokenization:
        return Tokenization(self.encoder.tokenizer, self.max_length, self.windowing)

    def texts_of(self, corpus: str | None) -> TokenizedTexts:
        """Return the tokenised texts of a corpus file, or the training texts without one.

        Raises:
            DataError: As for :meth:`read_corpus`.
        """
        if corpus is None:
            return self.texts
        split = self.read_corpus(corpus)
        for note in split.notes:
            self.say(note)
        return self.tokenize_split(replace(split, name=corpus))

    def token_tags(self, tagger: Tagger, corpus: str | None = None) -> list[str | None]:
        """Return a tag for each token of the training texts, or of a corpus file: its word's tag.

        Args:
            tagger: Returns the tag of each word of a text, such as its part of speech; see
                :mod:`auxlearn.data.pos_tags`.
            corpus: The corpus file, as for :meth:`texts_of`.

        Raises:
            ConfigError: The training texts are not those of the data set, but perturbed ones.
        """
        return [tag for tags in self._token_tags(tagger, corpus) for tag in tags]

    def tag_scores(
        self, tagger: Tagger, score: Callable[[str], float], corpus: str | None = None
    ) -> Tensor:
        """Return the score of the tag of each token, ``(tokens,)``, float64, mapped from a file.

        Args:
            tagger: As for :meth:`token_tags`, whose errors it has.
            score: Returns the score of a tag; of "" for tokens that belong to no word.
            corpus: As for :meth:`token_tags`.
        """
        return self.cache.joined(
            torch.tensor([score(tag or "") for tag in tags], dtype=torch.float64)
            for tags in self._token_tags(tagger, corpus)
        )

    def _token_tags(self, tagger: Tagger, corpus: str | None) -> Iterator[list[str | None]]:
        split = self.split if corpus is None else self.read_corpus(corpus)
        for tags in token_tags(split, self.texts_of(corpus), self._tokenization, tagger):
            if tags is None:
                raise ConfigError(
                    f"'{self.name}' tags the words of the training texts, which perturbed_text has "
                    "changed: leave perturbed_text out"
                )
            yield tags

    def read_corpus(self, path: str | Path) -> Split:
        """Read a file of unlabelled texts; it becomes part of the run's identity.

        Args:
            path: Plain text with one text per line, or a table with a text column.

        Returns:
            The texts, for :meth:`tokenize_split`.

        Raises:
            DataError: The file is missing, is not UTF-8, or contains no text.
        """
        path = user_path(path, DataError)
        if path.is_file():  # read_corpus reports any other path
            self.track_file(path)
        return read_corpus(path, self.cache, self.text_column or "text", progress=self.progress)

    def load_dataset(self, source: str, columns: Columns = USUAL) -> TextDataset:
        """Load a further labelled data set; its content becomes part of the run's identity.

        Its train split lacks the examples that the run is evaluated on, which is said.

        Args:
            source: Folder, card or hub id; see :func:`~auxlearn.data.load.load_dataset`.
            columns: Names of its columns.

        Raises:
            DataError: It does not exist or cannot be read.

        Examples:
            ``further = context.load_dataset("qqp")``, then
            ``self.texts = context.tokenize_split(further.splits["train"])``
        """
        with named_as_in_a_file():
            dataset = load_dataset(source, columns=columns)
        self.tracker.dataset(self.name, source, columns, dataset)
        train = dataset.splits["train"]
        doubtful = (f"train: {remark}" for remark in doubtful_texts(train))
        for note in (*dataset.notes, *doubtful):
            if not note.startswith("no test split"):  # which is not read
                self.say(f"{self.name}: data set {dataset.name}: {note}")
        return self.without_evaluated(dataset)

    def without_evaluated(self, dataset: TextDataset) -> TextDataset:
        """Return a data set whose train split lacks the examples that the run is evaluated on.

        Raises:
            DataError: None is left.
        """
        train = dataset.splits["train"]
        if self.evaluated is None or train.labels is None:
            return dataset
        title = f"{self.name}: data set {dataset.name}"
        train = self.evaluated.left_out_of(train, title)
        return replace(dataset, splits={**dataset.splits, "train": train})

    def track_file(self, path: str | Path) -> Path:
        """Make the content of a file or folder part of the run's identity, and return its path.

        A change is then detected when the run is resumed or requested again. Call it for every path
        that the objective opens itself, before opening it.

        Raises:
            DataError: It does not exist or cannot be read.
            RunError: Its content differs from what was read before the run was resumed.
        """
        path = Path(path)
        self.tracker.file(self.name, path)
        return path

    def side(self, name: str, values: Any) -> SideValues:
        """Give each training example values that ``loss`` can read by batch.

        Args:
            name: What the values are, for error messages.
            values: One entry per training example, ``(examples, ...)``: a tensor, an array or a
                list.

        Raises:
            ConfigError: The number of entries is not that of the training examples, or a value is
                NaN or infinite.

        Examples:
            ``self.difficulty = context.side("difficulty", scores)``, and in ``loss``
            ``self.difficulty.of(batch)``
        """
        tensor = torch.as_tensor(values)
        if tensor.ndim == 0 or len(tensor) != len(self.split):
            raise ConfigError(
                f"'{name}' of '{self.name}' has shape {tuple(tensor.shape)}: one entry for each of "
                f"the {len(self.split)} training examples is needed"
            )
        if not bool(tensor.isfinite().all()):
            raise ConfigError(f"'{name}' of '{self.name}' has values that are NaN or infinite")
        return SideValues(tensor)

    def generator(self, *purpose: str | int) -> torch.Generator:
        """Return a random generator for a purpose, on the CPU, from the run's seed.

        Examples:
            ``order = torch.randperm(n, generator=context.generator("order"))``
        """
        return rng.generator(self.seed, self.name, *purpose)
