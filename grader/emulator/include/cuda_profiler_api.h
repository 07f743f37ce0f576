// Programs of the host include it beside their kernels; what it declares cannot be used in one.
#pragma once
