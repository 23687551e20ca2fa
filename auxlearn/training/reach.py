"""What a loss reaches: every parameter that it depends on must be one that the run trains."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torch import Tensor, nn

from auxlearn.errors import ConfigError


def leaves(loss: Tensor) -> list[Tensor]:
    """Return the tensors that a loss has a derivative by: the leaves of its autograd graph."""
    found: list[Tensor] = []
    seen, waiting = set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):  # only the nodes that accumulate the gradient of a leaf
            found.append(node.variable)
        waiting.extend(following for following, _ in node.next_functions)
    return found


def check_trained(objective: str, owner: object, loss: Tensor, trained: Collection[int]) -> None:
    """Refuse a loss that depends on parameters which no optimizer steps.

    Such a parameter would keep its initial value to the end, would not follow from the seed and
    would be lost in a kill, all without a word.

    Args:
        objective: Name of the objective in the run.
        owner: What computed the loss; its attributes give the parameters their names.
        loss: With its graph. Whole of it is walked, so once is enough.
        trained: ``id`` of every parameter that the run trains.

    Raises:
        ConfigError: The loss reaches another parameter.
    """
    strangers = [leaf for leaf in leaves(loss) if id(leaf) not in trained]
    if not strangers:
        return
    names = {id(parameter): name for name, parameter in _named_tensors(owner)}
    listed = sorted(
        names.get(id(leaf), f"a parameter of shape {tuple(leaf.shape)}") for leaf in strangers
    )
    raise ConfigError(
        f"the loss of '{objective}' ({type(owner).__name__}) reaches parameters that nothing "
        f"trains: {', '.join(listed)}. Compute it with the heads of the encoder (classify, "
        "predict_tokens); or, if they are to stay as they are, call requires_grad_(False) on them"
    )


def _named_tensors(owner: object) -> Iterator[tuple[str, Tensor]]:
    for attribute, value in vars(owner).items():
        if isinstance(value, nn.Module):
            for name, parameter in value.named_parameters():
                yield f"{attribute}.{name}", parameter
        elif isinstance(value, Tensor):
            yield attribute, value
