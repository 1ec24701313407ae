// One half of a program as a user might build it: two translation units include every header, in opposite orders, and are
// linked. .ci/compile.py generates the lists of headers, and compiles this under several compilers and flags.
#include "forward_includes.hpp"

const void* version_in_reverse();

// An inline variable is one object in the whole program, whichever translation unit asks.
int main() { return version_in_reverse() == &gradweave::version_string ? 0 : 1; }
