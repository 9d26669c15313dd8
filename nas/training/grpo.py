"""Group relative policy optimisation: the algorithm alone (Shao et al. 2024, "DeepSeekMath", section 4).

It sees token probabilities, masks and rewards, never a model's inside, a prompt or a generator:
`nas.training.rollout` has those, and either can be replaced.

Legend: p prompts, g answers a prompt, n = p * g answers, t tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

CLIP = 0.2
"""The ratio of probabilities may move this far from 1 before its gradient is cut (PPO, Schulman et al. 2017)."""
EPSILON = 1e-6


class TokenPolicy(Protocol):
    """What the algorithm needs of a policy."""

    def log_probabilities(self, rollouts: Rollouts) -> Tensor:
        """Log probability of each sampled token, shape (n, t), with a gradient."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """Answers that a policy sampled.

    Attributes:
        prompts_nt, tokens_nt: what was asked and answered.
        mask_nt: 1 for tokens of the answer, 0 after its end.
        old_log_probs_nt: of the policy that sampled them.
        rewards_pg: one for each answer, those of a prompt in one row.
        parsed_share: share of answers in which an answer was found at all.
    """

    prompts_nt: Tensor
    tokens_nt: Tensor
    mask_nt: Tensor
    old_log_probs_nt: Tensor
    rewards_pg: Tensor
    parsed_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRecord:
    """What one update did.

    Attributes:
        loss: after the last pass.
        clip_ratio: share of answer tokens whose ratio was clipped, over all passes.
        mean_reward, parsed_share: of the rollouts.
        rise_of_better, rise_of_worse: mean change of an answer's log probability, for those rewarded
            above and below their group's mean; None where there are none.
    """

    loss: float
    clip_ratio: float
    mean_reward: float
    parsed_share: float
    rise_of_better: float | None
    rise_of_worse: float | None


def group_advantages(rewards_pg: Tensor) -> Tensor:
    """Each reward against its own group: less the mean, over the deviation; 0 where all are equal.

    >>> [round(value, 2) for value in group_advantages(torch.tensor([[1.0, 0.0], [1.0, 1.0]])).flatten().tolist()]
    [0.71, -0.71, 0.0, 0.0]
    """
    centred = rewards_pg - rewards_pg.mean(dim=1, keepdim=True)
    return centred / (rewards_pg.std(dim=1, keepdim=True) + EPSILON)


def clipped_loss(
    log_probs_nt: Tensor, old_log_probs_nt: Tensor, mask_nt: Tensor, advantages_n: Tensor, clip: float = CLIP
) -> tuple[Tensor, Tensor]:
    """The clipped surrogate to minimise, a mean over the answers of their mean over tokens, and where it clips.

    Raises:
        ValueError: shapes that do not fit.
    """
    if not log_probs_nt.shape == old_log_probs_nt.shape == mask_nt.shape or len(advantages_n) != len(mask_nt):
        shapes = [tuple(each.shape) for each in (log_probs_nt, old_log_probs_nt, mask_nt, advantages_n)]
        raise ValueError(f"log probabilities, old ones, mask and advantages of shapes {shapes}: they must agree")
    ratio_nt = torch.exp(log_probs_nt - old_log_probs_nt)
    advantages_n1 = advantages_n[:, None]
    plain_nt = ratio_nt * advantages_n1
    clipped_nt = ratio_nt.clamp(1 - clip, 1 + clip) * advantages_n1
    gain_nt = torch.minimum(plain_nt, clipped_nt)
    lengths_n = mask_nt.sum(dim=1).clamp(min=1)
    loss = -((gain_nt * mask_nt).sum(dim=1) / lengths_n).mean()
    return loss, (clipped_nt < plain_nt) & (mask_nt > 0)


def update(
    policy: TokenPolicy,
    parameters: list[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    rollouts: Rollouts,
    *,
    num_passes: int = 2,
    clip: float = CLIP,
    advantages: Callable[[Tensor], Tensor] = group_advantages,
    clip_norm: float = 1.0,
) -> UpdateRecord:
    """Some passes over one set of rollouts.

    Args:
        policy, parameters, optimizer: what is trained.
        rollouts: sampled from the policy as it is now.
        num_passes: gradient steps.
        clip, clip_norm: of the ratio, and of the gradient.
        advantages: (p, g) rewards to (p, g) advantages.

    Raises:
        FloatingPointError: the loss is not finite.
    """
    advantages_n = advantages(rollouts.rewards_pg).flatten().detach()
    num_clipped, num_tokens, loss = 0, 0, torch.zeros(())
    for _ in range(num_passes):
        log_probs_nt = policy.log_probabilities(rollouts)
        loss, is_clipped = clipped_loss(log_probs_nt, rollouts.old_log_probs_nt, rollouts.mask_nt, advantages_n, clip)
        if not bool(torch.isfinite(loss)):
            raise FloatingPointError("the loss of the policy is not finite")
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, clip_norm)
        optimizer.step()
        num_clipped += int(is_clipped.sum())
        num_tokens += int(rollouts.mask_nt.sum())
    with torch.no_grad():
        moved_nt = (policy.log_probabilities(rollouts) - rollouts.old_log_probs_nt) * rollouts.mask_nt
    moved_pg = moved_nt.sum(dim=1).view_as(rollouts.rewards_pg)
    # By reward, not by advantage: an advantage with its sign flipped would agree with itself.
    above_pg = rollouts.rewards_pg - rollouts.rewards_pg.mean(dim=1, keepdim=True)
    return UpdateRecord(
        loss=float(loss.detach()),
        clip_ratio=num_clipped / max(1, num_tokens),
        mean_reward=float(rollouts.rewards_pg.mean()),
        parsed_share=rollouts.parsed_share,
        rise_of_better=_mean(moved_pg[above_pg > EPSILON]),
        rise_of_worse=_mean(moved_pg[above_pg < -EPSILON]),
    )


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if values.numel() else None
