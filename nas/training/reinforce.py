"""Reinforcement of a language network of a search: its rollouts, checked by the task, and one update on them.

The algorithm is `nas.training.grpo`, which knows neither networks nor tasks; epochs, checkpoints and scores are the
trainer's, which knows no rollouts.

Legend: p prompts, g answers a prompt, n = p * g, t positions, v tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from nas.training.data.question_text import IGNORED
from nas.training.grpo import Rollouts, UpdateRecord, group_advantages, update
from nas.training.recipe import Recipe
from nas.training.rollout import draw_tokens
from nas.training.task_kind import TaskKind

DEFAULT_GROUP = 8
"""Answers a prompt where the recipe says nothing."""


class AnswerPolicy:
    """A language network, texts (n, t) to logits (n, t, v), as the policy that answers prompts of one length."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def next_logits(self, texts_nt: Tensor) -> Tensor:
        """Logits (n, v) of the token after each text."""
        logits_ntv: Tensor = self._model(texts_nt)
        return logits_ntv[:, -1]

    def log_probabilities(self, rollouts: Rollouts) -> Tensor:
        """See `grpo.TokenPolicy`."""
        num_prompt = rollouts.prompts_nt.shape[1]
        texts_nt = torch.cat([rollouts.prompts_nt, rollouts.tokens_nt[:, :-1]], dim=1)
        log_probs_ntv = torch.log_softmax(self._model(texts_nt)[:, num_prompt - 1 :], dim=-1)
        return log_probs_ntv.gather(2, rollouts.tokens_nt[:, :, None]).squeeze(2)


def roll_out(
    policy: AnswerPolicy, kind: TaskKind, inputs_pt: Tensor, labels_pt: Tensor, group: int, generator: torch.Generator
) -> Rollouts:
    """Lets the policy answer each prompt `group` times, and has the task check the answers.

    Args:
        policy: answers.
        kind: its `reward` checks.
        inputs_pt, labels_pt: examples of the task, whose prompts end where the first label is; the answers in the
            inputs are not looked at.
        group: answers a prompt.
        generator: of the draws.
    """
    assert kind.reward is not None, "`require_checkable` refuses tasks without one"
    is_asked_pt = labels_pt != IGNORED
    num_prompt = int(is_asked_pt[0].to(torch.int64).argmax()) + 1
    num_answer = int(is_asked_pt[0].sum())
    prompts_nt = inputs_pt[:, :num_prompt].repeat_interleave(group, dim=0)
    with torch.no_grad():
        tokens_nt = draw_tokens(policy.next_logits, prompts_nt, num_answer, generator)
        rewards_n, is_parsed_n = kind.reward(tokens_nt, labels_pt.repeat_interleave(group, dim=0))
        rollouts = Rollouts(
            prompts_nt=prompts_nt,
            tokens_nt=tokens_nt,
            # An answer has a fixed length here: a token after an early end was sampled, and is paid for, as well.
            mask_nt=torch.ones(tokens_nt.shape),
            old_log_probs_nt=torch.zeros(tokens_nt.shape),
            rewards_pg=rewards_n.view(len(inputs_pt), group),
            parsed_share=float(is_parsed_n.to(torch.float32).mean()),
        )
        return replace(rollouts, old_log_probs_nt=policy.log_probabilities(rollouts))


def reinforced_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    kind: TaskKind,
    inputs_pt: Tensor,
    labels_pt: Tensor,
    recipe: Recipe,
    rate: float,
    generator: torch.Generator,
    advantages: Callable[[Tensor], Tensor] = group_advantages,
) -> UpdateRecord | None:
    """One set of rollouts and the update on it; None when its loss is not finite."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    policy = AnswerPolicy(model)
    rollouts = roll_out(policy, kind, inputs_pt, labels_pt, recipe.group or DEFAULT_GROUP, generator)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        return update(
            policy, parameters, optimizer, rollouts, advantages=advantages, clip_norm=recipe.clip_norm
        )  # fmt: skip
    except FloatingPointError:
        return None
