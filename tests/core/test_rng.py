"""Named random streams."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest
import torch

from auxlearn.core.rng import ONE_THREAD, derive_seed, seeded
from auxlearn.data import hub
from auxlearn.data.pydocs.docstrings import read_docstrings
from auxlearn.weighting.torchjd import TorchJDOptions, _library_rule


def test_seeds_differ_by_purpose_and_are_the_same_on_every_machine():
    assert derive_seed(0, "l3mask", "mask", 17) == derive_seed(0, "l3mask", "mask", 17)
    purposes = [(0,), (1,), (10,), (0, 1), (0, "a"), (0, "b"), (1, "a"), (0, "ab"), (0, "a", "b")]
    purposes += [(0, "a", 1), (0, "a", 11), (0, "a", 1, 1)]
    assert len({derive_seed(*purpose) for purpose in purposes}) == len(purposes)
    assert all(0 <= derive_seed(*purpose) < 2**63 for purpose in purposes)
    # SHA-256 of "3", a unit separator and "x"; the first eight bytes, shifted right by one.
    first = hashlib.sha256(b"3\x1fx").hexdigest()[:16]
    assert derive_seed(3, "x") == int(first, 16) // 2


@pytest.mark.parametrize("fails", [False, True])
def test_seeded_restores_the_global_generators(fails):
    before = torch.random.get_rng_state()
    try:
        with seeded(0, "dropout", 3):
            drawn = torch.rand(4)
            if fails:
                raise KeyError
    except KeyError:
        pass
    assert torch.equal(torch.random.get_rng_state(), before)
    with seeded(0, "dropout", 3):
        assert torch.equal(torch.rand(4), drawn)
    with seeded(0, "dropout", 4):
        assert not torch.equal(torch.rand(4), drawn)


def test_one_thread_at_a_time_draws_from_torch():
    """As two trainings in threads do, whose dropout would otherwise be that of each other."""

    def draw(seed):
        with seeded(seed, "a"):
            return [float(torch.rand(())) for _ in range(2000)]

    alone = [draw(seed) for seed in range(4)]
    before = torch.get_rng_state()
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(draw, range(4))) == alone
    assert torch.equal(torch.get_rng_state(), before)


def go_offline():
    with hub._offline():
        pass


ONCE = {
    "generators: torchjd": lambda: _library_rule(TorchJDOptions(), 2),
    "filters of warnings: docstrings": lambda: list(
        read_docstrings(Path(__file__).parent, [Path(__file__)])
    ),
    "switches of the hub's libraries": go_offline,
}


@pytest.mark.parametrize("what", ONCE)
def test_what_a_process_has_once_is_used_by_one_thread(what):
    ONCE[what]()  # imports take seconds
    other = Thread(target=ONCE[what])
    with ONE_THREAD:
        other.start()
        other.join(0.5)
        assert other.is_alive()
    other.join(60)
    assert not other.is_alive()
