"""The macro that makes a test binary."""

load("//:copts.bzl", "GRADWEAVE_COPTS")

def gradweave_test(name, srcs, deps = [], size = "medium", **kwargs):
    """One test binary from several *_test.cpp files, by doctest.

    Args:
      name: the target.
      srcs: test files; tests/main.cpp supplies main.
      deps: what the tests include, besides doctest and //tests:support.
      size: as for cc_test.
      **kwargs: as for cc_test.
    """
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs,
        copts = GRADWEAVE_COPTS,
        linkstatic = True,
        deps = deps + [
            ":main",
            ":support",
            "@doctest",
        ],
        **kwargs
    )
