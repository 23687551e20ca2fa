"""Plug-in with auxiliary tasks that fail, each in one way in which a user's task may fail."""

import os
import resource
import signal

import torch

from auxlearn import register_task
from auxlearn.tasks.random_mlm import RandomMLM


@register_task("crashing")
class Crashing(RandomMLM):
    def loss(self, encoder, batch, generator):
        raise ValueError("no such column:\n 'txet'")


@register_task("killed")
class Killed(RandomMLM):
    """Kills its process at the fourth step, unless the file named by the environment exists."""

    calls = 0

    def loss(self, encoder, batch, generator):
        self.calls += 1
        print("words of the plug-in", flush=True)
        if self.calls == 4 and not os.path.exists(os.environ["AUXLEARN_TEST_SAFE"]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(encoder, batch, generator)


@register_task("hungry")
class Hungry(RandomMLM):
    def loss(self, encoder, batch, generator):
        resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
        return torch.zeros(2**33).sum()  # 32 GiB


@register_task("diverging")
class Diverging(RandomMLM):
    def loss(self, encoder, batch, generator):
        return super().loss(encoder, batch, generator) * float("nan")
