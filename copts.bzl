"""How our own C++ is compiled."""

# Third-party headers come as system headers and stay out of it; ours do not, by strip_include_prefix instead of includes.
GRADWEAVE_COPTS = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
]
