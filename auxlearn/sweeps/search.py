"""Search of hyper-parameters by Optuna."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from auxlearn.errors import SweepError
from auxlearn.rng import derive_seed
from auxlearn.sweeps.plan import Cell, Range, Search, SweepFile, Trial, cells_of, plan_trials

if TYPE_CHECKING:
    import optuna

#: Gives the dev figure of a point's trials, mean over seeds; ``None`` if one of them failed.
Score = Callable[[list[Trial]], float | None]


def rounds(sweep: SweepFile, score: Score) -> Iterator[list[Trial]]:
    """Give the trials of a sweep in rounds; each is asked for after the one before has run.

    A grid is one round. A search has one study for each cell, and a round holds the next points
    of every study. Suggestions follow from the seed and from the figures of earlier rounds alone,
    so a sweep that is started again asks for the same points, whose trials are finished already.

    Args:
        sweep: The sweep.
        score: Asked for the figures of a round before the next one.
    """
    cells = cells_of(sweep)
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
        fresh = [t for _, _, trials in asked for t in trials if t.digest not in known]
        fresh = list({trial.digest: trial for trial in fresh}.values())
        known |= {trial.digest for trial in fresh}
        yield fresh
        for study, point, trials in asked:
            value = score(trials)
            _tell(study, point, value)


def number_of_trials(sweep: SweepFile) -> int:
    """Return how many trials there will be; a search may suggest a point twice and need fewer."""
    points = sweep.search.trials if sweep.search else 1
    return len(cells_of(sweep)) * points * len(sweep.seeds)


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
        # Optuna wants scalars: the index stands for the value.
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
