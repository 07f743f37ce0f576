"""The cases of numbers: conversions, arithmetic, functions and intrinsics, a kernel of one expression each."""

from tests.conformance.numbers import functions, intrinsics, small_floats

MODULES = [module.formulas for module in (functions, intrinsics, small_floats)]
FORMULAS = [case for formulas in MODULES for case in formulas.cases]
