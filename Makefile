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
KERNEL     =
MODEL      =
PROMPT     =
TEMPERATURE =
MAX_TOKENS =
HOST       =
PORT       =
MAX_NUM_SEQS =
QUEUE      =
export PAGEDLAB_PROMPT = $(value PROMPT)
export PAGEDLAB_SUBMISSION = $(value SUBMISSION)

KIT = .venv/bin/python -m grader
SELECTION = $(if $(STAGE),--stage $(STAGE)) $(if $(CHECK),--check $(CHECK)) $(if $(SEED),--seed $(SEED)) $(if $(MODEL),--model $(MODEL))
TALKING = --submission "$$PAGEDLAB_SUBMISSION" --device $(DEVICE) $(if $(MODEL),--model $(MODEL)) \
	$(if $(TEMPERATURE),--temperature $(TEMPERATURE)) $(if $(MAX_TOKENS),--max-tokens $(MAX_TOKENS))

SERVING = --submission "$$PAGEDLAB_SUBMISSION" --device $(DEVICE) $(if $(MODEL),--model $(MODEL)) $(if $(HOST),--host $(HOST)) \
	$(if $(PORT),--port $(PORT)) $(if $(MAX_NUM_SEQS),--max-num-seqs $(MAX_NUM_SEQS)) $(if $(QUEUE),--queue $(QUEUE))

.PHONY: grade profile test model generate chat serve setup update help
.DEFAULT_GOAL = help

grade: setup
	@$(KIT) grade "$$PAGEDLAB_SUBMISSION" --device $(DEVICE) $(SELECTION) --json results.json --exit-zero

profile: setup
	@$(KIT) profile "$$PAGEDLAB_SUBMISSION" $(if $(STAGE),--stage $(STAGE)) $(if $(CHECK),--check $(CHECK)) $(if $(KERNEL),--kernel $(KERNEL))

test: EXTRAS += dev model serve
test: setup
	@.venv/bin/python -m tests.run

model: EXTRAS += model
model: setup
	@$(KIT) model $(MODEL)

generate: EXTRAS += model
generate: setup
	@$(KIT) generate $(TALKING) -- "$$PAGEDLAB_PROMPT"

chat: EXTRAS += model
chat: setup
	@$(KIT) chat $(TALKING)

serve: EXTRAS += serve
serve: setup
	@$(KIT) serve $(SERVING)

setup:
	@command -v $(PYTHON) >/dev/null || { echo "PagedLab needs Python 3.11 or newer: install it (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python)." >&2; exit 2; }
	@$(PYTHON) grader/bootstrap.py $(EXTRAS)

update: setup
	@$(KIT) update $(FROM)

help::
	@echo "make grade    grade starter/ (options: STAGE=3 CHECK=s03.1 SUBMISSION=folder DEVICE=auto|cpu|gpu SEED=n)"
	@echo "make profile STAGE=6    show what your kernels do to memory, line by line (options: CHECK= KERNEL= SUBMISSION=)"
	@echo ".venv/bin/python -m grader run try.py    run a PyCUDA script on the emulator; --check reports races and the like"
	@echo "make test     check that this kit works on this machine (6 minutes)"
	@echo "make model    bring SmolLM2, a small real model (93 MB); MODEL=folder or a Hugging Face id for another Llama"
	@echo "make generate PROMPT=\"...\"    let your engine answer (options: MODEL= DEVICE= TEMPERATURE= MAX_TOKENS=)"
	@echo "make chat     talk with your engine; the same options"
	@echo "make serve    offer your engine to OpenAI's clients on http://127.0.0.1:8000/v1 (options: MODEL= DEVICE= HOST="
	@echo "              PORT= MAX_NUM_SEQS= QUEUE=, how many requests run at once and how many may wait)"
	@echo "make setup    install what the kit needs into .venv/ (EXTRAS=gpu for a machine with an NVIDIA GPU)"
	@echo "make update FROM=pagedlab-VERSION.zip    take a new release; your files in starter/ stay yours"

-include maintainer.mk
