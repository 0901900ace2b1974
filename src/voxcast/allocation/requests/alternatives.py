"""The sequences of all strategies for one law, or of one, to compare and to write as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcast.allocation.requests.strategies import STRATEGIES, RequestSequence, request_sequence
from voxcast.errors import ConfigError, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.allocation.requests.cost_model import CostModel
    from voxcast.allocation.requests.strategies import Settings
    from voxcast.laws.families import Law

ALL = "all"


@dataclass(frozen=True)
class Alternatives:
    """Sequences for one law.

    Attributes
    ----------
    sequences : tuple of RequestSequence
        In the order of `STRATEGIES`.
    refused : tuple of str
        Why strategies cannot work with this law.
    without_checkpoints : tuple of str
        Strategies that were left out, as jobs that cannot write a checkpoint cannot use them.
    """

    sequences: tuple[RequestSequence, ...]
    refused: tuple[str, ...] = ()
    without_checkpoints: tuple[str, ...] = ()


def alternatives(
    strategy: str, law: Law, cost: CostModel, settings: Settings, *, can_checkpoint: bool
) -> Alternatives:
    """Return the sequence of a strategy, or those of all that can work with the law.

    Parameters
    ----------
    strategy : str
        A name of `STRATEGIES`, or ``all``.
    can_checkpoint : bool
        Whether the lengths of a checkpoint and of a restart are known.

    Raises
    ------
    ConfigError
        If the strategy is unknown or cannot work, or none can.
    """
    if strategy != ALL:
        if strategy in STRATEGIES and STRATEGIES[strategy].checkpoints and not can_checkpoint:
            raise ConfigError("needs --checkpoint-s and --restart-s", strategy)
        return Alternatives((request_sequence(strategy, law, cost, settings),))
    names = [n for n, s in STRATEGIES.items() if can_checkpoint or not s.checkpoints]
    sequences: list[RequestSequence] = []
    refused: list[str] = []
    for name in names:
        try:
            sequences.append(request_sequence(name, law, cost, settings))
        except ConfigError as error:  # the other strategies are still computed
            if not sequences and name == names[-1]:
                raise
            refused.append(one_line(error))
    left_out = tuple(name for name in STRATEGIES if name not in names)
    return Alternatives(tuple(sequences), tuple(refused), left_out)


def sequence_json(sequence: RequestSequence, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return a sequence as an object that `json` can write, with further notes."""
    requests: list[Any] = list(sequence.lengths)
    if sequence.checkpoints is not None:
        requests = [
            {"request": length, "milestone": milestone, "checkpoint": checkpoint}
            for length, milestone, checkpoint in zip(
                sequence.lengths, sequence.milestones, sequence.checkpoints, strict=True
            )
        ]
    return {
        "strategy": sequence.strategy,
        "sequence": requests,
        "expected_cost": sequence.expected_cost,
        "normalised_cost": sequence.normalised_cost,
        "notes": [*sequence.notes, *notes],
    }
