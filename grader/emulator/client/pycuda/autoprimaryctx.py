"""Importing this module makes the default device's primary context current until the program ends."""

import atexit

from pycuda import driver
from pycuda.tools import make_default_context

driver.init()
context = make_default_context(driver.Device.retain_primary_context)
context.push()
device = context.get_device()
atexit.register(context.pop)
