"""The engine: requests come and go, and every step gives each running one a token.

Owns the model, its cache, the scheduler and the requests' random numbers. Not for several threads at once.
"""

from collections.abc import Sequence

import pycuda.autoprimaryctx  # noqa: F401  (importing it creates the GPU context)
from given.requests import Completion, SamplingParams, StepOutput


class LLM:
    """A model of one folder that serves many requests at once; the names are vLLM's."""

    def __init__(
        self,
        model_dir: str,
        *,
        max_num_seqs: int = 8,
        max_model_len: int | None = None,
        kv_memory_bytes: int | None = None,
        num_blocks: int | None = None,
        block_size: int = 16,
        max_num_batched_tokens: int | None = None,
        enforce_eager: bool = True,
    ) -> None:
        """Load the model and allocate everything that steps will need.

        max_num_seqs: requests running at once. max_model_len: the longest context, prompt and new tokens together; by
        default the model's own, at most 4,096. The size of the cache is given as its number of blocks of `block_size`
        tokens, or in bytes for the keys and values of all layers; by default it suffices for max_num_seqs full
        contexts. No context is longer than the whole cache. max_num_batched_tokens: a step computes this many tokens
        at most, prompts and one for each decode, but one prompt always; by default 2,048, or a full context if that is
        longer. enforce_eager: False allows decode steps to be recorded as CUDA graphs where there are any, and obliges
        to nothing.
        Raises ValueError for an option that means nothing, or for both sizes of the cache at once; ConfigError and
        SafetensorsError, which name the file that is not usable, pass through.
        """
        # TODO s13.2: the options first, then the model, the cache, the scheduler, and where a step's ids go
        raise NotImplementedError("s13.2")

    def add_request(self, request_id: str, prompt: Sequence[int] | str, sampling_params: SamplingParams) -> None:
        """Queue a request; it takes part from the next step on. `prompt`: token ids, or text for the tokenizer.

        Raises ValueError for an id that an unfinished request has, an empty prompt, a token outside the vocabulary,
        max_tokens 0 or no SamplingParams, its subclass TokenizerError for text where the model has no tokenizer.json,
        and RequestTooLong where the context or the whole cache has no room for the prompt and one new token. Nothing
        has changed then.
        """
        # TODO s13.2: refuse everything here, so that a request that waits can be served
        raise NotImplementedError("s13.2")

    def step(self) -> list[StepOutput]:
        """Give each running request its next token, those included that have been admitted in this step; [] when
        there is nothing to do.

        When anything fails in it, no token was given, and all requests wait to be computed again from the tokens they
        had, in the order they came: the next step may be tried, or requests be aborted.
        """
        # TODO s13.2: schedule, compute, and only then change the requests
        raise NotImplementedError("s13.2")

    def abort(self, request_id: str) -> None:
        """End a request, waiting or running; it gets no further token. Raises UnknownRequest where there is none."""
        # TODO s13.2: from the scheduler, too
        raise NotImplementedError("s13.2")

    def has_unfinished_requests(self) -> bool:
        """Whether a request waits or runs."""
        # TODO s13.2: look at the requests
        raise NotImplementedError("s13.2")

    def generate(
        self,
        prompts: str | Sequence[Sequence[int] | str],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """Serve all prompts to their ends; the completions are in the order of the prompts.

        One text is allowed for a list of one. sampling_params: one for all, one for each, or SamplingParams().
        Raises what add_request raises, with the index of the prompt, before anything runs; ValueError also when there
        are unfinished requests of add_request, whose tokens would be lost here. When a step fails its error is
        raised and no request is left.
        """
        # TODO s13.2: check all, queue all, step until all have ended
        raise NotImplementedError("s13.2")

    def stats(self) -> dict[str, int]:
        """Counts: "running" and "waiting" requests, "preemptions" and "steps" so far, "free_blocks", "total_blocks"."""
        # TODO s13.2: gather them
        raise NotImplementedError("s13.2")
