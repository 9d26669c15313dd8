"""Small texts and language networks that the tests share."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from nas.training.data.language_task import Domain, language_task
from nas.training.data.text_files import TextFile
from nas.training.recipe import Recipe
from nas.training.task import Task, TaskSettings
from search_spaces.candidate import BlockSpec, Candidate

CONTEXT = 32
SETTINGS = TaskSettings(name="text", context=CONTEXT)
QUICK = Recipe(epochs=3, batch_size=8, learning_rate=1e-2, label_smoothing=0.0, num_threads=1)

WORDS = {
    "english": ("the", "cat", "sat", "on", "a", "mat", "and", "saw", "dog", "run", "to", "its", "house", "by", "sea"),
    "numbers": ("0", "1", "2", "3", "5", "8", "13", "21", "34", "55", "89", "144", "233", "377", "610", "987"),
}


def text_of(words: str, num_bytes: int, seed: int) -> bytes:
    """Words in random order, ten a line: a network learns the spelling within seconds."""
    generator = np.random.default_rng(seed)
    lines: list[str] = []
    while sum(map(len, lines)) < num_bytes:
        lines.append(" ".join(generator.choice(WORDS[words], 10)) + "\n")
    return "".join(lines).encode()[:num_bytes]


def files_of(words: str = "english", count: int = 12, num_bytes: int = 1200) -> tuple[TextFile, ...]:
    return tuple(
        TextFile(name=f"{words}{number:02}.txt", content=text_of(words, num_bytes + 10 * number, seed=number))
        for number in range(count)
    )


def small_task(settings: TaskSettings = SETTINGS, *words: str) -> Task:
    """A task with a domain for each kind of words."""
    return language_task(
        settings, [Domain(name=name, origin=name, files=files_of(name)) for name in words or ("english",)]
    )


def candidate_of(kind: str = "causal", vocabulary: int = 256, context: int = CONTEXT) -> Candidate:
    return Candidate(
        space="tests",
        space_version=1,
        input=BlockSpec.of("text", context=context, vocabulary=vocabulary),
        blocks=(BlockSpec.of(kind, width=24),),
        head=BlockSpec.of("language_model", vocabulary=vocabulary),
    )


class CausalNet(nn.Module):
    """The last five tokens predict the next one."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.mix = nn.Conv1d(width, width, 5)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens_nt: Tensor) -> Tensor:
        x_ndt = self.embedding(tokens_nt).transpose(1, 2)
        mixed_ndt = self.mix(nn.functional.pad(x_ndt, (4, 0)))
        return self.head(torch.relu(mixed_ndt + x_ndt).transpose(1, 2))


class Uniform(nn.Module):
    """Every token is as likely as any other."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, tokens_nt: Tensor) -> Tensor:
        return self.logits.expand(*tokens_nt.shape, -1)


class Forward(CausalNet):
    """Sees the token that it should predict, and the four before it: it looks one position ahead."""

    def forward(self, tokens_nt: Tensor) -> Tensor:
        return super().forward(torch.roll(tokens_nt, -1, dims=1))


def build_text_network(candidate: Candidate) -> nn.Module:
    """Builds the test networks; module level, so that a child process can import it."""
    kinds: dict[str, type[nn.Module]] = {"causal": CausalNet, "uniform": Uniform, "forward": Forward}
    return kinds[candidate.blocks[0].kind](candidate.blocks[0].integer("width"), candidate.head.integer("vocabulary"))
