"""Fine-tune text encoders with auxiliary objectives whose weights are fixed or meta-learned."""

import sys

if sys.platform == "win32":  # files are locked and pipes opened as POSIX has it
    raise ImportError("auxlearn runs on Linux and macOS: on Windows, install it in WSL")

from auxlearn.core.lazy import names_of_stub

__all__, __getattr__, __dir__ = names_of_stub(__name__, __file__)
