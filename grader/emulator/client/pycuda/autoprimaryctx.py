"""Importing this module makes the default device's primary context current until the program ends."""

import atexit

from pycuda import driver
from pycuda.tools import make_default_context


def _retain_primary_context(device: driver.Device) -> driver.Context:
    primary = device.retain_primary_context()
    primary.push()
    return primary


driver.init()
context = make_default_context(_retain_primary_context)
device = context.get_device()
atexit.register(context.pop)
