"""Importing this module makes a context on the default device current until the program ends."""

import atexit

from pycuda import driver
from pycuda.tools import make_default_context

driver.init()
context = make_default_context()
device = context.get_device()
atexit.register(context.pop)
