"""The memory of a pass over tokens: allocated once, then reused by every pass that is not larger.

No exercise of its own: part of how the solutions' model.py is organised, for which you may choose otherwise.
"""
