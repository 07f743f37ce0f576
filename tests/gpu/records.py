"""Write reports as JSON with one record a line, so that a difference shows records and a report stays short.

python -m tests.gpu.records FILE ...     brings JSON files into this form
"""

import json
import sys
from pathlib import Path
from typing import Any

LONGEST = 480
"""Characters of a record; a longer one takes a line for each of its parts."""


def write_records(path: Path, report: Any) -> None:
    path.write_text(layout(report) + "\n", encoding="utf-8")


def layout(value: Any, depth: int = 0) -> str:
    """JSON text of a value: on one line where it fits, else one line for each entry."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= LONGEST or not isinstance(value, dict | list):
        return text
    if isinstance(value, dict):
        entries = [f"{json.dumps(key, ensure_ascii=False)}: {layout(part, depth + 1)}" for key, part in value.items()]
    else:
        entries = [layout(part, depth + 1) for part in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = ",\n".join(" " * (depth + 1) + entry for entry in entries)
    return f"{opening}\n{lines}\n{' ' * depth}{closing}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write_records(Path(name), json.loads(Path(name).read_text(encoding="utf-8")))
