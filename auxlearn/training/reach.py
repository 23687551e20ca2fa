"""Check that a loss depends on trained parameters only."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torch import Tensor, nn

from auxlearn.errors import ConfigError


def leaves(loss: Tensor) -> list[Tensor]:
    """Return the leaf tensors of the autograd graph of a loss."""
    tensors: list[Tensor] = []
    seen, queue = set(), [loss.grad_fn]
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):  # only nodes that accumulate the gradient of a leaf
            tensors.append(node.variable)
        queue.extend(following for following, _ in node.next_functions)
    return tensors


def check_trained(objective: str, owner: object, loss: Tensor, trained: Collection[int]) -> None:
    """Refuse a loss that depends on parameters which no optimizer updates.

    Such a parameter would silently keep its initial value, would not be reproducible from the seed
    and would be missing from checkpoints.

    Args:
        objective: Name of the objective in the run.
        owner: Object that computed the loss; parameters are named by its attributes.
        loss: The loss, with its graph. The whole graph is traversed, so call this only once.
        trained: ``id`` of every parameter that the run trains.

    Raises:
        ConfigError: The loss depends on another parameter.
    """
    untrained = [leaf for leaf in leaves(loss) if id(leaf) not in trained]
    if not untrained:
        return
    names = {id(parameter): name for name, parameter in _named_tensors(owner)}
    listed = sorted(
        names.get(id(leaf), f"a parameter of shape {tuple(leaf.shape)}") for leaf in untrained
    )
    raise ConfigError(
        f"the loss of '{objective}' ({type(owner).__name__}) reaches parameters that nothing "
        f"trains: {', '.join(listed)}. Add layers of its own by context.add_head and call "
        "encoder.apply_head; or, to hold them fixed, call requires_grad_(False) on them"
    )


def _named_tensors(owner: object) -> Iterator[tuple[str, Tensor]]:
    for attribute, value in vars(owner).items():
        if isinstance(value, nn.Module):
            for name, parameter in value.named_parameters():
                yield f"{attribute}.{name}", parameter
        elif isinstance(value, Tensor):
            yield attribute, value
