"""Adam with weight decay (Kingma and Ba, arXiv:1412.6980), a step at a time.

torch's own does the same and imports torch's compiler with its first step: a second in the middle
of a search, for a network of a few matrices.
"""

from collections.abc import Iterable

import torch

DECAY = 1e-4
"""Share of each weight that is added to its gradient."""
FIRST, SECOND = 0.9, 0.999
"""The share of each moment that is kept from one step to the next."""
TINY = 1e-8


class Adam:
    def __init__(self, parameters: Iterable[torch.nn.Parameter], rate: float) -> None:
        self._rate, self._steps = rate, 0
        self._moments = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    def step(self) -> None:
        """Moves the parameters against their gradients, by the rate at most."""
        self._steps += 1
        rate = self._rate / (1 - FIRST**self._steps)
        spread = (1 - SECOND**self._steps) ** 0.5
        with torch.no_grad():
            for parameter, first, second in self._moments:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad.add(parameter, alpha=DECAY)
                first.lerp_(gradient, 1 - FIRST)
                second.mul_(SECOND).addcmul_(gradient, gradient, value=1 - SECOND)
                parameter.addcdiv_(first, second.sqrt().div_(spread).add_(TINY), value=-rate)
