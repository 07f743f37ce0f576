"""Memory and work of a submission's LLM: one cap of device memory, and what a decode step costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from given.requests import SamplingParams
from numpy.random import Generator

from grader.checking.api import DeviceActivity, Worker, require
from grader.checks.support.cached_model import multiplications
from grader.checks.support.llm import ending, new_llm
from grader.model.weight_shapes import weight_shapes
from grader.oracle.references import ReferenceModel
from grader.oracle.scripted import ScriptedModel
from grader.oracle.streams import expect_stream
from grader.traces.answers import read_step
from grader.traces.trace import BF16_BYTES, Trace, kv_bytes_per_token

MODEL_LEN = 512
"""Tokens of a contiguous row, the longest that a request may become."""
KV_ROWS = 6
"""Contiguous rows that would take the memory of the cache of the engine under test."""
CAP_ROWS = 22
"""Contiguous rows for which the cap leaves room beside the weights: KV_ROWS for the cache, the rest for steps."""
STEPS = 8
"""Decode steps that are counted, of all requests together."""
WARM_UP = 2
"""Decode steps before those: what is made once is made there."""
BLOCK_TABLES = 4
"""Index of the tables among paged_attention's arrays."""


def kv_bytes(model: ScriptedModel) -> int:
    """The cache's memory."""
    return KV_ROWS * MODEL_LEN * kv_bytes_per_token(model.config)


def device_cap(model: ScriptedModel) -> int:
    """The weights, and CAP_ROWS contiguous rows: even if it had no other need, a contiguous cache held no more."""
    weights = sum(_elements(shape) for shape in weight_shapes(model.config).values()) * BF16_BYTES
    return weights + CAP_ROWS * MODEL_LEN * kv_bytes_per_token(model.config)


def crowded_trace(rng: Generator, model: ScriptedModel, requests: int) -> Trace:
    """Requests with short answers, which a scheduler can't know: each has the largest max_tokens that fits."""
    trace = []
    for index in range(requests):
        length, tokens = int(rng.integers(1, 21)), int(rng.integers(8, 25))
        trace.append(ending(f"r{index}", model.prompt_for(rng, tokens, length), tokens, most=MODEL_LEN - length))
    return trace


def _elements(shape: tuple[int, ...]) -> int:
    elements = 1
    for length in shape:
        elements *= length
    return elements


@dataclass(frozen=True)
class Work:
    """STEPS decode steps of some requests whose contexts are equally long."""

    seen: DeviceActivity
    requests: int
    context: int
    """Tokens of each request that an average one of these steps attends to."""

    @property
    def loaded(self) -> float:
        """Bytes that kernels ask for in a step, without the block tables, which may be looked up again and again."""
        loaded = sum(kernel.counters.load_bytes for kernel in self.seen.kernels)
        attention = [kernel.counters for kernel in self.seen.kernels if kernel.name == "paged_attention"]
        return (loaded - sum(counters.of(BLOCK_TABLES)[0] for counters in attention)) / STEPS

    @property
    def products(self) -> float:
        """Bytes of the larger operands, the weights, of a step's matrix products."""
        return sum(max(call.a_bytes, call.b_bytes) for call in self.seen.gemm_calls) / STEPS

    @property
    def written(self) -> float:
        """Bytes that a step writes: kernels, products and copies of any kind."""
        kernels = sum(kernel.counters.store_bytes for kernel in self.seen.kernels)
        products = sum(call.c_bytes for call in self.seen.gemm_calls)
        seen = self.seen
        copies = seen.bytes_to_device + seen.bytes_to_host + seen.device_copied_bytes
        return (kernels + products + copies) / STEPS

    @property
    def calls(self) -> float:
        """Launches, products and copies of a step."""
        seen = self.seen
        return (seen.launches + seen.gemms + seen.copies + seen.device_copies + seen.memsets) / STEPS

    def more_calls_than(self, other: "Work") -> str:
        """Of which kinds there are more than in another's step, as a sentence; "" where of none."""
        kinds = {"launches": "launches", "gemms": "matrix products", "copies": "copies from or to the host"}
        kinds |= {"device_copies": "copies on the device", "memsets": "memsets"}
        counts = {told: (getattr(other.seen, kind), getattr(self.seen, kind)) for kind, told in kinds.items()}
        grown = [f"{old / STEPS:g} {told} became {new / STEPS:g}" for told, (old, new) in counts.items() if new > old]
        return f"With more requests {', '.join(grown)}." if grown else ""


def decode_work(
    emulator: Worker, tiny: ReferenceModel, prompts: Sequence[Sequence[int]], *, counted: bool = False
) -> Work:
    """Serve these prompts, all of one length, together; Failure also when an answer is not the reference's."""
    length, vocab_size = len(prompts[0]), tiny.config.vocab_size
    llm = new_llm(emulator, tiny.folder, max_num_seqs=len(prompts), max_model_len=1024)
    tokens: dict[str, list[int]] = {f"r{index}": [] for index in range(len(prompts))}

    def step() -> None:
        for output in read_step(emulator.call(llm.method("step")), vocab_size):
            tokens[output.request_id].append(output.token)

    params = SamplingParams(temperature=0.0, max_tokens=1000 - length, ignore_eos=True)
    for name, prompt in zip(tokens, prompts, strict=True):
        emulator.call(llm.method("add_request"), name, list(prompt), params)
    for _ in prompts:  # prefills may take a step each
        step() if not all(tokens.values()) else None
    for _ in range(WARM_UP):
        step()
    before = {name: len(answer) for name, answer in tokens.items()}
    with emulator.observe(counted) as seen:
        for _ in range(STEPS):
            step()
    done, given = sum(call.m * call.n * call.k for call in seen.gemm_calls), STEPS * len(prompts)
    told = f"{STEPS} steps of {len(prompts)} requests made {done:,} multiplications in matrix products; {given} tokens"
    needed = multiplications(tiny.config, given, given)
    require(done >= needed, f"{told} need {needed:,}: compute them, by linear.py, in these steps.", "RUNTIME_ERROR")
    for (name, answer), prompt in zip(tokens.items(), prompts, strict=True):
        got = len(answer) - before[name]
        require(
            got == STEPS, f'{len(prompts)} requests ran, and "{name}" got {got} tokens in {STEPS} steps.', "TOO_SLOW"
        )
        expect_stream(tiny.oracle, prompt, answer, f'the answer to "{name}"')
    return Work(seen, len(prompts), length + min(before.values()) + STEPS // 2)


def live_bytes(tiny: ReferenceModel, work: Work) -> int:
    """Bytes of the keys and values that a step attends to."""
    return work.requests * work.context * kv_bytes_per_token(tiny.config)


def activation_bytes(tiny: ReferenceModel, work: Work) -> int:
    """About what a step must write: the outputs of each operation for one token of each request, and logits."""
    c = tiny.config
    heads = 2 * c.num_heads * c.head_dim + 4 * c.num_kv_heads * c.head_dim
    layer = (6 * c.hidden_size + 3 * c.intermediate_size + heads) * BF16_BYTES
    return work.requests * (c.num_layers * layer + 4 * c.vocab_size)


def linear_bytes(tiny: ReferenceModel) -> int:
    """Bytes of all weights of linear layers, the head among them."""
    shapes = weight_shapes(tiny.config)
    head = tiny.config.vocab_size * tiny.config.hidden_size
    inner = sum(shape[0] * shape[1] for name, shape in shapes.items() if len(shape) == 2 and "layers" in name)
    return (inner + head) * BF16_BYTES
