"""Hyper-parameter search by Optuna, https://optuna.org."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from auxlearn.errors import SweepError
from auxlearn.rng import derive_seed
from auxlearn.sweeps.plan import Cell, Trial, expand_cells, plan_trials
from auxlearn.sweeps.sweep_file import Range, Search, SweepFile

if TYPE_CHECKING:
    import optuna

#: Returns the dev metric of the trials of a point, mean over seeds; ``None`` if one failed.
Score = Callable[[list[Trial]], float | None]


def rounds(sweep: SweepFile, score: Score) -> Iterator[list[Trial]]:
    """Yield the trials of a sweep in rounds; each round is taken after the previous one has run.

    A grid is one round. A search has one study for each cell of the grid, and each round has the
    next points of every study. The points depend on the seed and the metrics of earlier rounds
    alone, so a sweep that is started again gets the same points, whose trials have finished.

    Args:
        sweep: The sweep.
        score: Returns the metric of the trials of a point, after they have run.
    """
    cells = expand_cells(sweep)
    search = sweep.search
    if search is None:
        yield plan_trials(sweep, cells)
        return
    studies = [_study(search, cell) for cell in cells]
    known: set[str] = set()
    left = search.trials
    while left > 0:
        asked = []
        for cell, study in zip(cells, studies, strict=True):
            for _ in range(min(search.batch, left)):
                point = study.ask()
                values = {key: _suggest(point, key, of) for key, of in search.space.items()}
                trials = plan_trials(sweep, [cell.extended(values)])
                asked.append((study, point, trials))
        left -= search.batch
        new = [t for _, _, trials in asked for t in trials if t.digest not in known]
        new = list({trial.digest: trial for trial in new}.values())
        known |= {trial.digest for trial in new}
        yield new
        for study, point, trials in asked:
            value = score(trials)
            _tell(study, point, value)


def number_of_trials(sweep: SweepFile) -> int:
    """Return the number of trials; a search that suggests a point twice has fewer."""
    points = sweep.search.trials if sweep.search else 1
    return len(expand_cells(sweep)) * points * len(sweep.seeds)


def _study(search: Search, cell: Cell) -> optuna.Study:
    try:
        import optuna
    except ImportError:
        raise SweepError(
            "a search needs Optuna: install it with `pip install 'auxlearn[search]'`"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seed = derive_seed(search.seed, "search", *cell.labels.values()) % 2**32
    sampler: Any
    if search.sampler == "random":
        sampler = optuna.samplers.RandomSampler(seed=seed)
    else:
        sampler = optuna.samplers.TPESampler(seed=seed)
    return optuna.create_study(direction="maximize", sampler=sampler)


def _suggest(point: optuna.Trial, key: str, values: Range | list[Any]) -> Any:
    if isinstance(values, list):
        # Optuna accepts scalars only: the index represents the value.
        return values[point.suggest_categorical(key, list(range(len(values))))]
    if isinstance(values.low, int) and isinstance(values.high, int):
        return point.suggest_int(key, values.low, values.high, log=values.log)
    return point.suggest_float(key, values.low, values.high, log=values.log)


def _tell(study: optuna.Study, point: optuna.Trial, value: float | None) -> None:
    import optuna

    if value is None:
        study.tell(point, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(point, value)
