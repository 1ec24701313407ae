// The main function of every test binary. It stands alone since it takes the compiler longer than most tests do.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
