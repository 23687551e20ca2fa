"""The head of a dependency parser: biaffine scores of arcs and of their relations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: Sizes of the projections for arcs and for relations, and their dropout, as in the paper.
ARC_SIZE, RELATION_SIZE, DROPOUT = 500, 100, 0.33

#: Standard deviation of new weights, that of BERT.
DEVIATION = 0.02


class Biaffine(nn.Module):
    r"""Scores of every token as the head of every token, and of every relation between the two.

    Dozat & Manning 2017, `Deep Biaffine Attention for Neural Dependency Parsing
    <https://arxiv.org/abs/1611.01734>`_, section 2.2. With a one-layer projection of the states for
    each role, the score of the arc from head j to dependent i is
    :math:`h_j^\top U d_i + h_j^\top u`, and that of relation r is
    :math:`[h_j; 1]^\top U_r [d_i; 1]`, which holds the bilinear term, a linear one for each of the
    two words, and a bias. The states are those of the encoder, where the paper has a BiLSTM, and
    the state of the first token, ``[CLS]``, stands for the root.

    Args:
        size: Size of a state.
        relations: Number of relations.
    """

    def __init__(self, size: int, relations: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(DROPOUT)
        self.arc_dependent, self.arc_head = nn.Linear(size, ARC_SIZE), nn.Linear(size, ARC_SIZE)
        self.relation_dependent = nn.Linear(size, RELATION_SIZE)
        self.relation_head = nn.Linear(size, RELATION_SIZE)
        self.arc = nn.Linear(ARC_SIZE, ARC_SIZE)
        # The matrix of each relation is a row, so that transformers initialises it as any layer.
        self.relation = nn.Linear((RELATION_SIZE + 1) ** 2, relations, bias=False)
        for layer in self.children():
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=DEVIATION)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Return scores of arcs, then of their relations, by dependent and head, ``(batch, length,
        length, 1 + relations)``, from the last hidden states, ``(batch, length, size)``.
        """
        arcs = self.arc(self._role(self.arc_dependent, states)) @ self._role(
            self.arc_head, states
        ).transpose(1, 2)
        dependents, heads = (
            nn.functional.pad(self._role(layer, states), (0, 1), value=1.0)
            for layer in (self.relation_dependent, self.relation_head)
        )
        matrices = self.relation.weight.unflatten(1, (RELATION_SIZE + 1, RELATION_SIZE + 1))
        left = torch.einsum("bdi,rij->bdrj", dependents, matrices)
        relations = torch.einsum("bdrj,bhj->bdhr", left, heads)
        return torch.cat([arcs.unsqueeze(-1), relations], -1)

    def _role(self, layer: nn.Module, states: Tensor) -> Tensor:
        return self.dropout(nn.functional.leaky_relu(layer(states), 0.1))
