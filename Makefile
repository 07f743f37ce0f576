# Each target is one command; the variables below are its options. GNU make 3.81 syntax.
#   make grade SUBMISSION=starter STAGE=3 CHECK=s03.1 DEVICE=cpu SEED=7

PYTHON     = python3
SUBMISSION = starter
DEVICE     = auto
SEED       =
STAGE      =
CHECK      =
FROM       =
EXTRAS     =

KIT = .venv/bin/python -m grader
SELECTION = $(if $(STAGE),--stage $(STAGE)) $(if $(CHECK),--check $(CHECK)) $(if $(SEED),--seed $(SEED))

.PHONY: grade test setup update help
.DEFAULT_GOAL = help

grade: setup
	@$(KIT) grade $(SUBMISSION) --device $(DEVICE) $(SELECTION) --json results.json --exit-zero

test: EXTRAS += dev model
test: setup
	@.venv/bin/python -m tests.run

setup:
	@command -v $(PYTHON) >/dev/null || { echo "PagedLab needs Python 3.11 or newer: install it (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python)." >&2; exit 2; }
	@$(PYTHON) grader/bootstrap.py $(EXTRAS)

update: setup
	@$(KIT) update $(FROM)

help::
	@echo "make grade    grade starter/ (options: STAGE=3 CHECK=s03.1 SUBMISSION=folder DEVICE=auto|cpu|gpu SEED=n)"
	@echo "make test     check that this kit works on this machine"
	@echo "make setup    install what the kit needs into .venv/ (EXTRAS=gpu for a machine with an NVIDIA GPU)"
	@echo "make update FROM=pagedlab-VERSION.zip    take a new release; your files in starter/ stay yours"

-include maintainer.mk
