"""Reports of the checker in words: what is wrong, and what to do. Their form is described in reports.py."""

import re
from typing import Any

from grader.emulator.reports.declarations import Surroundings, surroundings

DOES = {"load": "reads", "store": "writes", "atomic": "atomically changes", "": "uses"}
DYNAMIC = "of dynamic shared memory"
NO_DEVICE_MEMORY = "no pointer to the device's memory"
FAR_OFF = "far from all arrays"
ADVICE = {
    "null pointer": "Pass an array, or test the pointer before you use it.",
    "was freed": "Keep the array until the kernel has run: Python frees an array as soon as no variable refers to it.",
    FAR_OFF: "Does the index fit into 32 bits? Compute it as long long, and compare it with the size.",
    NO_DEVICE_MEMORY: "Copy the array to the device, and pass the pointer to it there.",
}


def message(found: dict[str, Any], outside: str, text: str, size: int, source: str) -> str:
    """A report in a few sentences.

    `outside`: how far its address is out of bounds; `text`: the checker's own words; `size`: bytes of the access.
    """
    access, other, name = found["access"], found["other"], found["address"]
    where = f"{access['file']}:{access['line']}"
    who = f"thread {_triple(access['thread'])} of block {_triple(access['block'])}"
    does = DOES[access["kind"]]
    if found["verdict"] == "OUT_OF_BOUNDS":
        what = f"uses {text}" if text else f"{does} {name}, {outside}" if outside else f"{does} {name}"
        return f"{where}: {who} {what}. {_bounds_advice(outside, text, found['kernel'])}"
    if found["verdict"] == "MISALIGNED_ACCESS":
        return (
            f"{where}: {who} {does} {size} bytes at {name}, which is no multiple of {size} bytes. "
            "A vector must begin at a multiple of its size: use single elements where the address may be any."
        )
    if found["verdict"] == "UNINITIALISED_READ":
        return f"{where}: {who} {does} {name}, which nobody has written. Write all of it first, the tail too."
    if found["verdict"] == "DATA_RACE":
        return f"{where}: {_race(access, other, name, source)}."
    if other and other["line"]:
        return (
            f"{where}: in block {_triple(access['block'])} {text}. All threads of a block must reach the same barrier: "
            f"move the one in line {access['line']} out of the condition or the loop."
        )
    example = f", for example thread {_triple(other['thread'])}" if other else ""
    return f"{where}: {who}: {text}{example}. {_barrier_advice(found, text)}"


def tell_of_returned(reports: list[dict[str, Any]]) -> None:
    """Add to the reports of what nobody wrote in shared memory that threads of a block had returned, where they had."""
    for report in reports:
        count = re.search(r"(\d+) have returned without it", report["message"])
        if report["verdict"] != "BARRIER_DIVERGENCE" or count is None:
            continue
        who = f"{count[1]} threads of a block, {_triple(report['other']['thread'])} the first,"
        for unwritten in reports:
            if unwritten["verdict"] == "UNINITIALISED_READ" and unwritten["address"].startswith("shared "):
                unwritten["message"] += f" {who} have returned before a barrier: they write nothing more."
        return


def depth(source: str, place: dict[str, Any]) -> int:
    """How many braces and conditions are around a place."""
    return _around(source, place).depth


def _bounds_advice(outside: str, text: str, kernel: str) -> str:
    for sign, advice in ADVICE.items():
        if sign in outside:
            return advice
    if DYNAMIC in outside:
        return (
            f"Set `shared` in launch.toml: [{kernel}] shared = …, 4 bytes for each float (in a launch of your own, "
            "shared=…). If it is large enough, compare the index with the size."
        )
    if size := re.search(r"'[^'[]*\[(\d+)]", text):
        return f"Compare the index with the size before you use it: the last is {int(size[1]) - 1}."
    size = re.search(r"([\d,]+) elements?$", outside)
    last = int(size[1].replace(",", "")) - 1 if size else -1
    return f"Compare the index with the size before you use it{f': the last is {last:,}' if last >= 0 else ''}."


def _race(access: dict[str, Any], other: dict[str, Any], name: str, source: str) -> str:
    """Who was first at an element, who came then, and the cure."""
    is_same_block = access["block"] == other["block"]
    whose = "the same block" if is_same_block else f"block {_triple(access['block'])}"
    order = (
        f"thread {_triple(other['thread'])} of block {_triple(other['block'])} {DOES[other['kind']]} {name} "
        f"in line {other['line']}; thread {_triple(access['thread'])} of {whose} then {DOES[access['kind']]} it "
        f"in line {access['line']}"
    )
    if not is_same_block:
        cure = "let one block alone use the element, or use an atomic function"
        return f"{order}. Blocks run in any order: {cure}"
    is_same_line = (access["file"], access["line"]) == (other["file"], other["line"])
    kinds = {access["kind"], other["kind"]}
    first, last = sorted((access, other), key=lambda place: (place["line"], place["kind"] == "load"))
    if is_same_line and _is_update(name, access["text"]):
        cure = "where many threads change one element, use an atomic function"
    elif is_same_line and "load" not in kinds:
        cure = "let one thread alone write the element"
    elif _is_in_another_round(first, last, source):
        order += ", in another round of the loop"
        cure = f"every round needs a __syncthreads() between its {_noun(last)} and the {_noun(first)} of the next"
    elif is_same_line:
        cure = "read into a variable of the thread, then put __syncthreads(), and write behind it"
    else:
        cure = "put __syncthreads() between the two"
    return f"{order}, with no barrier in between: {cure}"


def _is_in_another_round(first: dict[str, Any], last: dict[str, Any], source: str) -> bool:
    """Whether two lines of a loop are kept apart in each of its rounds, or are one line of a loop without barriers."""
    common = [loop for loop in _around(source, first).loops if loop in _around(source, last).loops]
    lines = surroundings(source).items()
    barriers = {line: its for (file, line), its in lines if its.is_barrier and file == first["file"]}
    if not common:
        return False
    if first["line"] == last["line"]:
        return not any(common[-1] in its.loops for its in barriers.values())
    return any(first["line"] < line < last["line"] for line in barriers)


def _is_update(name: str, text: str) -> bool:
    """Whether a line changes the named element by its own value and no other of its array: x++, x += y, x = x + y."""
    variable = name.removeprefix("shared ").partition("[")[0]
    target = rf"\b{re.escape(variable)}\b(\s*\[[^=;]*])?\s*"
    if re.search(rf"(\+\+|--){target}|{target}(\+\+|--)", text):
        return True
    found = re.search(rf"{target}([-+*/&|^]?)=(?!=)([^;]*)", text)
    if found is None:
        return False
    own = f"{variable}{found[1] or ''}".strip()
    others = found[3].replace(own, "")
    return not re.search(rf"\b{variable}\b", others) and (bool(found[2]) or others != found[3])


def _noun(place: dict[str, Any]) -> str:
    return "reads" if place["kind"] == "load" else "writes"


def _around(source: str, place: dict[str, Any]) -> Surroundings:
    return surroundings(source).get((place["file"], place["line"]), Surroundings())


def _barrier_advice(found: dict[str, Any], text: str) -> str:
    if "does not have" in text and "reads" in text:
        return "Give the block a multiple of 32 threads (`block` in launch.toml), so that each warp has all its lanes."
    if "does not have" in text:
        return "It works on today's GPUs; to be safe, name only lanes that there are."
    if "lane" in text or "_sync " in text:
        return "All lanes that a mask names must call the function together: call it before the lanes part."
    if not found["is_error"]:
        return "It works on today's GPUs; to be safe, let threads skip the work, but not the barrier."
    return "All threads of a block must reach the same barrier: move it out of the condition or the loop."


def _triple(index: list[int]) -> str:
    return f"({','.join(map(str, index))})"
