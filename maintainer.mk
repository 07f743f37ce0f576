# Targets for those who make the kit; this file is not part of the student release.

CAMPAIGN =

.PHONY: starter release test-all test-campaign verify-references calibrate

test-all: EXTRAS += dev model serve
test-all: setup
	@.venv/bin/python -m tests.run --all

test-campaign: setup
	@.venv/bin/python -m tests.campaigns.run $(CAMPAIGN)

starter: setup
	@$(KIT) starter

release: setup
	@$(KIT) release

calibrate: EXTRAS += gpu
calibrate: setup
	@$(KIT) calibrate

verify-references: EXTRAS += reference
verify-references: setup
	@.venv/bin/python reference_outputs/verify.py $(MODEL)

help::
	@echo "make starter              generate starter/ from solutions/ (files you changed there are kept)"
	@echo "make release              write dist/pagedlab-VERSION.zip for students"
	@echo "make test-all             make test, the suites of continuous integration and the slow ones (75 minutes)"
	@echo "make test-campaign        what is longer, into reports in tests/campaigns/; goes on where it was stopped (CAMPAIGN=mutants)"
	@echo "make calibrate            measure this machine's GPU with solutions/ and write it into grader/throughput/thresholds.toml"
	@echo "make verify-references    recompute the reference outputs with transformers (installs torch; MODEL=smollm2-135m)"
