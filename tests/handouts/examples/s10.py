"""The numbers of 10-generation.md."""

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
from given.requests import SamplingParams
from given.tokenizer import Tokenizer

from grader.oracle.references import TINY
from grader.oracle.sampling import probabilities
from tests.handouts.formats import many, num

LOGITS = np.asarray([2, 1, 3, 0, 2, -1], np.float32)
TEMPERATURE, TOP_K, TOP_P = 2.0, 4, 0.8
VOCABULARY = 128_256


def drawn_from(top_k: int = 0, top_p: float = 1.0) -> np.ndarray:
    params = SamplingParams(temperature=TEMPERATURE, top_k=top_k, top_p=top_p)
    return np.asarray(probabilities(LOGITS, params).values)


HEATED, KEPT, FINAL = drawn_from(), drawn_from(TOP_K), drawn_from(TOP_K, TOP_P)
RANKING = [int(n) for n in np.argsort(-LOGITS, kind="stable")]


def cells(values: np.ndarray) -> str:
    return " | ".join("0" if value == 0 else f"{value:.4f}" for value in values)


def pipeline() -> Iterator[str]:
    yield f"The figure in words: logits {many(LOGITS)}, T = {num(TEMPERATURE)}, k = {TOP_K}, p = {TOP_P}."
    yield f"| id | {many(range(6), between=' | ')} |"
    yield f"| logit | {many(LOGITS, between=' | ')} |"
    yield f"| after temperature | {cells(HEATED)} |"
    yield f"| after top-k {TOP_K} | {cells(KEPT)} |"
    yield f"| after top-p {TOP_P} | {cells(FINAL)} |"
    yield f"""![Six logits: probabilities after temperature {num(TEMPERATURE)}, after top-k {TOP_K}, after top-p
        {TOP_P}, and a draw at 0.6]"""


def top_p() -> Iterator[str]:
    left = RANKING[:TOP_K]
    sums = list(accumulate(KEPT[left]))
    plain = list(accumulate(HEATED[left]))
    too_few, _enough = (count for count in range(1, TOP_K) if sums[count - 1] < TOP_P <= sums[count]), 0
    count = next(too_few)
    words = {2: "Two", 3: "three"}
    assert sum(total < TOP_P for total in plain) == 3
    assert plain[3] >= TOP_P
    yield f"""
        Sorted, the four that top-k leaves are the ids {many(left)}, with running sums {many(sums[:3], 4)},
        {num(sums[3])}. {words[count]} tokens have too little, {words[count + 1]} have {sums[count]:.4f} ≥ {TOP_P}.
        Without the renormalisation after top-k the sums would be {many(plain, 4)}, and id {left[3]} would stay as well.
        With top_k = 2 the ids {many(RANKING[:2], between=" and ")} stay, not {RANKING[2]}, which has the same logit as
        {RANKING[1]}.
    """
    yield f"p = {TOP_P}: {sums[1]:.4f} is not enough, {sums[2]:.4f} is"
    yield f"{plain[2]:.4f} in place of {sums[2]:.4f}"
    yield f"logits {many(LOGITS)}, k = 2: ids {many(RANKING[:2], between=' and ')}"
    yield f"p = 0.1 in the example: id {RANKING[0]} stays"
    assert np.flatnonzero(drawn_from(TOP_K, 0.1)).tolist() == RANKING[:1]


def draw() -> Iterator[str]:
    sums = list(accumulate(FINAL))
    chosen = next(n for n, total in enumerate(sums) if total > 0.6)
    yield f"Let u be uniform in [{num(0)}, 1)."
    yield f"""
        In the example the sums are {many(sums[:4], 4)}, {many(sums[4:])}: u = 0.6 gives token {chosen}. "Exceeds", not
        "reaches": if the first token has probability 0, "reaches" would draw it at u = 0, although it was excluded.
        Sums in float64 may end at {sum([0.1] * 10)};
    """
    yield "u = 0, a first token of probability 0"
    yield "logits 1, 5, 5: token 1"
    assert np.argmax([1, 5, 5]) == 1


def rules() -> Iterator[str]:
    yield "1. *temperature* T > 0: weights w[n] = exp((x[n] − largest) / T). Below 1 the differences grow"
    yield "above 1 they shrink. Subtract the largest first and divide then: every exponent is 0 or negative"
    yield "T = 0 means *greedy*: probability 1 for the largest logit"
    yield "3. *top-p*: sort what is left"
    yield "as a part of the mass of what is left after step 2."
    yield "and p = 1 keeps all."
    yield "T = 10⁻³⁰, logits 2, 3"


def ending() -> Iterator[str]:
    prompt, answer = [17, 5, 42], [8, 30, 99]
    yield f"""
        The figure in words: the prompt is {many(prompt)} and the logits of `prefill` give {answer[0]}.
        `decode({answer[0]})` gives the logits for {answer[1]}, `decode({answer[1]})` those for {answer[2]}, an EOS id.
        The answer is {many(answer)}, reason "stop". With max_tokens = 2 it is {many(answer[:2])}, reason "length"; with
        room for 4 tokens in the cache it is {many(answer[: 4 - len(prompt)])}, reason "length". The last token is never
        decoded, since its logits are not wanted: n tokens cost one prefill and n − 1 decodes.
    """
    yield f"""![prefill of three tokens, sample {answer[0]}, decode {answer[0]}, sample {answer[1]}, decode {answer[1]},
        sample {answer[2]}, which is an EOS id]"""
    yield f"prompt {len(prompt)}, max_length 4: one new token"
    yield f"{answer[0]}, then decode({answer[0]}), then {answer[1]}"


def text() -> Iterator[str]:
    tokenizer = Tokenizer.from_folder(str(TINY / "model"))
    _, *tokens = tokenizer.encode("né €")  # the first begins the text
    shown = [tokenizer.decode(tokens[: n + 1]) for n in range(len(tokens))]
    visible = [one.replace(" ", "␣") for one in shown]
    final = [one if not one.endswith("\ufffd") else one.rstrip("\ufffd") for one in shown]
    new = [after.removeprefix(before) for before, after in zip(["", *final], final, strict=False)]
    yield f"| token | {' | '.join(map(str, tokens))} |"
    yield f"| its byte | {' | '.join(f'{byte:02X}' for byte in 'né €'.encode())} |"
    yield f"| decode of all so far | {' | '.join(visible)} |"
    yield f"| push returns | {' | '.join(one.replace(' ', '␣') for one in new)} |"
    hexed = {one: one.encode().hex(" ").upper() for one in "né€"}
    yield f"n is {hexed['n']}, é is {hexed['é']}, € is {hexed['€']}, most emojis have four."
    yield f"tokens {many(tokens[4:])}"
    yield f"an answer cut off after {tokens[4]}"


def costs() -> Iterator[str]:
    yield f"{num(1000)} tokens decode {num(sum(range(1, 1001)))}."
    yield f"""For a vocabulary of {num(VOCABULARY)} a full sort takes milliseconds, which at hundreds of tokens a
        second is"""
    yield "with k = 40 there is no need to sort"


EXAMPLES = (pipeline, top_p, draw, rules, ending, text, costs)
