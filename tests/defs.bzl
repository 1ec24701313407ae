"""The macro that makes a test binary."""

load("//:copts.bzl", "GRADWEAVE_COPTS")

# Files that have to say something outside of any namespace: a specialization of a template of the library's or of
# doctest's, or an operator new. They are compiled by themselves.
_ALONE = [
    "element_test.cpp",
    "laws/allocation_law_test.cpp",
    "overlap/cuda_stream_test.cpp",
    "reduction_test.cpp",
    "tensor_test.cpp",
    "testing/tensor_conformance_test.cpp",
]

# Most of what a compiler does for a test file it does for the headers that all of them include.
_FILES_AT_ONCE = 24

def gradweave_test(name, srcs, deps = [], size = "medium", **kwargs):
    """One test binary from several *_test.cpp files, by doctest.

    The files are compiled two dozen at once: every header that they include comes first, then each file in a namespace of its
    own, where its includes are void.

    Args:
      name: the target.
      srcs: test files; tests/main.cpp supplies main.
      deps: what the tests include, besides doctest and //tests:support.
      size: as for cc_test.
      **kwargs: as for cc_test.
    """
    alone = [source for source in srcs if source in _ALONE]
    together = [source for source in srcs if source not in _ALONE]
    joined = []
    for begin in range(0, len(together), _FILES_AT_ONCE):
        joined.append("{}_{}.cpp".format(name, begin // _FILES_AT_ONCE))
        native.genrule(
            name = "{}_{}".format(name, begin // _FILES_AT_ONCE),
            srcs = together[begin:begin + _FILES_AT_ONCE],
            outs = [joined[-1]],
            cmd = """{
                grep --no-filename '^#include' $(SRCS) | sort -u
                number=0
                for file in $(SRCS); do
                    number=$$((number + 1))
                    printf 'namespace file_%d {\\n#include "%s"\\n}\\n' $$number $$file
                done
            } > $@""",
            testonly = True,
        )
    native.cc_library(
        name = name + "_files",
        testonly = True,
        textual_hdrs = together,
    )
    native.cc_test(
        name = name,
        size = size,
        srcs = joined + alone,
        copts = GRADWEAVE_COPTS,
        linkstatic = True,
        deps = deps + [
            ":main",
            ":support",
            ":" + name + "_files",
            "@doctest",
        ],
        **kwargs
    )
