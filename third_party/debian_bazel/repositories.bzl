"""Lets Debian's own Bazel (package bazel-bootstrap) build without a network.

Its embedded tools refer to a few repositories that upstream's Bazel downloads. Debian packages three of them; of the other
two it needs so little that a stub does. Debian's bazel-rules-cc is no help: it does not load in Bazel 4.2.3.
"""

_STUBS = "third_party/debian_bazel/"

def debian_bazel_repositories():
    """Declares the stand-ins, if this is Debian's Bazel; any other Bazel takes its own."""

    # Debian's build leaves the version empty, which no release of upstream's does.
    if native.bazel_version:
        return
    native.local_repository(name = "rules_cc", path = _STUBS + "rules_cc")
    native.local_repository(name = "remote_coverage_tools", path = _STUBS + "remote_coverage_tools")
    native.local_repository(name = "platforms", path = "/usr/share/bazel/tools/platforms")
    native.local_repository(name = "rules_java", path = "/usr/share/bazel/rules/java")
    native.local_repository(name = "rules_proto", path = "/usr/share/bazel/rules/proto")
