"""Tables of the horizon benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from benchmarks.horizon.bed import FOR_KIND, SETTINGS
from benchmarks.horizon.scores import (
    DEFAULT_ORDER,
    ORDERS,
    SCORES,
    VIEWS,
    Draw,
    Summary,
    by_draw,
    gain,
    is_positive,
    restarts,
    taken,
)
from benchmarks.tables import mean_and_error, table

SHARES = ("steps 0.1", "steps 0.3", "steps 0.5")
#: Standard errors by which a run must be better.
EVIDENCE = (-0.5, 0.0, 0.5, 1.0, 2.0)
DEFAULT_EVIDENCE = 0.5
#: As many runs as `meta` trains, and as many single-task runs as cost what `meta` costs.
RESTARTS = (3, 5)
NEEDED = ("single 0", *SHARES)
Draws = Mapping[int, Draw]


def page(summaries: Sequence[Summary]) -> list[str]:
    """Return the paragraphs and tables of the page."""
    texts = []
    encoders = {summary.encoder for summary in summaries}
    for encoder in sorted(encoders, key=lambda name: (name != "tiny", name)):
        settings = by_draw(summaries, encoder, NEEDED)
        scored = {name: rest for name, draws in settings.items() if (rest := _scored(draws))}
        if scored:
            texts += [f"**Encoder `{encoder}`.**", *_rules(scored, settings)]
            texts += [*_choices(scored, settings), *_views(scored), *_others(scored)]
        texts += _mixes(summaries, encoder)
    return texts


def _scored(draws: Draws) -> Draws:
    return {number: draw for number, draw in draws.items() if number not in FOR_KIND}


def _kind(draws: Draws) -> str:
    found = is_positive(draws, "best", SHARES)
    return "not decided" if found is None else "gain" if found else "no gain"


def _rules(scored: Mapping[str, Draws], settings: Mapping[str, Draws]) -> Iterator[str]:
    """The default rule beside every fixed share and restarts, setting by setting."""
    rows = []
    for name, draws in scored.items():
        every = list(draws.values())
        chosen = [taken(d, DEFAULT_ORDER, "calibrated", "best", DEFAULT_EVIDENCE) for d in every]
        rule = [gain(draw, one, "best") for draw, one in zip(every, chosen, strict=True)]
        shares = [[gain(draw, share, "best") for draw in every] for share in SHARES]
        best = max(fmean(values) for values in shares)
        rows.append(
            [
                name,
                _kind(settings[name]),
                str(len(every)),
                f"{100 * fmean(draw['single 0'].test['best'] for draw in every):.1f}",
                *(mean_and_error(values) for values in shares),
                mean_and_error(rule),
                mean_and_error([gain(draw, _best_on_dev(draw), "best") for draw in every]),
                f"{fmean(rule) / best:.0%}" if best > 0.5 else "",
                f"{sum(one != 'single 0' for one in chosen)}",
                *(_restarts(every, count) for count in RESTARTS),
                mean_and_error([*over.values()]) if len(over := _over_restarts(draws)) > 1 else "",
            ]
        )
    yield table(
        [
            "setting",
            "kind",
            "draws",
            "single task",
            "share 0.1",
            "0.3",
            "0.5",
            "`meta`",
            "best on dev",
            "of the best share",
            "taken",
            *(f"best of {count} restarts" for count in RESTARTS),
            f"`meta` minus best of {RESTARTS[-1]}",
        ],
        rows,
    )
    yield from _control(scored)


def _over_restarts(draws: Draws) -> dict[int, float]:
    """Points on test by which what `meta` takes is above the best of five seeds of the single task
    by dev, which cost as much, by draw.
    """
    seeds = [f"single {number}" for number in range(RESTARTS[-1])]
    found = {}
    for number, draw in draws.items():
        if {*seeds} <= {*draw}:
            chosen = taken(draw, DEFAULT_ORDER, "calibrated", "best", DEFAULT_EVIDENCE)
            best = max(seeds, key=lambda name: draw[name].dev["best"])
            found[number] = gain(draw, chosen, "best") - gain(draw, best, "best")
    return found


def _control(scored: Mapping[str, Draws]) -> Iterator[str]:
    """What is left of the gain of `meta` over restarts that cost as much, by kind of task."""
    for title, tasks in (
        ("masked language modelling", {("random_mlm",), ("l3mask",)}),
        ("a related labelled set", {("supervised",)}),
    ):
        # Settings with the same labelled texts have the same restarts: their mean counts once.
        units: dict[tuple[str | None, int, int], list[float]] = {}
        for one in SETTINGS:
            if one.name in scored and one.aux in tasks:
                for draw, points in _over_restarts(scored[one.name]).items():
                    units.setdefault((one.data, one.train, draw), []).append(points)
        values = [fmean(points) for points in units.values()]
        if len(values) > 1:
            yield (
                f"`meta` minus the best of {RESTARTS[-1]} restarts, all settings with {title}: "
                f"{mean_and_error(values)} points over {len(values)} draws."
            )


def _best_on_dev(draw: Draw) -> str:
    """The search that costs a run for every share: the single task and three shares."""
    return max(NEEDED, key=lambda name: draw[name].dev["best"])


def _restarts(draws: Sequence[Draw], count: int) -> str:
    """Restarts on the draws that have as many seeds of the single task."""
    found = [d for d in draws if sum(name.startswith("single") for name in d) >= count]
    return mean_and_error([restarts(draw, "best", count) for draw in found]) if found else ""


def _choices(scored: Mapping[str, Draws], settings: Mapping[str, Draws]) -> Iterator[str]:
    """Scores, standard errors and orders of shares: mean gain over settings of a kind."""
    kinds = (True, False)
    groups = {
        kind: [d for n, d in scored.items() if (_kind(settings[n]) == "gain") is kind]
        for kind in kinds
    }

    def cells(order: str, score: str, evidence: float) -> list[str]:
        found = []
        for kind in kinds:
            means = [
                fmean(gain(d, taken(d, order, score, "best", evidence), "best") for d in s.values())
                for s in groups[kind]
            ]
            found.append(f"{fmean(means):+.1f}" if means else "")
        return found

    if not any(groups.values()):
        return
    rows = [
        [score, *(" / ".join(cells(DEFAULT_ORDER, score, one)) for one in EVIDENCE)]
        for score in SCORES
    ]
    heads = [f"{one:g} s.e." for one in EVIDENCE]
    yield "Mean gain on settings with a gain / on all others, by score and by what is asked for:"
    yield table(["score", *heads], rows)
    rows = [
        [order, *(" / ".join(cells(order, "calibrated", one)) for one in EVIDENCE)]
        for order in ORDERS
    ]
    yield "The same by the shares that are tried, with the calibrated log loss:"
    yield table(["shares", *heads], rows)


def _views(scored: Mapping[str, Draws]) -> Iterator[str]:
    """Test scores by the parameters that are compared and exported."""
    rows = []
    for name, draws in scored.items():
        cells = []
        for view in VIEWS:
            found = [
                100 * draw[_chosen(draw, view)].test[_or_best(draw, view)]
                - 100 * draw["single 0"].test["best"]
                for draw in draws.values()
                if all(view in draw[one].gains for one in SHARES) or view == "midpoint"
            ]
            cells.append(mean_and_error(found) if found else "")
        rows.append([name, *cells])
    yield (
        "By the parameters that are compared and exported (gain over the single task's best "
        "checkpoint; midpoint: half-way between the run taken and the single task):"
    )
    yield table(["setting", *VIEWS], rows)


def _chosen(draw: Draw, view: str) -> str:
    compared = "best" if view == "midpoint" else view
    return taken(draw, DEFAULT_ORDER, "calibrated", compared, DEFAULT_EVIDENCE)


def _or_best(draw: Draw, view: str) -> str:
    return view if view in draw[_chosen(draw, view)].test else "best"


def _others(scored: Mapping[str, Draws]) -> Iterator[str]:
    """Rules that go on from what `meta` takes, or merge branches, on the draws that have them."""
    merged = ("steps 0.3 merged", "steps 0.5 merged")
    rows = []
    for name, draws in scored.items():
        found = []
        for draw in draws.values():
            one = taken(draw, DEFAULT_ORDER, "calibrated", "best", DEFAULT_EVIDENCE)
            on = one if one == "single 0" else f"{one} learned"
            if {*merged, on} <= set(draw):
                found.append((draw, one, on))
        if not found:
            continue
        every, chosen, after = zip(*found, strict=True)
        cells = [
            [gain(d, one, "best") for d, one in zip(every, runs, strict=True)]
            for runs in (chosen, after)
        ]
        cells += [[gain(draw, one, "last") for draw in every] for one in merged]
        rows.append([name, str(len(every)), *map(mean_and_error, cells)])
    if rows:
        yield "`meta` beside learned weights that start at the share taken, and ForkMerge:"
        heads = ("`meta`", "learned from there", "ForkMerge 0.3", "0.5")
        yield table(["setting", "draws", *heads], rows)


def _mixes(summaries: Sequence[Summary], encoder: str) -> Iterator[str]:
    """Gain of fixed shares by mixing, falling, or more of them, on the draws that have them."""
    mixes = [f"{m} {share:g}" for share in (0.1, 0.3) for m in ("gradients", "scaled", "steps")]
    falling = [f"steps {share:g}{way}" for share in (0.3, 0.5) for way in ("", " falling")]
    fine = [f"steps {share:g}" for share in (0.1, 0.2, 0.3, 0.5, 0.7)]
    for what, variants, needed in (
        ("by mixing", mixes, ("single 0", "gradients 0.3")),
        ("that stay or fall", falling, ("single 0", *falling)),
        ("of a finer grid", fine, ("single 0", *fine)),
    ):
        rows = []
        for setting, draws in by_draw(summaries, encoder, needed).items():
            gains = [[gain(d, one, "best") for d in draws.values() if one in d] for one in variants]
            rows.append(
                [setting, str(len(draws)), *(mean_and_error(g) if g else "" for g in gains)]
            )
        if rows:
            yield f"Fixed shares {what}, encoder `{encoder}`, gain over the single task:"
            yield table(["setting", "draws", *variants], rows)
