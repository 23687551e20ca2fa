"""Asking the Hugging Face hub once: its libraries retry for minutes before they read a cache."""

from __future__ import annotations

from typing import Any

from auxlearn.core.errors import UserError, named_fault

TIMEOUT_SECONDS = 5.0  # time in which the hub must answer whether it has a repository


def repository_info(
    repository: str, repo_type: str, refused: UserError, revision: str | None = None
) -> Any:
    """Return what the hub says of a repository, or why it does not; or raise ``refused``."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        return HfApi().repo_info(
            repository, repo_type=repo_type, revision=revision, timeout=TIMEOUT_SECONDS
        )
    except RevisionNotFoundError as error:
        raise type(refused)(f"'{repository}' of the hub has no revision '{revision}'") from error
    except (RepositoryNotFoundError, GatedRepoError, HFValidationError) as error:
        raise refused from error
    except HfHubHTTPError as error:
        return f"it answers with status {error.response.status_code}"
    except Exception as error:
        # The exception types of a failed connection belong to the HTTP library that
        # huggingface_hub uses, which differs between its versions.
        return named_fault(error)
