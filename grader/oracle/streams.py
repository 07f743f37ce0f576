"""Judges greedy token streams by teacher forcing: the reference reads prompt and answer and says what it would say.

Right engines differ in their last bits, so that near-ties fall either way and two right streams may part for good.
Therefore each token is judged after the tokens that the engine itself wrote before it: its *regret* is the largest
logit of the reference there minus the logit of the token that was written, 0 for the token that the reference prefers.
The unit of what is allowed is the median rms error of the rows of the bf16 reference over the same tokens.

- Each token's regret is at most TOKEN_FACTOR units.
- The mean over all streams of a check, of the tokens past the first CONTEXT of their context, is at most MEAN_FACTOR
  units: near-ties that fall the wrong way too often are arithmetic that is less precise than bf16's. (An engine with
  the contract's roundings has about 0.001 on the tiny model, Hugging Face's roundings up to 0.04.)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from grader.failure import Failure
from grader.judge.compare import row_errors
from grader.judge.patterns import Values
from grader.oracle.llama import HUGGING_FACE_BF16, Floats, LlamaOracle

TOKEN_FACTOR = 10.0
MEAN_FACTOR = 0.05
CONTEXT = 64
MEAN_TOKENS = 256
"""A mean over fewer tokens says little."""


@dataclass(frozen=True)
class TokenStream:
    """One answer with what the reference says of it."""

    name: str
    """The request, as a message names it."""
    prompt: Sequence[int]
    tokens: Sequence[int]
    logits: Floats
    """[len(tokens), vocabulary]: the reference's row for each token of the answer."""
    unit: float

    @property
    def regrets(self) -> Values:
        """The regret of each token, in units."""
        rows = np.asarray(self.logits, np.float64)
        written = rows[np.arange(len(rows)), np.asarray(self.tokens, np.int64)]
        return np.asarray((rows.max(axis=1) - written) / self.unit)

    def late_regrets(self) -> Values:
        """Those of the tokens past the first CONTEXT of prompt and answer."""
        return self.regrets[max(0, CONTEXT - len(self.prompt)) :]


def read_stream(oracle: LlamaOracle, name: str, prompt: Sequence[int], tokens: Sequence[int]) -> TokenStream:
    """The answer as the reference sees it: one forward pass over both. `tokens` must be ids of the vocabulary."""
    ids = [*prompt, *tokens[:-1]]
    exact, rounded = oracle.forward(ids).logits, oracle.forward(ids, HUGGING_FACE_BF16).logits
    unit = float(np.median(row_errors(rounded, exact)))
    return TokenStream(name, prompt, tokens, exact[len(prompt) - 1 :][: len(tokens)], unit)


def expect_stream(
    oracle: LlamaOracle,
    prompt: Sequence[int],
    tokens: Sequence[int],
    name: str = "the answer",
    more: Callable[[int], str] = lambda index: "",
) -> TokenStream:
    """Raise Failure unless every token is the one that the reference prefers, or as good as it in bf16.

    `more` gives, for the index of a wrong token, what to say of it besides: a sentence after a space, or "".
    """
    stream = read_stream(oracle, name, prompt, tokens)
    expect_tokens(stream, more)
    return stream


def expect_streams(oracle: LlamaOracle, answers: Mapping[str, tuple[Sequence[int], Sequence[int]]]) -> None:
    """Judge all greedy answers of a check, {request: (prompt, tokens)}: each token, then the mean. Raises Failure.

    Let the requests ignore end-of-sequence tokens: a check must judge MEAN_TOKENS tokens or more past the first CONTEXT
    (ValueError).
    """
    streams = [expect_stream(oracle, *answer, f'the answer to "{name}"') for name, answer in answers.items()]
    regrets = np.concatenate([stream.late_regrets() for stream in streams])
    if len(regrets) < MEAN_TOKENS:
        raise ValueError(f"the check judges {len(regrets)} tokens past the first {CONTEXT}, fewer than {MEAN_TOKENS}")
    mean = float(regrets.mean())
    if not mean <= MEAN_FACTOR:
        worst = max(
            streams, key=lambda stream: float(stream.late_regrets().mean()) if len(stream.late_regrets()) else 0
        )
        message = (
            "No token is far from what the reference prefers, but too many are not its first choice: the mean regret "
            f"of {len(regrets):,} tokens is {mean:.3g} of the bf16 error (allowed {MEAN_FACTOR:g}); it is largest in "
            f"{worst.name}."
        )
        hint = "Something is a little off at many tokens: a scale, a rounding too many, a sum in bf16."
        raise Failure("INCORRECT_VALUE", message, {"hint": hint, "figure": mean, "threshold": MEAN_FACTOR})


def expect_tokens(stream: TokenStream, more: Callable[[int], str] = lambda index: "") -> None:
    """Raise Failure unless each token's regret is small enough."""
    regrets = stream.regrets
    wrong = np.asarray(~(regrets <= TOKEN_FACTOR))
    if not wrong.any():
        return
    index = int(wrong.argmax())
    row, token = stream.logits[index], int(stream.tokens[index])
    best = int(row.argmax())
    message = (
        f"Token {index} of {stream.name} is {token}; the reference prefers {best}, whose logit is {row[best]:.4g}. "
        f"That of {token} is {row[token]:.4g}, and at most {TOKEN_FACTOR * stream.unit:.2g} less is allowed. "
        f"{_how_many_wrong(wrong)}{more(index)}"
    )
    evidence = {"wrong": int(wrong.sum()), "total": wrong.size, "hint": _hint(stream, index)}
    raise Failure("INCORRECT_VALUE", message, evidence)


def _how_many_wrong(wrong: np.ndarray) -> str:
    count = int(wrong.sum())
    before = int(wrong.argmax())
    told = f"{count:,} of {wrong.size:,} tokens {'is' if count == 1 else 'are'} wrong"
    return f"{told}, each judged after those before it." if not before else f"{told}; those before it are right."


def _hint(stream: TokenStream, index: int) -> str | None:
    """What the place of the first wrong token tells."""
    context = len(stream.prompt) + index
    if index == 0:
        return f"The first token comes from the prefill of the {len(stream.prompt)} tokens of the prompt."
    if stream.tokens[index] == stream.tokens[index - 1]:
        return "The token before it came again: is each new token the input of the next step?"
    if index == 1:
        return "It is the first that decode gives: its position, and the keys and values cached before it."
    return f"It is written after {context} tokens: what happens in the cache, or in the batch, at that step?"
