"""PagedLab's autograder: runs a submission's CUDA kernels and engine, stage by stage, against references."""

import os
import sys
from pathlib import Path

KIT = Path(__file__).resolve().parent.parent
"""The kit's root folder: everything the grader reads lies below it."""

SUBMISSION_PATH = KIT / "grader" / "submission_path"
"""The folder that a submission has on its import path: it holds the package `given` and nothing else."""

sys.path.append(str(SUBMISSION_PATH))

VERSION = (KIT / "VERSION").read_text(encoding="utf-8").strip()

BLAS_THREADS = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
)
"""How many threads a matrix product in NumPy takes, for each of the libraries that NumPy may be built with."""

# Ours are small: more threads would only spin, on cores that the emulated GPU needs. BLAS reads this once, when NumPy
# is imported, which no module does before this one. What the user set holds.
for _name in BLAS_THREADS:
    os.environ.setdefault(_name, "1")


class UsageError(Exception):
    """What was asked for cannot be done; the message says why and what to do. Exit code 2."""
