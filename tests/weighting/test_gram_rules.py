"""Rules of the Gram matrix, and TorchJD's: against the library, solvers, and in closed form."""

import math
import sys

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torchjd import aggregation as library
from torchjd.linalg import QuadprogProjector

from auxlearn.core import rng
from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import WEIGHTINGS
from auxlearn.weighting.mixing import GramWeighting
from auxlearn.weighting.nash import nash_weights
from auxlearn.weighting.projection import dual_cone_weights, least_norm_weights
from auxlearn.weighting.torchjd import Aggregation, Scalarization
from tests.weighting.fakes import (
    LOSSES,
    FakeStep,
    make,
    random_gradients,
    run,
    vector,
    weighted_sum,
)

#: The library's own function of a Jacobian for each rule.
AGGREGATORS = {
    "pcgrad": library.PCGrad,
    "gradvac": library.GradVac,
    "cagrad": lambda: library.CAGrad(c=0.5),
    "imtl_g": library.IMTLG,
    "aligned_mtl": library.AlignedMTL,
    "fairgrad": lambda: library.FairGrad(alpha=2.0),
    "pcd": library.PCD,
}
SCALARIZATIONS = ("geometric_mean", "imtl_l")


def registered(base):
    classes = ((name, WEIGHTINGS.get(name)) for name in WEIGHTINGS.names())
    return {name for name, cls in classes if issubclass(cls, base)}


def test_every_rule_of_the_library_is_tested_here():
    assert registered(Aggregation) == set(AGGREGATORS)
    assert registered(Scalarization) == set(SCALARIZATIONS)


def jacobian(gradients):
    rows = [np.concatenate([p or [0.0, 0.0] for p in g[:2]]) for g in gradients]
    return torch.tensor(np.array(rows), dtype=torch.float64)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_the_step_is_the_librarys_aggregation_of_the_jacobian(name):
    """Over the shared parameters, up to the scale that the Gram matrix is divided by."""
    steps = random_gradients(4, seed=1)
    rule = make(name)
    aggregator = AGGREGATORS[name]()
    combined, _ = run(rule, FakeStep(steps))
    for step, (found, gradients) in enumerate(zip(combined, steps, strict=True)):
        matrix = jacobian(gradients)
        scale = 1.0
        if rule.scaled:
            scale = float((matrix**2).sum(1).mean().sqrt())
        with rng.seeded(0, name, step):
            expected = aggregator(matrix / scale) * scale
        np.testing.assert_allclose(
            np.concatenate(found[:2]), expected.numpy(), rtol=1e-6, atol=1e-8 * scale
        )


@pytest.mark.parametrize("name", ["gradvac", "pcgrad"])
def test_orders_follow_from_the_seed_of_the_run(name):
    """Among three objectives in conflict the order in which they are turned shows."""
    rows = [[1.0, 0.0], [-0.9, 0.5], [-0.2, -1.0]]
    step = [[row, None, None, None] for row in rows]
    found = set()
    for seed in range(12):
        fake = FakeStep([step])
        fake.seed = seed
        found.add(tuple(run(make(name), fake)[0][0][0]))
    assert len(found) > 1


def test_fairgrad_shares_out_progress_by_its_condition():
    matrix = jacobian(random_gradients(1, seed=1)[0])
    gram = matrix @ matrix.T
    gram /= gram.diagonal().mean()
    for alpha in (1.0, 2.0):
        rule = make("fairgrad", alpha=alpha)
        run(rule, FakeStep(random_gradients(1, seed=1)))
        torch.testing.assert_close(
            gram @ rule.weights, rule.weights ** (-1 / alpha), rtol=1e-5, atol=1e-6
        )


def test_pcd_by_hand():
    """Unit vectors a = (1, 0), b = (-1, 2) / sqrt 5: the nearest d to a with b d >= .1 is
    a + (.1 + 1 / sqrt 5) b, and is then brought to the norm of the primary gradient, 3.
    """
    step = [[[3.0, 0.0], None, None, None], [[-0.5, 1.0], None, None, None]]
    step.append([[1.0, 0.1], None, None, None])
    combined, _ = run(make("pcd", tau=0.1), FakeStep([step]))
    unit = np.array([-1.0, 2.0]) / math.sqrt(5)
    nearest = np.array([1.0, 0.0]) + (0.1 + 1 / math.sqrt(5)) * unit
    assert unit @ nearest == pytest.approx(0.1, abs=1e-15)
    np.testing.assert_allclose(combined[0][0], 3 * nearest / np.hypot(*nearest), rtol=1e-7)


def test_the_geometric_mean_by_hand():
    rule = make("geometric_mean")
    combined, weights = run(rule, FakeStep(random_gradients(5), LOSSES))
    for used, losses in zip(weights, LOSSES, strict=True):
        mean = math.prod(losses) ** (1 / 3)
        assert used == pytest.approx([mean / (3 * loss) for loss in losses], rel=1e-14)
    first = weighted_sum(weights[0], random_gradients(5)[0])
    assert combined[0][0] == pytest.approx(first, rel=1e-13)
    # A loss's weight is its head's as well.
    head = weights[0][0] * np.array(random_gradients(5)[0][0][2])
    np.testing.assert_allclose(combined[0][2], head, rtol=1e-15)


def test_imtl_l_minimises_its_objective():
    rule = make("imtl_l", learning_rate=0.1)
    _, weights = run(rule, FakeStep(random_gradients(5), LOSSES))
    factors = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([factors], lr=0.1)
    for used, given in zip(weights, LOSSES, strict=True):
        assert used == pytest.approx(factors.exp().tolist(), rel=1e-12)
        adam.zero_grad()
        (factors.exp() * vector(*given) - factors).sum().backward()
        adam.step()
    assert weights[-1][2] < 0.8 < 1.2 < weights[-1][1]


def aggregated(name, rows):
    fake = FakeStep([[[row, None, None, None] for row in rows]])
    return run(make(name, fake.names), fake)[0][0][0]


def test_aggregation_by_hand():
    conflict = [[1.0, 0.0], [-1.0, 1.0]]
    # Each without its part along the other: (1,0) + (1/2)(-1,1), and (-1,1) + (1,0).
    assert aggregated("pcgrad", conflict) == pytest.approx([0.5, 1.5], abs=1e-5)
    assert aggregated("upgrad", conflict) == pytest.approx([0.25, 0.75], rel=1e-6)
    # The shortest vector between the two: 3/5 (1,0) + 2/5 (-1,1) at (1/5, 2/5).
    assert aggregated("mgda", conflict) == pytest.approx([0.2, 0.4], rel=1e-6)
    update = aggregated("imtl_g", conflict)
    assert update[0] == pytest.approx((update[1] - update[0]) / math.sqrt(2), abs=1e-4)


@pytest.mark.parametrize("name", ["pcgrad", "upgrad", "cagrad", "mgda", "aligned_mtl", "imtl_g"])
def test_aggregation_does_not_depend_on_the_scale_and_helps_both(name):
    one = aggregated(name, [[2.0, 1.0], [-1.0, 2.5]])
    other = aggregated(name, [[2e-4, 1e-4], [-1e-4, 2.5e-4]])
    assert [1e4 * value for value in other] == pytest.approx(one, rel=1e-3)
    assert 2 * one[0] + one[1] > 0
    assert -one[0] + 2.5 * one[1] > 0


@pytest.mark.parametrize("name", ["pcgrad", *SCALARIZATIONS])
def test_a_missing_extra_is_one_line(name, monkeypatch):
    module = "scalarization" if name in SCALARIZATIONS else "aggregation"
    monkeypatch.setitem(sys.modules, f"torchjd.{module}", None)
    with pytest.raises(
        ConfigError, match=rf"'{name}' needs an extra .* \"auxlearn\[aggregation\]\""
    ):
        make(name)


def random_gram(seed, count=3, size=6):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(count, size, generator=generator, dtype=torch.float64)
    matrix = vectors @ vectors.T
    return matrix / matrix.diagonal().mean()


def test_nash_of_two_gradients_in_closed_form():
    # a w1 + b w2 = 1 / w1 and b w1 + c w2 = 1 / w2 give w1^2 a = w2^2 c.
    a, b, c = 1.5, -0.4, 0.5
    w1 = 1 / math.sqrt(a + b * math.sqrt(a / c))
    found = nash_weights(torch.tensor([[a, b], [b, c]], dtype=torch.float64), ridge=0.0)
    assert found.tolist() == pytest.approx([w1, w1 * math.sqrt(a / c)], rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_every_weighted_gradient_has_the_same_product_with_the_step(seed):
    matrix = random_gram(seed, count=2 + seed % 5)
    weights = nash_weights(matrix, ridge=0.0)
    assert (weights > 0).all()
    products = weights * (matrix @ weights)
    torch.testing.assert_close(products, torch.ones_like(products), rtol=1e-9, atol=0)


@pytest.mark.parametrize("seed", range(5))
def test_nash_against_a_general_purpose_solver(seed):
    matrix = random_gram(seed).numpy()

    def objective(logs):
        weights = np.exp(logs)
        return weights @ matrix @ weights / 2 - logs.sum(), weights * (matrix @ weights) - 1

    solved = minimize(objective, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-10})
    found = nash_weights(torch.from_numpy(matrix), ridge=0.0)
    np.testing.assert_allclose(found.numpy(), np.exp(solved.x), rtol=1e-6)


def test_a_gradient_of_zero_bargains_with_none():
    matrix = torch.diag(torch.tensor([4.0, 0.0, 1.0], dtype=torch.float64))
    found = nash_weights(matrix, ridge=0.0)
    assert found.tolist() == pytest.approx([math.sqrt(5 / 3) / 2, 1.0, math.sqrt(5 / 3)], rel=1e-12)


@pytest.mark.parametrize(
    "vectors",
    [
        [[1.0, 0.0], [-1.0, 0.0]],
        [[1.0, 2.0], [1.0, 2.0]],
        [[1.0, 0.0], [0.0, 0.0]],
        [[0.0, 0.0], [0.0, 0.0]],
        [[1e-9, 0.0], [1e3, 1e3]],
    ],
)
def test_gradients_without_a_bargain(vectors):
    matrix = vector(*vectors)
    weights = nash_weights(matrix @ matrix.T)
    assert weights.isfinite().all()
    assert (weights > 0).all()
    if vectors[1] == [-1.0, 0.0]:  # opposite gradients cancel
        assert float(weights[0] - weights[1]) == pytest.approx(0, abs=1e-6)


def test_a_step_of_nash_mtl():
    steps = random_gradients(4)
    rule = make("nash_mtl")
    combined, weights = run(rule, FakeStep(steps))
    for found, gradients, used in zip(combined, steps, weights, strict=True):
        flat, total = jacobian(gradients).numpy(), np.concatenate(found[:2])
        np.testing.assert_allclose(total, used @ flat, rtol=1e-12)
        products = used * (flat @ total)
        np.testing.assert_allclose(products, np.full(3, np.mean(products)), rtol=1e-5)  # the ridge


SEEDS = 300


def weigh(name, gram):
    return make(name, range(len(gram))).weigh(gram, None)


def conflicting(seed, scales=None):
    """Gradients of 2 to 6 objectives, of very different norms unless given, some parallel."""
    random = np.random.default_rng(seed)
    count = len(scales or ()) or int(random.integers(2, 7))
    rows = random.normal(size=(count, int(random.integers(2, 9))))
    rows -= random.uniform(0, 1.5) * rows[0] * (np.arange(count) > 0)[:, None]  # in conflict
    if scales is None:
        scales = 10 ** random.uniform(-3, 3, size=count)
        if random.random() < 0.2:
            rows[-1] = -2 * rows[0]
    rows *= np.array(scales)[:, None] / np.linalg.norm(rows, axis=1, keepdims=True)
    return torch.from_numpy(rows)


@pytest.mark.parametrize("scales", [None, (1, 20, 10), (1, 28), (1000, 1, 1)])
@pytest.mark.parametrize("name", ["upgrad", "dualproj"])
def test_no_step_conflicts_with_any_gradient(name, scales):
    for seed in range(SEEDS):
        rows = conflicting(seed, scales)
        found = weigh(name, rows @ rows.T) @ rows
        norms = rows.norm(dim=1)
        assert ((rows @ found) / norms >= -1e-9 * norms.max()).all(), seed
        # Relative to the square of the gradient's own norm, as for the primary task.
        if scales is not None:
            assert float((rows @ found / norms**2).min()) > -1e-7, seed


def shortest(gram):
    """Smallest squared norm by a solver of general constrained problems."""
    return minimize(
        lambda v: v @ gram @ v,
        np.full(len(gram), 1 / len(gram)),
        jac=lambda v: 2 * gram @ v,
        bounds=[(0, 1)] * len(gram),
        constraints={"type": "eq", "fun": lambda v: v.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    ).fun


def test_the_shortest_combination_is_that_of_a_general_solver():
    worse = 0
    for seed in range(SEEDS):
        rows = conflicting(seed, (1.0, 3.0, 0.4, 2.0)[: 2 + seed % 3])
        gram = rows @ rows.T
        weights = weigh("mgda", gram)
        assert float(weights.min()) >= 0
        assert float(weights.sum()) == pytest.approx(1, abs=1e-12)
        found = shortest(gram.numpy())
        worse += float(weights @ gram @ weights) > found + 1e-8
        # Optimal: no gradient is shorter along the combination than the combination itself.
        combined = weights @ rows
        assert float((rows @ combined).min()) >= float(combined @ combined) - 1e-9
    assert worse == 0


def test_the_weights_do_not_depend_on_the_solver():
    """Against the library's, with a ridge that is small beside every gradient."""
    projector = QuadprogProjector(norm_eps=0.0, reg_eps=1e-12)
    rules = {"upgrad": library.UPGradWeighting, "dualproj": library.DualProjWeighting}
    for seed in range(60):
        rows = conflicting(seed, (1.0, 3.0, 2.0)) + 0.0
        rows = torch.cat([rows, torch.eye(3).double()], 1)  # linearly independent
        for name, rule in rules.items():
            expected = rule(projector=projector)(rows @ rows.T)
            torch.testing.assert_close(weigh(name, rows @ rows.T), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", sorted(registered(GramWeighting)))
def test_an_objective_without_a_gradient_changes_nothing(name):
    """The step is the one without it, also where one objective alone has a gradient."""
    first, second, _ = random_gradients(1, seed=3)[0]
    nothing = [[0.0, 0.0], None, None, None]
    for others in ([first, second], [first]):
        alone, beside = FakeStep([others]), FakeStep([[*others, nothing]])
        for step in (alone, beside):
            run(make(name, step.names), step)
        one, other = (np.array(step.combined[0][:2]) for step in (alone, beside))
        np.testing.assert_allclose(other, one, rtol=1e-6)


def test_gradients_of_zero_and_nan():
    rows = torch.tensor([[0.0, 0.0], [1.0, 2.0], [-1.0, 1.0]], dtype=torch.float64)
    for name in ("upgrad", "dualproj", "mgda"):
        assert weigh(name, rows @ rows.T).isfinite().all()
        assert weigh(name, torch.zeros(3, 3).double()).isfinite().all()
        assert weigh(name, rows @ rows.T * torch.nan).isnan().all()
    assert weigh("mgda", rows @ rows.T).tolist() == pytest.approx([1, 0, 0], abs=1e-12)


def test_projections_by_hand():
    gram = torch.tensor([[1.0, -1.0], [-1.0, 2.0]], dtype=torch.float64)  # (1, 0) and (-1, 1)
    assert dual_cone_weights(gram, torch.tensor([1.0, 0.0]).double()).tolist() == pytest.approx(
        [1, 0.5], abs=1e-12
    )
    assert least_norm_weights(gram).tolist() == pytest.approx([0.6, 0.4], abs=1e-12)
