#!/usr/bin/env bash
# On a machine with an NVIDIA GPU and PyCUDA: compare GPU and emulator, grade the solutions, time the emulator.
# Writes tests/gpu/agreement.json, conformance.json, results.json and grade.txt.
set -uo pipefail
cd "$(dirname "$0")/../.."
python3 -m tests.gpu.agreement
agreed=$?
python3 -m tests.gpu.conformance
conforms=$?
NO_COLOR=1 python3 -m grader grade solutions --device gpu --json tests/gpu/results.json | tee tests/gpu/grade.txt
graded=$?
python3 -m tests.gpu.records tests/gpu/results.json
exit $((agreed || conforms || graded))
