"""Drawn answers, held against the random numbers that each must be drawn with."""

from collections.abc import Sequence

import numpy as np
import safetensors.numpy

from grader.checking.api import Worker, require
from grader.oracle.scripted import ScriptedModel
from grader.trace import Request


def expect_own_numbers(worker: Worker, model: ScriptedModel, request: Request, tokens: Sequence[int]) -> None:
    """The answer is what the submission's own `sample` draws, token after token, from numpy.random.default_rng(seed).

    The scripted model's logits are whole numbers, the same in any order of summation, so nothing is rounded otherwise.
    """
    weights = safetensors.numpy.load_file(model.folder / "model.safetensors")
    states, head = (weights[f"{name}.weight"].astype(np.float32) for name in ("model.embed_tokens", "lm_head"))
    generator = worker.call("numpy.random:default_rng", request.params.seed, keep=True)
    for index, (current, token) in enumerate(zip([request.prompt[-1], *tokens[:-1]], tokens, strict=True)):
        drawn = worker.call("sampling.sample", head @ states[current], request.params, generator)
        told = (
            f'Token {index} of "{request.id}" is {token}. With these logits, draw {index + 1} of your sample from '
            f"numpy.random.default_rng({request.params.seed}) is {drawn}: a request has one generator, made once, and "
            "each of its tokens takes one draw."
        )
        require(drawn == token, told)
