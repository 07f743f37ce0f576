// Mathematical functions and intrinsics.
#pragma once
