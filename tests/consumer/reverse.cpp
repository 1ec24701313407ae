// The other half of the program; see forward.cpp.
#include "reverse_includes.hpp"

const void* version_in_reverse();

const void* version_in_reverse() { return &gradweave::version_string; }
