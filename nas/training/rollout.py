"""A toy sequence task with a checkable answer, a small policy, and how it is sampled and trained.

The prompt is two digits; the answer is `= d END` with d their sum modulo 10. Nothing is learnt from
an example: only from whether a sampled answer parses and is right.

Legend: p prompts, g answers a prompt, n = p * g, t tokens, d width, v vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nas.training.grpo import Rollouts, UpdateRecord, group_advantages, update

NUM_DIGITS = 10
EQUALS, END, START = 10, 11, 12
VOCABULARY = 13
ANSWER_TOKENS = 3
"""Tokens that an answer may have: `=`, the digit, END."""
REWARD_PARSED, REWARD_RIGHT = 0.2, 1.0
"""An answer that parses, and one that is right as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforcementRecipe:
    """Settings of a training by reinforcement.

    Attributes:
        updates: sets of rollouts.
        prompts, group: prompts a set, answers a prompt.
        learning_rate: of Adam.
        modulus: sums are taken modulo this; smaller is easier.
    """

    updates: int = 40
    prompts: int = 16
    group: int = 16
    learning_rate: float = 1e-2
    modulus: int = 10


class ToyPolicy(nn.Module):
    """Embeddings of both digits, the position and the previous token, and two layers."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.digits = nn.Embedding(2 * NUM_DIGITS, width)
        self.previous = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(ANSWER_TOKENS, width)
        self.hidden = nn.Linear(width, width)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, prompts_n2: Tensor, previous_nt: Tensor) -> Tensor:
        """Logits (n, t, v) of each next token after the tokens before it."""
        asked_nd = self.digits(prompts_n2[:, 0]) + self.digits(prompts_n2[:, 1] + NUM_DIGITS)
        steps_t = torch.arange(previous_nt.shape[1])
        x_ntd = asked_nd[:, None] + self.previous(previous_nt) + self.position(steps_t)[None]
        logits: Tensor = self.head(torch.relu(self.hidden(torch.relu(x_ntd))))
        return logits

    def log_probabilities(self, rollouts: Rollouts) -> Tensor:
        """See `grpo.TokenPolicy`."""
        starts_n1 = torch.full_like(rollouts.tokens_nt[:, :1], START)
        previous_nt = torch.cat([starts_n1, rollouts.tokens_nt[:, :-1]], dim=1)
        log_probs_ntv = torch.log_softmax(self(rollouts.prompts_nt, previous_nt), dim=-1)
        return log_probs_ntv.gather(2, rollouts.tokens_nt[:, :, None]).squeeze(2)


def parse_answer(tokens: list[int]) -> int | None:
    """The digit of an answer of the form `= d END`; None when it has another form.

    >>> parse_answer([EQUALS, 7, END]), parse_answer([7, EQUALS, END])
    (7, None)
    """
    if len(tokens) == ANSWER_TOKENS and tokens[0] == EQUALS and tokens[1] < NUM_DIGITS and tokens[2] == END:
        return tokens[1]
    return None


@torch.no_grad()
def draw_tokens(
    next_logits: Callable[[Tensor], Tensor], begun_nt: Tensor, num_tokens: int, generator: torch.Generator
) -> Tensor:
    """Goes on with texts by so many tokens, each drawn from what a policy holds likely. Returns those tokens alone.

    Args:
        next_logits: texts (n, t) -> logits (n, v) of the token that follows each.
        begun_nt: what the texts begin with.
        num_tokens: to draw.
        generator: of the draws.
    """
    tokens_nt = begun_nt
    for _ in range(num_tokens):
        drawn_n1 = torch.multinomial(torch.softmax(next_logits(tokens_nt), dim=-1), 1, generator=generator)
        tokens_nt = torch.cat([tokens_nt, drawn_n1], dim=1)
    return tokens_nt[:, begun_nt.shape[1] :]


def mask_to_end(tokens_nt: Tensor, end: int) -> Tensor:
    """1 for tokens up to the first `end`, that one included, 0 after it.

    >>> mask_to_end(torch.tensor([[5, 12, 7], [5, 6, 7]]), 12).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """
    is_end_nt = tokens_nt == end
    ended_nt = is_end_nt.cumsum(dim=1) - is_end_nt.to(torch.int64)
    return (ended_nt == 0).to(torch.float32)


@torch.no_grad()
def sample(policy: ToyPolicy, recipe: ReinforcementRecipe, generator: torch.Generator) -> Rollouts:
    """Draws prompts, lets the policy answer each of them `group` times, and checks the answers."""
    prompts_p2 = torch.randint(0, NUM_DIGITS, (recipe.prompts, 2), generator=generator)
    prompts_n2 = prompts_p2.repeat_interleave(recipe.group, dim=0)
    starts_n1 = torch.full((len(prompts_n2), 1), START)
    answers_nt = draw_tokens(lambda begun: policy(prompts_n2, begun)[:, -1], starts_n1, ANSWER_TOKENS, generator)
    parsed = [parse_answer(answer) for answer in answers_nt.tolist()]
    right = [(int(a) + int(b)) % recipe.modulus for a, b in prompts_n2.tolist()]
    rewards = [
        0.0 if digit is None else REWARD_PARSED + (REWARD_RIGHT - REWARD_PARSED) * (digit == wanted)
        for digit, wanted in zip(parsed, right, strict=True)
    ]
    rollouts = Rollouts(
        prompts_nt=prompts_n2,
        tokens_nt=answers_nt,
        mask_nt=mask_to_end(answers_nt, END),
        old_log_probs_nt=torch.zeros(answers_nt.shape),
        rewards_pg=torch.tensor(rewards).view(recipe.prompts, recipe.group),
        parsed_share=sum(digit is not None for digit in parsed) / len(parsed),
    )
    old_nt = policy.log_probabilities(rollouts)
    return Rollouts(
        prompts_nt=rollouts.prompts_nt, tokens_nt=rollouts.tokens_nt, mask_nt=rollouts.mask_nt,
        old_log_probs_nt=old_nt, rewards_pg=rollouts.rewards_pg, parsed_share=rollouts.parsed_share,
    )  # fmt: skip


def train_by_reinforcement(
    recipe: ReinforcementRecipe, *, seed: int, advantages: Callable[[Tensor], Tensor] = group_advantages
) -> tuple[UpdateRecord, ...]:
    """Trains a fresh policy; what each update saw and did. The same arguments give the same numbers.

    Raises:
        FloatingPointError: the loss is not finite.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        policy = ToyPolicy()
    generator = torch.Generator().manual_seed(seed)
    parameters = list(policy.parameters())
    optimizer = torch.optim.Adam(parameters, lr=recipe.learning_rate)
    records = []
    for _ in range(recipe.updates):
        rollouts = sample(policy, recipe, generator)
        records.append(update(policy, parameters, optimizer, rollouts, advantages=advantages))
    return tuple(records)
